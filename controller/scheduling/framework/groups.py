"""Groups of pods that are placed as a whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from controller.cluster.hardware import Shares
from controller.scheduling.framework.columns import Ids
from controller.scheduling.framework.deciding import Choice, checked_points, decide, filtered
from controller.scheduling.framework.profiles import Profile
from controller.scheduling.framework.snapshot import Snapshot
from controller.scheduling.framework.values import Mate, Peer, PendingPod

# Search for a placement of a group with network requirements, when placing pods one after the other fails.
#
# Pods of a group compete for bandwidth: the first may take links that a later one cannot do without. So the pod with
# the fewest nodes left comes first, every other pod must have one left after each step, and dead ends are undone: depth
# first, with forward checking and the fewest remaining values, as in constraint satisfaction (Haralick and Elliott,
# 1980).


_STEPS: Final = 512
_NODES: Final = 16
"""Number of nodes with the full number of steps; more nodes get fewer, as a step looks at all nodes for each pod."""
_FEWEST_STEPS: Final = 32


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """The results of a group's pods, in the group's order; unless all were placed, nothing should be bound.

    `shares` parallels `choices`, with one entry for each placed pod.
    """

    choices: tuple[Choice, ...]
    shares: tuple[Shares, ...]
    is_placed: bool


@dataclass(frozen=True, slots=True)
class _Placed:
    choice: Choice
    shares: Shares


def with_mates(pod: PendingPod, group: Sequence[PendingPod], hosts: Mapping[str, str]) -> PendingPod:
    """Return a pod with its placed mates as peers; a pod that names this one as a mate is a peer, too.

    `hosts` are those of the placed members; the others are no peers yet.
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
    ways: list[Peer | Mate] = []
    for pod in pods:
        ways += [*pod.peers, *pod.mates]
    return any(way.min_bps or way.max_delay_ns is not None for way in ways)


def search_group(profile: Profile, pods: Sequence[PendingPod], snapshot: Snapshot) -> GroupChoice | None:
    """Return a placement of all pods of a group, None if none was found within the allowed steps."""
    search = _Search(profile, pods, max(_STEPS * _NODES // max(len(snapshot.columns.nodes), _NODES), _FEWEST_STEPS))
    if (found := search.placed(tuple(pods), {}, snapshot)) is None:
        return None
    ordered = [found[pod.name] for pod in pods]
    return GroupChoice(tuple(one.choice for one in ordered), tuple(one.shares for one in ordered), is_placed=True)


@dataclass(slots=True)
class _Search:
    profile: Profile
    group: Sequence[PendingPod]
    steps: int

    def placed(
        self, left: tuple[PendingPod, ...], hosts: dict[str, str], snapshot: Snapshot
    ) -> dict[str, _Placed] | None:
        """Return a placement of the remaining pods, None if there is none or the steps are used up."""
        if not left:
            return {}
        options = []
        for place, member in enumerate(left):
            pod = replace(with_mates(member, self.group, hosts), companions=len(left) - 1)
            nodes = np.flatnonzero(filtered(self.profile, pod, self.profile.seen(pod, snapshot))[0])
            if not len(nodes):
                return None
            options.append((len(nodes), place, pod, nodes))
        _, place, pod, nodes = min(options, key=lambda one: one[:2])
        rest = (*left[:place], *left[place + 1 :])
        for node, points in self._ranked(pod, snapshot, nodes):
            if self.steps <= 0:
                return None
            self.steps -= 1
            shares = self.profile.shares(pod, snapshot, node)
            then = snapshot.taking(node, shares, pod.group, pod.peers)
            found = self.placed(rest, {**hosts, pod.name: snapshot.host_name(node)}, then)
            if found is not None:
                return {**found, pod.name: _Placed(Choice(pod, node, points, (), 1), shares)}
        return None

    def _ranked(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> list[tuple[int, int]]:
        """Return nodes and their points, best first."""
        seen, total = self.profile.seen(pod, snapshot), np.zeros(len(nodes), np.int64)
        for score in self.profile.scores:
            total += score.weight * checked_points(score, pod, seen, nodes)
        order = np.argsort(-total, kind="stable")
        return list(zip(nodes[order].tolist(), total[order].tolist(), strict=True))


MOST_ORDERS: Final = 8
"""Number of pod orders to try before a group is refused."""


def place_group(
    profile: Profile, pods: Sequence[PendingPod], snapshot: Snapshot, *, least: int | None = None
) -> GroupChoice:
    """Decide about pods one after the other, each after what those before it took; place `least` of them or none.

    `least` defaults to all of them. If there cannot be room for that many, no policy is called and there are no
    choices. If a pod does not fit after others have chosen, other orders are tried: the largest requests first, and
    then each time the pod that did not fit before all others. Groups with network requirements are placed by a search
    instead, because no order may find an existing placement (`search_group`). The reported refusal is that of the
    group's own order.
    """
    needed = len(pods) if least is None else least
    if room_for(snapshot, pods) < needed:
        return GroupChoice((), (), is_placed=False)
    first, blocked = _placed(profile, pods, snapshot, needed)
    if first.is_placed or blocked is None or len(pods) == 1 or blocked == 0:
        return first
    if needed == len(pods) and has_needs(pods):
        return search_group(profile, pods, snapshot) or first
    order = sorted(range(len(pods)), key=lambda place: (_size(pods[place], snapshot), -place), reverse=True)
    tried = {tuple(range(len(pods)))}
    for _ in range(MOST_ORDERS):
        if tuple(order) in tried:
            break
        tried.add(tuple(order))
        found, blocked = _placed(profile, [pods[place] for place in order], snapshot, needed)
        if found.is_placed:
            return _in_order(found, order)
        if not blocked:
            break  # the first pod does not fit: no order will help
        order.insert(0, order.pop(blocked))
    return first


def _placed(
    profile: Profile, pods: Sequence[PendingPod], snapshot: Snapshot, needed: int
) -> tuple[GroupChoice, int | None]:
    """Place pods in this order; also return the number of the first one that does not fit."""
    choices: list[Choice] = []
    shares: list[Shares] = []
    blocked: int | None = None
    hosts: dict[str, str] = {}
    for place, member in enumerate(pods):
        pod = replace(with_mates(member, pods, hosts), companions=len(pods) - place - 1)
        choice = decide(profile, pod, snapshot)
        choices.append(choice)
        if choice.is_placed:
            taken = profile.shares(pod, snapshot, choice.node)
            shares.append(taken)
            hosts[member.name] = snapshot.host_name(choice.node)
            snapshot = snapshot.taking(choice.node, taken, pod.group, pod.peers)
            continue
        blocked = place if blocked is None else blocked
        if len(shares) + len(pods) - place - 1 < needed:
            break
    return GroupChoice(tuple(choices), tuple(shares), len(shares) >= needed), blocked


def _size(pod: PendingPod, snapshot: Snapshot) -> tuple[int, int, int, int]:
    """Return how hard a pod is to place: whether nodes were stated, its devices, its peers' bandwidth, its cores."""
    stated = len(pod.locations) or len(snapshot.columns.nodes)
    devices = sum(wanted.count * wanted.thousandths for wanted in pod.request.devices)
    needs = sum(peer.min_bps for peer in pod.peers) + sum(mate.min_bps for mate in pod.mates)
    return -stated, devices, needs, pod.request.cpu_milli


def _in_order(found: GroupChoice, order: Sequence[int]) -> GroupChoice:
    """Return the result of another order in the group's own order."""
    at = {place: number for number, place in enumerate(order[: len(found.choices)])}
    shares = iter(found.shares)
    by = {place: next(shares) for place, choice in zip(order, found.choices, strict=False) if choice.is_placed}
    places = sorted(at)
    return GroupChoice(
        tuple(found.choices[at[place]] for place in places),
        tuple(by[place] for place in places if place in by),
        found.is_placed,
    )


def room_for(snapshot: Snapshot, pods: Sequence[PendingPod]) -> int:
    """Return an upper bound of the pods that fit, from the smallest request for each resource."""
    free, most = snapshot.free, np.full(len(snapshot.columns.nodes), len(pods), np.int64)
    if cpu_milli := min((pod.request.cpu_milli for pod in pods), default=0):
        most = np.minimum(most, free.cpu_milli // cpu_milli)
    if memory_bytes := min((pod.request.memory_bytes for pod in pods), default=0):
        most = np.minimum(most, free.memory_bytes // memory_bytes)
    return min(int(np.maximum(most, 0).sum()), len(pods))
