"""The decision about one pod: filters, scores, and the chosen node. Pure; `explaining` gives the reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from controller.common.errors import SchedulerError
from controller.scheduling.framework.columns import Flags, Ids, Longs
from controller.scheduling.framework.profiles import NamedFilter, Profile, WeightedScore
from controller.scheduling.framework.snapshot import Snapshot
from controller.scheduling.framework.values import MOST_POINTS, PendingPod

NOBODY: Final = -1
PASSES: Final = -1
"""Value of `Examined.refuser` for a node that no filter refuses."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A pod and the number of its node, `NOBODY` if none can run it.

    `refused` counts the nodes that each filter refused of those left by the filters before it. `equal` counts the nodes
    with the most points: one was drawn from the profile's seed and the pod's name, or the first was taken.
    """

    pod: PendingPod
    node: int
    points: int
    refused: tuple[tuple[str, int], ...]
    equal: int = 0

    @property
    def is_placed(self) -> bool:
        """True if a node was found."""
        return self.node != NOBODY


@dataclass(frozen=True, slots=True, eq=False)
class Examined:
    """The policies' results for all nodes, as columns: reasons are put into words only on request.

    `snapshot` is what they saw; `refuser` is the number of the filter that refuses a node, or `PASSES`; `nodes` are
    those that pass, with the unweighted `points` of each score, one row per score, and their weighted `total`.
    """

    snapshot: Snapshot
    refuser: npt.NDArray[np.int16]
    nodes: Ids
    points: tuple[Longs, ...]
    total: Longs


def decide(profile: Profile, pod: PendingPod, snapshot: Snapshot) -> Choice:
    """Return the node for a pod: of those that pass all filters, the one with the most points.

    Points are the sum of weight times points over scores. Raise SchedulerError if a policy gives an invalid answer.
    """
    snapshot = profile.seen(pod, snapshot)
    passing, refused = filtered(profile, pod, snapshot)
    nodes = np.flatnonzero(passing)
    if not len(nodes):
        return Choice(pod, NOBODY, 0, refused)
    total = np.zeros(len(nodes), np.int64)
    for score in profile.scores:
        if is_neutral(score, pod, snapshot):
            total += score.weight * MOST_POINTS
            continue
        points = checked_points(score, pod, snapshot, nodes)
        total += points if score.weight == 1 else score.weight * points
    return _chosen(profile, pod, nodes, total, refused)


def examine(profile: Profile, pod: PendingPod, snapshot: Snapshot) -> tuple[Choice, Examined]:
    """Return the result of `decide` with all intermediate results."""
    snapshot = profile.seen(pod, snapshot)
    refuser = np.full(len(snapshot.columns.nodes), PASSES, np.int16)
    passing, refused = filtered(profile, pod, snapshot, refuser)
    nodes = np.flatnonzero(passing)
    if not len(nodes):
        return Choice(pod, NOBODY, 0, refused), Examined(snapshot, refuser, nodes, (), np.zeros(0, np.int64))
    points = tuple(checked_points(score, pod, snapshot, nodes) for score in profile.scores)
    total = np.zeros(len(nodes), np.int64)
    for score, some in zip(profile.scores, points, strict=True):
        total += score.weight * some
    return _chosen(profile, pod, nodes, total, refused), Examined(snapshot, refuser, nodes, points, total)


def _chosen(
    profile: Profile, pod: PendingPod, nodes: Ids, total: Longs, refused: tuple[tuple[str, int], ...]
) -> Choice:
    most = total.max()
    best = nodes[total == most]
    place = 0
    if len(best) > 1 and profile.is_drawn(pod):
        place = crc32(f"{profile.seed}/{pod.name}".encode()) % len(best)
    return Choice(pod, int(best[place]), int(most), refused, len(best))


def filtered(
    profile: Profile, pod: PendingPod, snapshot: Snapshot, refuser: npt.NDArray[np.int16] | None = None
) -> tuple[Flags, tuple[tuple[str, int], ...]]:
    """Return which nodes all filters let pass, and how many of the remaining nodes each one refused.

    Write the number of the filter that refuses a node into `refuser`.
    """
    passing: Flags = np.ones(len(snapshot.columns.nodes), np.bool_)
    left, refused = len(passing), []
    for number, one in enumerate(profile.filters):
        if (flags := checked_flags(one, pod, snapshot)) is None:
            continue
        before, passing = passing, passing & flags
        now = int(np.count_nonzero(passing))
        if now != left:
            refused.append((one.name, left - now))
            if refuser is not None:
                refuser[before & ~passing] = number
        left = now
        if not left:
            break
    return passing, tuple(refused)


def checked_flags(one: NamedFilter, pod: PendingPod, snapshot: Snapshot) -> Flags | None:
    """Return which nodes a filter lets pass, None for all; raise SchedulerError unless it answers for each."""
    try:
        flags = one.policy.passes(pod, snapshot)
    except Exception as error:  # a plug-in may raise anything
        raise _raised(one.name, pod, error) from error
    if flags is None:
        return None
    if not isinstance(flags, np.ndarray) or flags.shape != (len(snapshot.columns.nodes),) or flags.dtype != np.bool_:
        raise SchedulerError(f"policy {one.name}: it does not say yes or no of each node")
    return flags


def is_neutral(score: WeightedScore, pod: PendingPod, snapshot: Snapshot) -> bool:
    """Return whether a score reports that all nodes get the most points."""
    says = getattr(score.policy, "is_neutral", None)
    return says is not None and bool(says(pod, snapshot))


def checked_points(score: WeightedScore, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
    """Return a score's points; raise SchedulerError unless there is one for each node, 0 to `MOST_POINTS`."""
    try:
        points = score.policy.points(pod, snapshot, nodes)
    except Exception as error:  # a plug-in may raise anything
        raise _raised(score.name, pod, error) from error
    if not isinstance(points, np.ndarray) or points.shape != nodes.shape or points.dtype.kind not in "iu":
        raise SchedulerError(f"policy {score.name}: pod {pod.name}: it does not give an integer for each node")
    # As unsigned numbers, negative ones are the largest, so that one comparison covers both bounds.
    if points.astype(np.uint64, copy=False).max() > MOST_POINTS:
        wrong = points.min() if points.min() < 0 else points.max()
        raise SchedulerError(f"policy {score.name}: pod {pod.name}: {wrong} points are not 0 to {MOST_POINTS}")
    return points


def _raised(name: str, pod: PendingPod, error: Exception) -> SchedulerError:
    problem = " ".join(f"{type(error).__name__}: {error}".split())
    return SchedulerError(f"policy {name}: pod {pod.name}: it failed: {problem}")
