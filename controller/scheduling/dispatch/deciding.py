"""The decision about one task: filters, scores, and the chosen option; pure except for the plan's books.

Every refusal or score of a centre has a reason, which is put into words only on request.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.apiserver.resources.operator_devices import OperatorDevice, problem_of
from controller.apiserver.resources.task import UnitChoice
from controller.common.errors import SchedulerError
from controller.scheduling.dispatch.policies import AssignsDevices, Question
from controller.scheduling.dispatch.profiles import NamedTaskFilter, TaskProfile, WeightedTaskScore
from controller.scheduling.dispatch.values import MOST_POINTS, Flags, Longs, Option
from controller.scheduling.framework.explaining import Candidate, Explanation, Refused, Scored

PASSES: Final = -1
NO_UNITS: Final = "no-units"
"""Takes the place of a filter: refuses options whose units are held for an unknown time."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """The decision about a task: an option and the seconds until it begins, or none.

    `refuser` is the number of the filter that refuses an option, or `PASSES`; `rows` are the options that pass, with
    the unweighted `points` of each score, one row per score, and their weighted `total`.
    """

    asked: Question
    row: int | None
    refuser: npt.NDArray[np.int16]
    rows: Longs
    points: tuple[Longs, ...]
    total: Longs

    @classmethod
    def nothing(cls, asked: Question) -> Verdict:
        """Return that a task is not decided yet."""
        none = np.zeros(0, np.int64)
        return cls(asked, None, np.full(len(asked.options), PASSES, np.int16), none, (), none)

    @property
    def option(self) -> Option | None:
        """The chosen option."""
        return None if self.row is None else self.asked.options.items[self.row]

    @property
    def start_s(self) -> float:
        """Seconds until it begins; infinite if unknown."""
        return float("inf") if self.row is None else float(self.asked.start_s[self.row])


def decide(profile: TaskProfile, asked: Question) -> Verdict:
    """Return the option for a task: of those that pass all filters, the one with the most points.

    Ties go to the option that begins first, then to the one with the fewest units, then to the first in order. Options
    whose units are held for an unknown time are left out. Raise SchedulerError if a policy gives an invalid answer.
    """
    number = len(asked.options)
    refuser = np.full(number, PASSES, np.int16)
    passing: Flags = np.ones(number, np.bool_)
    for place, one in enumerate(profile.filters):
        if not passing.any():
            break
        if (flags := _flags(one, asked)) is None:
            continue
        refuser[passing & ~flags] = place
        passing &= flags
    waiting = passing & ~np.isfinite(asked.start_s)
    refuser[waiting] = len(profile.filters)
    rows = np.flatnonzero(passing & ~waiting)
    if not len(rows):
        return Verdict(asked, None, refuser, rows, (), np.zeros(0, np.int64))
    points = tuple(_points(score, asked, rows) for score in profile.scores)
    total = np.zeros(len(rows), np.int64)
    for score, some in zip(profile.scores, points, strict=True):
        total += score.weight * some
    equal = rows[total == total.max()]
    best = equal[np.lexsort((equal, asked.options.units[equal], asked.start_s[equal]))[0]]
    return Verdict(asked, int(best), refuser, rows, points, total)


def explained(profile: TaskProfile, verdict: Verdict, *, most: int = 16) -> Explanation:
    """Return the reasons centre by centre: each with its best option, or the one that got furthest through the filters.

    Covers the best `most` candidates, best first, and as many refused centres.
    """
    asked = verdict.asked
    best = dict(_best_rows(verdict))
    ordered = sorted(best.items(), key=lambda one: (one[1][0] != verdict.row, -verdict.total[one[1][1]]))
    furthest = dict(_refused_rows(verdict, set(best)))
    refused_by = groupby(sorted(_filter_name(profile, verdict, row) for row in furthest.values()))
    option = verdict.option
    return Explanation(
        pod=asked.task.name,
        profile=profile.name,
        node=None if option is None else option.offer[0],
        candidates=tuple(
            Candidate(centre, int(verdict.total[place]), tuple(_scored(profile, verdict, row, place)))
            for centre, (row, place) in ordered[:most]
        ),
        refused=tuple(
            Refused(centre, _filter_name(profile, verdict, row), _why(profile, verdict, row))
            for centre, row in list(furthest.items())[:most]
        ),
        refused_by=tuple((name, len(list(some))) for name, some in refused_by),
        passed=len(best),
        equal=1,
    )


def devices_of(profile: TaskProfile, verdict: Verdict) -> tuple[OperatorDevice, ...]:
    """Return the devices for a task's operators from the first policy of the profile that assigns any; () if none does.

    Also () if the centre picks the units. Raise SchedulerError if a policy gives an invalid answer.
    """
    asked, task = verdict.asked, verdict.asked.task
    score = next((one for one in profile.scores if isinstance(one.policy, AssignsDevices)), None)
    if verdict.row is None or score is None or task.choice is UnitChoice.CENTRE:
        return ()
    assert isinstance(score.policy, AssignsDevices)
    try:
        found = tuple(score.policy.operator_devices(asked, verdict.row))
        has = asked.view.offers[int(asked.options.offer[verdict.row])].devices
        problem = problem_of(found, (one.name for one in task.operators), has)
    except Exception as error:  # a plug-in may raise anything
        raise _raised(score.name, asked, error) from error
    if problem:
        raise SchedulerError(f"policy {score.name}: task {task.name}: {problem}")
    return found


def summary(verdict: Verdict, why: Explanation) -> str:
    """Return the decision as one line."""
    option = verdict.option
    centres = why.passed + sum(count for _, count in why.refused_by)
    if option is None:
        refused = ", ".join(f"{count} by {name}" for name, count in why.refused_by) or "there is no centre"
        return f"none of {centres} centres: {refused}"
    where = f"{option.offer[0]}: {option.units} of {option.offer[1] or 'the units it chooses'}"
    when = "" if verdict.start_s <= 0 else ", once they are free"
    return f"{where}{when}: {option.estimate}; {why.passed} of {centres} centres could run it"


def _best_rows(verdict: Verdict) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield each centre's best option that passes: its row, and its position among those that pass."""
    seen: set[str] = set()
    start_s = verdict.asked.start_s[verdict.rows]
    units = verdict.asked.options.units[verdict.rows]
    for place in np.lexsort((verdict.rows, units, start_s, -verdict.total)).tolist():
        row = int(verdict.rows[place])
        centre = verdict.asked.options.items[row].offer[0]
        if centre not in seen:
            seen.add(centre)
            yield centre, (row, place)


def _refused_rows(verdict: Verdict, others: set[str]) -> Iterator[tuple[str, int]]:
    """Yield the option that got furthest for each centre without a passing option."""
    refused = np.flatnonzero(verdict.refuser != PASSES)
    seen = set(others)
    for row in refused[np.argsort(-verdict.refuser[refused], kind="stable")].tolist():
        centre = verdict.asked.options.items[row].offer[0]
        if centre not in seen:
            seen.add(centre)
            yield centre, row


def _filter_name(profile: TaskProfile, verdict: Verdict, row: int) -> str:
    number = int(verdict.refuser[row])
    return NO_UNITS if number == len(profile.filters) else profile.filters[number].name


def _why(profile: TaskProfile, verdict: Verdict, row: int) -> str:
    number, asked = int(verdict.refuser[row]), verdict.asked
    if number == len(profile.filters):
        option = asked.options.items[row]
        return f"{option.units} of {option.offer[1] or 'its units'} are not free, and nobody knows when they are"
    return profile.filters[number].policy.reason(asked, row)


def _scored(profile: TaskProfile, verdict: Verdict, row: int, place: int) -> Iterator[Scored]:
    for score, points in zip(profile.scores, verdict.points, strict=True):
        yield Scored(score.name, score.weight, int(points[place]), score.policy.reason(verdict.asked, row))


def _flags(one: NamedTaskFilter, asked: Question) -> Flags | None:
    try:
        flags = one.policy.passes(asked)
    except Exception as error:  # a plug-in may raise anything
        raise _raised(one.name, asked, error) from error
    if flags is None:
        return None
    if not isinstance(flags, np.ndarray) or flags.shape != (len(asked.options),) or flags.dtype != np.bool_:
        raise SchedulerError(f"policy {one.name}: it does not say yes or no of each option")
    return flags


def _points(score: WeightedTaskScore, asked: Question, rows: Longs) -> Longs:
    try:
        points = score.policy.points(asked, rows)
    except Exception as error:  # a plug-in may raise anything
        raise _raised(score.name, asked, error) from error
    if not isinstance(points, np.ndarray) or points.shape != rows.shape or points.dtype.kind not in "iu":
        raise SchedulerError(
            f"policy {score.name}: task {asked.task.name}: it does not give an integer for each option"
        )
    if points.min() < 0 or points.max() > MOST_POINTS:
        wrong = points.min() if points.min() < 0 else points.max()
        raise SchedulerError(f"policy {score.name}: task {asked.task.name}: {wrong} points are not 0 to {MOST_POINTS}")
    return points.astype(np.int64, copy=False)


def _raised(name: str, asked: Question, error: Exception) -> SchedulerError:
    problem = " ".join(f"{type(error).__name__}: {error}".split())
    return SchedulerError(f"policy {name}: task {asked.task.name}: it failed: {problem}")
