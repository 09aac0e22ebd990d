"""Search for a placement of a group with network requirements, when placing pods one after the other fails.

Pods of a group compete for bandwidth: the first may take links that a later one needs. So the pod with the
fewest nodes left comes first, every other pod must have one left after each step, and dead ends are undone: depth
first, with forward checking and the fewest remaining values, as in constraint satisfaction (Haralick and Elliott,
1980).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from controller.cluster.hardware import Shares
from controller.scheduling.framework.deciding import Choice, checked_points, filtered
from controller.scheduling.framework.policies import Ids
from controller.scheduling.pods.profiles import PodProfile
from controller.scheduling.pods.snapshot import Snapshot
from controller.scheduling.pods.values import Mate, Peer, PendingPod, PodChoice

_STEPS: Final = 512
_NODES: Final = 16
"""Number of nodes with the full number of steps; more nodes get fewer, as a step looks at all nodes for each pod."""
_FEWEST_STEPS: Final = 32


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """The results of a group's pods, in the group's order; unless all were placed, nothing should be bound.

    `shares` parallels `choices`, with one entry for each placed pod.
    """

    choices: tuple[PodChoice, ...]
    shares: tuple[Shares, ...]
    is_placed: bool


@dataclass(frozen=True, slots=True)
class _Placed:
    choice: PodChoice
    shares: Shares


def with_mates(pod: PendingPod, group: Sequence[PendingPod], hosts: Mapping[str, str]) -> PendingPod:
    """Return a pod with its placed mates as peers; a pod that names this one as a mate is a peer, too.

    `hosts` are those of the placed members; the others are not peers yet.
    """
    own = [mate.at(hosts[mate.pod]) for mate in pod.mates if mate.pod in hosts]
    theirs = [
        mate.at(hosts[other.name])
        for other in group
        if other.name in hosts
        for mate in other.mates
        if mate.pod == pod.name
    ]
    return replace(pod, peers=(*pod.peers, *own, *theirs)) if own or theirs else pod


def has_needs(pods: Sequence[PendingPod]) -> bool:
    """Return whether any of these pods has network requirements."""
    needs: list[Peer | Mate] = []
    for pod in pods:
        needs += [*pod.peers, *pod.mates]
    return any(need.min_bps or need.max_delay_ns is not None for need in needs)


def search_group(profile: PodProfile, pods: Sequence[PendingPod], snapshot: Snapshot) -> GroupChoice | None:
    """Return a placement of all pods of a group, None if none was found within the allowed steps."""
    search = _Search(profile, pods, max(_STEPS * _NODES // max(len(snapshot.columns.nodes), _NODES), _FEWEST_STEPS))
    if (placed := search.placed(tuple(pods), {}, snapshot)) is None:
        return None
    ordered = [placed[pod.name] for pod in pods]
    return GroupChoice(
        tuple(member.choice for member in ordered), tuple(member.shares for member in ordered), is_placed=True
    )


@dataclass(slots=True)
class _Search:
    profile: PodProfile
    group: Sequence[PendingPod]
    steps: int

    def placed(
        self, left: tuple[PendingPod, ...], hosts: dict[str, str], snapshot: Snapshot
    ) -> dict[str, _Placed] | None:
        """Return a placement of the remaining pods, None if there is none or the steps are used up."""
        if not left:
            return {}
        options = []
        for index, member in enumerate(left):
            pod = replace(with_mates(member, self.group, hosts), companions=len(left) - 1)
            nodes = np.flatnonzero(filtered(self.profile, pod, self.profile.seen(pod, snapshot))[0])
            if not len(nodes):
                return None
            options.append((len(nodes), index, pod, nodes))
        # The pod with the fewest nodes goes first: it reveals dead ends soonest.
        _, index, pod, nodes = min(options, key=lambda option: option[:2])
        rest = (*left[:index], *left[index + 1 :])
        for node, points in self._ranked(pod, snapshot, nodes):
            if self.steps <= 0:
                return None
            self.steps -= 1
            shares = self.profile.shares(pod, snapshot, node)
            after = snapshot.taking(node, shares, pod.group, pod.peers)
            others = self.placed(rest, {**hosts, pod.name: snapshot.host_name(node)}, after)
            if others is not None:
                return {**others, pod.name: _Placed(Choice(pod, node, points, (), 1), shares)}
        return None

    def _ranked(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> list[tuple[int, int]]:
        """Return nodes and their points, best first."""
        seen, total = self.profile.seen(pod, snapshot), np.zeros(len(nodes), np.int64)
        for score in self.profile.scores:
            total += score.weight * checked_points(self.profile, score, pod, seen, nodes)
        order = np.argsort(-total, kind="stable")
        return list(zip(nodes[order].tolist(), total[order].tolist(), strict=True))
