"""Explanations of a task's centre: one option represents each centre."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from controller.scheduling.framework.deciding import PASSES
from controller.scheduling.framework.explaining import Explanation, refusals_in_words, scores_in_words
from controller.scheduling.framework.policies import Ids
from controller.scheduling.tasks.deciding import Verdict
from controller.scheduling.tasks.profiles import TaskProfile


def explained(profile: TaskProfile, verdict: Verdict, *, most: int = 16) -> Explanation:
    """Return the reasons centre by centre: each with its best option, or the one that got furthest through the filters.

    Covers the best `most` candidates, best first, and as many refused centres.
    """
    task, timed, examined = verdict.task, verdict.timed, verdict.examined

    def centre_of(row: int) -> str:
        return timed.options.items[row].offer[0]

    best = dict(_best_places(verdict))
    ordered = sorted(best.values(), key=lambda at: (examined.passing[at] != verdict.row, -examined.total[at]))
    furthest = np.array(list(_furthest_rows(verdict, set(best))), np.int64)
    refused_by = groupby(sorted(profile.filters[number].name for number in examined.refuser[furthest].tolist()))
    counts = tuple((name, len(list(refused))) for name, refused in refused_by)
    option, places = verdict.option, np.array(ordered[:most], np.int64)
    return Explanation(
        subject=task.name,
        profile=profile.name,
        choice=None if option is None else option.offer[0],
        candidates=tuple(scores_in_words(profile, task, examined, places, centre_of)) if len(places) else (),
        refused=tuple(refusals_in_words(profile, task, examined, furthest[:most], centre_of)),
        refused_by=counts,
        passed=len(best),
        equal=1,
        summary=_summary(verdict, len(best), counts),
    )


def _summary(verdict: Verdict, passed: int, refused_by: tuple[tuple[str, int], ...]) -> str:
    option, centres = verdict.option, passed + sum(count for _, count in refused_by)
    if option is None and passed:
        refused = "".join(f", {count} refused by {name}" for name, count in refused_by)
        return (
            f"{verdict.task.centres} centres are needed at the same time, {passed} of {centres} could run it{refused}"
        )
    if option is None:
        refused = ", ".join(f"{count} by {name}" for name, count in refused_by) or "there are none"
        return f"none of {centres} centres: {refused}"
    chosen = [verdict.timed.options.items[row] for row in verdict.rows]
    where = " and ".join(
        f"{each.offer[0]}: {each.units} of {each.offer[1] or 'the units it chooses'}" for each in chosen
    )
    when = "" if verdict.start_s <= 0 else ", once they are free"
    estimate = str(option.estimate)
    if not option.estimate.is_known:
        estimate = f"its run is the first measurement there: {'; '.join(option.estimate.reasons)}"
    return f"{where}{when}: {estimate}; {passed} of {centres} centres could run it"


def _best_places(verdict: Verdict) -> Iterator[tuple[str, int]]:
    """Yield each centre with the position of its best option among those that pass."""
    examined, timed = verdict.examined, verdict.timed
    rows = examined.passing
    seen: set[str] = set()
    for position in np.lexsort((rows, timed.options.units[rows], timed.start_s[rows], -examined.total)).tolist():
        centre = timed.options.items[int(rows[position])].offer[0]
        if centre not in seen:
            seen.add(centre)
            yield centre, position


def _furthest_rows(verdict: Verdict, others: set[str]) -> Iterator[int]:
    """Yield the option that got furthest of each centre not among the others."""
    refuser: Ids = verdict.examined.refuser.astype(np.int64)
    refused, seen = np.flatnonzero(refuser != PASSES), set(others)
    for row in refused[np.argsort(-refuser[refused], kind="stable")].tolist():
        centre = verdict.timed.options.items[row].offer[0]
        if centre not in seen:
            seen.add(centre)
            yield row
