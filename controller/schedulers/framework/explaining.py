"""Why a pod gets the node that it gets: each refusal and each score, with its reason, by the same pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from controller.schedulers.framework.deciding import Choice, checked_points, decide, filtered
from controller.schedulers.framework.profiles import Profile
from controller.schedulers.framework.snapshot import Snapshot
from controller.schedulers.framework.values import PendingPod


@dataclass(frozen=True, slots=True)
class Refused:
    """A node that a filter refuses; it is the first that does."""

    node: str
    policy: str
    reason: str


@dataclass(frozen=True, slots=True)
class Scored:
    """What one score gives a node, before its weight."""

    policy: str
    weight: int
    points: int
    reason: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that may run the pod, and its points by score; `points` are their weighted sum."""

    node: str
    points: int
    scores: tuple[Scored, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Candidates, the one with the most points first, and refused nodes in order; not more of each than asked for.

    `refused_by` counts all refused nodes by filter; `equal` says how many candidates had as many points as `node`.
    """

    pod: str
    profile: str
    node: str | None
    candidates: tuple[Candidate, ...]
    refused: tuple[Refused, ...]
    refused_by: tuple[tuple[str, int], ...]
    passed: int
    equal: int

    @property
    def summary(self) -> str:
        """Return the decision in a line."""
        nodes = self.passed + sum(count for _, count in self.refused_by)
        if self.node is None:
            why = ", ".join(f"{count} by {name}" for name, count in self.refused_by) or "there is no node"
            return f"none of {nodes} nodes: {why}"
        points = self.candidates[0].points
        drawn = f", drawn from {self.equal} with as many" if self.equal > 1 else ""
        return f"{self.node}: {points} points, {self.passed} of {nodes} nodes could run it{drawn}"


def explain(
    profile: Profile, pod: PendingPod, snapshot: Snapshot, *, choice: Choice | None = None, most: int = 16
) -> Explanation:
    """Return why `decide` decides as it does about a pod; the chosen node is always among the candidates."""
    choice = decide(profile, pod, snapshot) if choice is None else choice
    passing, refused_by = filtered(profile, pod, snapshot)
    nodes = np.flatnonzero(passing)
    total = np.zeros(len(nodes), np.int64)
    for score in profile.scores if len(nodes) else ():
        total += score.weight * checked_points(score, pod, snapshot, nodes)
    order = np.lexsort((nodes, nodes != choice.node, -total))[:most]
    refused = np.flatnonzero(~passing)[:most].tolist()
    return Explanation(
        pod=pod.name,
        profile=profile.name,
        node=snapshot.columns.names[choice.node] if choice.is_placed else None,
        candidates=tuple(_candidates(profile, pod, snapshot, nodes[order].tolist())),
        refused=tuple(_refused(profile, pod, snapshot, node) for node in refused),
        refused_by=refused_by,
        passed=len(nodes),
        equal=choice.equal,
    )


def _candidates(profile: Profile, pod: PendingPod, snapshot: Snapshot, nodes: list[int]) -> Iterable[Candidate]:
    points = (
        [checked_points(score, pod, snapshot, np.array(nodes)).tolist() for score in profile.scores] if nodes else []
    )
    for place, node in enumerate(nodes):
        scores = tuple(
            Scored(score.name, score.weight, given[place], score.policy.reason(pod, snapshot, node))
            for score, given in zip(profile.scores, points, strict=True)
        )
        yield Candidate(snapshot.columns.names[node], sum(one.weight * one.points for one in scores), scores)


def _refused(profile: Profile, pod: PendingPod, snapshot: Snapshot, node: int) -> Refused:
    for one in profile.filters:
        flags = one.policy.passes(pod, snapshot)
        if flags is not None and not flags[node]:
            return Refused(snapshot.columns.names[node], one.name, one.policy.reason(pod, snapshot, node))
    raise AssertionError(f"{snapshot.columns.names[node]} was refused by no filter")
