"""The extender's decisions: which nodes may run a pod, their scores, and where preemption would help. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.scheduling.extender.messages import LEAST_PRIORITY, MOST_PRIORITY
from controller.scheduling.extender.objects import Taint, Toleration
from controller.scheduling.framework.deciding import PASSES, checked_points, filtered
from controller.scheduling.framework.policies import MOST_POINTS, Ids
from controller.scheduling.pods import PendingPod, PodProfile, Snapshot

_UNKNOWN: Final = "the node is not known yet"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a node may not run a pod; `is_final` if it could not even without all other pods."""

    policy: str
    reason: str
    is_final: bool

    def __str__(self) -> str:
        return f"{self.policy}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Filtered:
    """Nodes that may run a pod, in the order of the request, and why the others may not."""

    passed: tuple[str, ...]
    refused: Mapping[str, Refusal]


@dataclass(frozen=True, slots=True)
class NodeScore:
    """A node's score from 0 to 10, its points, and each policy's weight, points and reason."""

    node: str
    score: int
    points: int
    reasons: tuple[str, ...] = ()


def filter_nodes(
    profile: PodProfile,
    pod: PendingPod,
    names: Sequence[str],
    snapshot: Snapshot,
    *,
    emptied: Snapshot,
    untolerated: Mapping[str, Taint],
    explained: int,
) -> Filtered:
    """Return which of the named nodes may run a pod.

    `emptied` is the snapshot without any other pods, `untolerated` has taints of nodes that the pod does not tolerate.
    The first `explained` refused nodes get their own reason, the others only the name of the policy.
    """
    snapshot, refuser = _refusers(profile, pod, snapshot)
    never = _refusers(profile, pod, emptied)[1] != PASSES
    number, refused, passed = snapshot.columns.number, dict[str, Refusal](), list[str]()
    for name in names:
        if (row := number.get(name)) is None:
            refused[name] = Refusal("known", _UNKNOWN, is_final=True)
        elif (taint := untolerated.get(name)) is not None:
            refused[name] = Refusal("taints", f"the pod does not tolerate {taint}", is_final=True)
        elif refuser[row] == PASSES:
            passed.append(name)
        else:
            policy = profile.filters[int(refuser[row])]
            reason = policy.policy.reason(pod, snapshot, row) if len(refused) < explained else "refused"
            refused[name] = Refusal(policy.name, reason, is_final=bool(never[row]))
    return Filtered(tuple(passed), refused)


def score_nodes(
    profile: PodProfile, pod: PendingPod, names: Sequence[str], snapshot: Snapshot, *, stretch: bool, explained: int
) -> tuple[NodeScore, ...]:
    """Return the scores of the named nodes, in their order; unknown nodes get 0.

    A score is the node's share of the maximum points, in tenths, over the policies that tell these nodes
    apart; with `stretch`, scores span from the worst node to the best. The best `explained` nodes have their reasons.
    """
    snapshot = profile.seen(pod, snapshot)
    rows = _rows(names, snapshot)
    columns = [checked_points(profile, score, pod, snapshot, rows) if len(rows) else rows for score in profile.scores]
    total, most = np.zeros(len(rows), np.int64), 0
    for score, points in zip(profile.scores, columns, strict=True):
        if len(points) and points.min() < points.max():
            total += score.weight * points
            most += score.weight * MOST_POINTS
    least = 0
    if stretch and len(rows):
        least, most = int(total.min()), int(total.max())
    reasons = {
        int(rows[index]): _reasons(profile, pod, snapshot, int(rows[index]), [int(points[index]) for points in columns])
        for index in np.argsort(-total, kind="stable")[:explained].tolist()
    }
    of = dict(zip(rows.tolist(), total.tolist(), strict=True))
    scores = []
    for name in names:
        if (row := snapshot.columns.number.get(name)) is None:
            scores.append(NodeScore(name, LEAST_PRIORITY, 0, (_UNKNOWN,)))
        else:
            scores.append(NodeScore(name, _tenths(of[row], least, most), of[row], reasons.get(row, ())))
    return tuple(scores)


def may_run(profile: PodProfile, pod: PendingPod, node: str, snapshot: Snapshot) -> Refusal | None:
    """Return why a node may not run a pod even once some pods are gone, None if it may."""
    row = snapshot.columns.number.get(node)
    if row is None:
        return Refusal("known", _UNKNOWN, is_final=True)
    snapshot, refuser = _refusers(profile, pod, snapshot)
    if refuser[row] == PASSES:
        return None
    policy = profile.filters[int(refuser[row])]
    return Refusal(policy.name, policy.policy.reason(pod, snapshot, row), is_final=True)


def untolerated(taints: Mapping[str, Sequence[Taint]], tolerations: Sequence[Toleration]) -> dict[str, Taint]:
    """Return the first taint of each node that a pod does not tolerate."""
    first = {}
    for name, node_taints in taints.items():
        for taint in node_taints:
            if not any(toleration.tolerates(taint) for toleration in tolerations):
                first[name] = taint
                break
    return first


def _refusers(profile: PodProfile, pod: PendingPod, snapshot: Snapshot) -> tuple[Snapshot, Ids]:
    """Return the snapshot that policies see, and the number of the filter that refuses each node, or `PASSES`."""
    seen = profile.seen(pod, snapshot)
    refuser = np.full(len(seen.columns.nodes), PASSES, np.int16)
    filtered(profile, pod, seen, refuser)
    return seen, refuser.astype(np.int64)


def _rows(names: Sequence[str], snapshot: Snapshot) -> Ids:
    number = snapshot.columns.number
    return np.array([number[name] for name in names if name in number], np.int64)


def _reasons(
    profile: PodProfile, pod: PendingPod, snapshot: Snapshot, row: int, points: Sequence[int]
) -> tuple[str, ...]:
    return tuple(
        f"{score.weight} * {value} by {score.name}: {score.policy.reason(pod, snapshot, row)}"
        for score, value in zip(profile.scores, points, strict=True)
    )


def _tenths(points: int, least: int, most: int) -> int:
    """Return points as tenths of the way from the fewest to the most, rounded."""
    if most <= least:
        return MOST_PRIORITY
    rounded = (2 * MOST_PRIORITY * (points - least) + most - least) // (2 * (most - least))
    return max(LEAST_PRIORITY, min(MOST_PRIORITY, rounded))
