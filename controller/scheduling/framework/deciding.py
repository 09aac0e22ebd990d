"""The decision about one subject: filters, scores, and the chosen candidate. Pure; `explaining` gives the reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic

import numpy as np
import numpy.typing as npt

from controller.common.errors import SchedulerError
from controller.scheduling.framework.policies import MOST_POINTS, C, Flags, Ids, Longs, S
from controller.scheduling.framework.profiles import NamedFilter, Profile, WeightedScore

NOBODY: Final = -1
PASSES: Final = -1
"""Value of `Examined.refuser` for a candidate that no filter refuses."""

RefusedCounts = tuple[tuple[str, int], ...]
"""Filters, each with the number of candidates that it refused of those left by the filters before it."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice(Generic[S]):
    """A subject and the number of its candidate, `NOBODY` if none is possible.

    `refused` counts the refused candidates by filter. `equal` counts the candidates with the most points, one of which
    the profile picked.
    """

    subject: S
    candidate: int
    points: int
    refused: RefusedCounts
    equal: int = 0

    @property
    def is_placed(self) -> bool:
        """True if a candidate was found."""
        return self.candidate != NOBODY


@dataclass(frozen=True, slots=True, eq=False)
class Examined(Generic[C]):
    """The policies' results for all candidates, as columns: reasons are put into words only on request.

    `candidates` are what they saw; `refuser` is the number of the filter that refuses a candidate, or `PASSES`;
    `passing` are those that pass, with the unweighted `points` of each score, one row per score, and their weighted
    `total`.
    """

    candidates: C
    refuser: npt.NDArray[np.int16]
    passing: Ids
    points: tuple[Longs, ...]
    total: Longs


def decide(profile: Profile[S, C], subject: S, candidates: C) -> Choice[S]:
    """Return the candidate for a subject: of those that pass all filters, the one with the most points.

    Points are the sum of weight times points over scores. Raise SchedulerError if a policy gives an invalid answer.
    """
    candidates = profile.seen(subject, candidates)
    flags, refused = filtered(profile, subject, candidates)
    passing = np.flatnonzero(flags)
    if not len(passing):
        return Choice(subject, NOBODY, 0, refused)
    total = np.zeros(len(passing), np.int64)
    for score in profile.scores:
        if is_neutral(score, subject, candidates):
            total += score.weight * MOST_POINTS
            continue
        points = checked_points(profile, score, subject, candidates, passing)
        total += points if score.weight == 1 else score.weight * points
    return _chosen(profile, subject, candidates, passing=passing, total=total, refused=refused)


def examine(profile: Profile[S, C], subject: S, candidates: C) -> tuple[Choice[S], Examined[C]]:
    """Return the result of `decide` with all intermediate results."""
    candidates = profile.seen(subject, candidates)
    refuser = np.full(len(candidates), PASSES, np.int16)
    flags, refused = filtered(profile, subject, candidates, refuser)
    passing = np.flatnonzero(flags)
    total = np.zeros(len(passing), np.int64)
    if not len(passing):
        return Choice(subject, NOBODY, 0, refused), Examined(candidates, refuser, passing, (), total)
    points = tuple(checked_points(profile, score, subject, candidates, passing) for score in profile.scores)
    for score, row in zip(profile.scores, points, strict=True):
        total += score.weight * row
    chosen = _chosen(profile, subject, candidates, passing=passing, total=total, refused=refused)
    return chosen, Examined(candidates, refuser, passing, points, total)


def _chosen(
    profile: Profile[S, C], subject: S, candidates: C, *, passing: Ids, total: Longs, refused: RefusedCounts
) -> Choice[S]:
    most = total.max()
    best = passing[total == most]
    picked = int(best[0]) if len(best) == 1 else profile.pick(subject, candidates, best)
    return Choice(subject, picked, int(most), refused, len(best))


def filtered(
    profile: Profile[S, C], subject: S, candidates: C, refuser: npt.NDArray[np.int16] | None = None
) -> tuple[Flags, RefusedCounts]:
    """Return which candidates pass all filters, and how many of the remaining ones each filter refused.

    Write the number of the filter that refuses a candidate to `refuser`.
    """
    passing: Flags = np.ones(len(candidates), np.bool_)
    left, refused = len(passing), []
    for number, named in enumerate(profile.filters):
        if not left:
            break
        if (flags := checked_flags(profile, named, subject, candidates)) is None:
            continue
        before, passing = passing, passing & flags
        now = int(np.count_nonzero(passing))
        if now != left:
            refused.append((named.name, left - now))
            if refuser is not None:
                refuser[before & ~passing] = number
        left = now
    return passing, tuple(refused)


def checked_flags(profile: Profile[S, C], named: NamedFilter[S, C], subject: S, candidates: C) -> Flags | None:
    """Return which candidates pass a filter, None for all; raise SchedulerError unless it answers for each."""
    try:
        flags = named.policy.passes(subject, candidates)
    except Exception as error:  # a plug-in may raise anything
        raise profile.failed(named.name, subject, error) from error
    if flags is None:
        return None
    if not isinstance(flags, np.ndarray) or flags.shape != (len(candidates),) or flags.dtype != np.bool_:
        raise SchedulerError(f"policy {named.name}: must return one boolean per {profile.kind.candidate}")
    return flags


def is_neutral(score: WeightedScore[Any, Any], subject: S, candidates: C) -> bool:
    """Return whether a score reports that all candidates get the most points."""
    answer = getattr(score.policy, "is_neutral", None)
    return answer is not None and bool(answer(subject, candidates))


def checked_points(
    profile: Profile[S, C], score: WeightedScore[S, C], subject: S, candidates: C, numbers: Ids
) -> Longs:
    """Return a score's points; raise SchedulerError unless there is one for each candidate, 0 to `MOST_POINTS`."""
    try:
        points = score.policy.points(subject, candidates, numbers)
    except Exception as error:  # a plug-in may raise anything
        raise profile.failed(score.name, subject, error) from error
    if not isinstance(points, np.ndarray) or points.shape != numbers.shape or points.dtype.kind not in "iu":
        raise profile.error(score.name, subject, f"must return one integer per {profile.kind.candidate}")
    # As unsigned numbers, negative ones are the largest, so that one comparison covers both bounds.
    if points.astype(np.uint64, copy=False).max() > MOST_POINTS:
        wrong = points.min() if points.min() < 0 else points.max()
        raise profile.error(score.name, subject, f"{wrong} points are not between 0 and {MOST_POINTS}")
    return points
