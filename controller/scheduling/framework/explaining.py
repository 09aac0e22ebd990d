"""Explanations of a pod's node: each refusal and each score with its reason, by the same pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from controller.scheduling.framework.columns import Ids, Longs
from controller.scheduling.framework.deciding import PASSES, Choice, Examined, examine
from controller.scheduling.framework.profiles import NamedFilter, Profile, WeightedScore
from controller.scheduling.framework.snapshot import Snapshot
from controller.scheduling.framework.values import PendingPod


@dataclass(frozen=True, slots=True)
class Refused:
    """A node and the first filter that refuses it."""

    node: str
    policy: str
    reason: str


@dataclass(frozen=True, slots=True)
class Scored:
    """One score's unweighted points for a node."""

    policy: str
    weight: int
    points: int
    reason: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that may run the pod, with its points by score; `points` is their weighted sum."""

    node: str
    points: int
    scores: tuple[Scored, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Candidates, best first, and refused nodes in order, each up to the requested number.

    `refused_by` counts all refused nodes by filter; `equal` counts the candidates with as many points as `node`.
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
        """Return the decision as one line."""
        nodes = self.passed + sum(count for _, count in self.refused_by)
        if self.node is None:
            why = ", ".join(f"{count} by {name}" for name, count in self.refused_by) or "there is no node"
            return f"none of {nodes} nodes: {why}"
        points = self.candidates[0].points
        drawn = f", of {self.equal} with as many" if self.equal > 1 else ""
        return f"{self.node}: {points} points, {self.passed} of {nodes} nodes could run it{drawn}"


def explain(
    profile: Profile, pod: PendingPod, snapshot: Snapshot, *, choice: Choice | None = None, most: int = 16
) -> Explanation:
    """Return the explanation of `decide` for a pod; the chosen node is always among the candidates."""
    made, examined = examine(profile, pod, snapshot)
    return explained(profile, choice or made, examined, most=most)


def explained(profile: Profile, choice: Choice, examined: Examined, *, most: int = 16) -> Explanation:
    """Return the explanation of results: the best `most` candidates, best first, and as many refused nodes."""
    pod, snapshot, nodes = choice.pod, examined.snapshot, examined.nodes
    order = _best(examined.total, nodes != choice.node, most)
    refused = np.flatnonzero(examined.refuser != PASSES)[:most]
    return Explanation(
        pod=pod.name,
        profile=profile.name,
        node=snapshot.columns.names[choice.node] if choice.is_placed else None,
        candidates=tuple(_candidates(profile, pod, examined, order)) if len(nodes) else (),
        refused=tuple(_refused(profile, pod, examined, refused)),
        refused_by=choice.refused,
        passed=len(nodes),
        equal=choice.equal,
    )


def _best(total: Longs, is_other: Ids, most: int) -> Ids:
    """Return the positions of the most points, most first; the chosen one before its equals, else in order."""
    if len(total) > most:
        least = np.partition(total, len(total) - most)[len(total) - most]
        places = np.flatnonzero(total >= least)
    else:
        places = np.arange(len(total))
    return places[np.lexsort((places, is_other[places], -total[places]))[:most]]


def _candidates(profile: Profile, pod: PendingPod, examined: Examined, order: Ids) -> Iterator[Candidate]:
    names, nodes = examined.snapshot.columns.names, examined.nodes[order]
    columns = []
    for score, points in zip(profile.scores, examined.points, strict=True):
        given = points[order]
        columns.append((score, given.tolist(), _score_reasons(score, pod, examined.snapshot, nodes, given)))
    for place, (node, total) in enumerate(zip(nodes.tolist(), examined.total[order].tolist(), strict=True)):
        scores = tuple(Scored(one.name, one.weight, points[place], why[place]) for one, points, why in columns)
        yield Candidate(names[node], total, scores)


def _refused(profile: Profile, pod: PendingPod, examined: Examined, nodes: Ids) -> Iterator[Refused]:
    by = examined.refuser[nodes]
    reasons: dict[int, str] = {}
    for number in np.unique(by).tolist():
        some = nodes[by == number]
        why = _filter_reasons(profile.filters[number], pod, examined.snapshot, some)
        reasons.update(zip(some.tolist(), why, strict=True))
    names = examined.snapshot.columns.names
    for node, number in zip(nodes.tolist(), by.tolist(), strict=True):
        yield Refused(names[node], profile.filters[number].name, reasons[node])


def _score_reasons(
    score: WeightedScore, pod: PendingPod, snapshot: Snapshot, nodes: Ids, points: Longs
) -> Sequence[str]:
    several = getattr(score.policy, "reasons", None)
    if several is not None:
        found: Sequence[str] = several(pod, snapshot, nodes, points)
        return found
    return [score.policy.reason(pod, snapshot, node) for node in nodes.tolist()]


def _filter_reasons(one: NamedFilter, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Sequence[str]:
    several = getattr(one.policy, "reasons", None)
    if several is not None:
        found: Sequence[str] = several(pod, snapshot, nodes)
        return found
    return [one.policy.reason(pod, snapshot, node) for node in nodes.tolist()]
