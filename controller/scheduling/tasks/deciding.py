"""The decision about one task: the option to take, and the devices of its operators. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from controller.apiserver.resources.operator_devices import OperatorDevice
from controller.apiserver.resources.task import UnitChoice
from controller.scheduling.framework.deciding import NOBODY, PASSES, Choice, Examined, examine
from controller.scheduling.tasks.profiles import TaskProfile
from controller.scheduling.tasks.values import Option, PendingTask, TimedOptions


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """The decision about a task with all intermediate results: an option and the seconds until it begins, or none.

    A task of several centres has an option at each, `others` besides the first; it begins when all can.
    """

    choice: Choice[PendingTask]
    examined: Examined[TimedOptions]
    others: tuple[int, ...] = ()

    @classmethod
    def nothing(cls, task: PendingTask, timed: TimedOptions) -> Verdict:
        """Return the verdict on a task that is not decided yet."""
        none = np.zeros(0, np.int64)
        return cls(Choice(task, NOBODY, 0, ()), Examined(timed, np.full(len(timed), PASSES, np.int16), none, (), none))

    @property
    def task(self) -> PendingTask:
        """The task."""
        return self.choice.subject

    @property
    def timed(self) -> TimedOptions:
        """Its options."""
        return self.examined.candidates

    @property
    def row(self) -> int | None:
        """Row of the chosen option, None if there is none."""
        return self.choice.candidate if self.choice.is_placed else None

    @property
    def option(self) -> Option | None:
        """The chosen option."""
        return None if self.row is None else self.timed.options.items[self.row]

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of all chosen options."""
        return () if self.row is None else (self.row, *self.others)

    @property
    def start_s(self) -> float:
        """Seconds until it begins at all its centres; infinite if unknown."""
        return max((float(self.timed.start_s[row]) for row in self.rows), default=float("inf"))

    @property
    def finish_s(self) -> float:
        """Upper bound of the seconds until it has ended everywhere; NaN or infinite if unknown."""
        timed = self.timed
        return self.start_s + max(
            (float(timed.transfer_s[row] + timed.options.high[row]) for row in self.rows), default=float("inf")
        )


def decide(profile: TaskProfile, task: PendingTask, timed: TimedOptions) -> Verdict:
    """Return the option for a task: of those that pass all filters, the one with the most points.

    A task of several centres gets the best option of each of as many centres, or none at all. Raise SchedulerError if a
    policy gives an invalid answer.
    """
    choice, examined = examine(profile, task, timed)
    if task.centres == 1 or not choice.is_placed:
        return Verdict(choice, examined)
    rows = _best_of_each(choice.candidate, examined)
    if len(rows) < task.centres:
        return Verdict(replace(choice, candidate=NOBODY), examined)
    return Verdict(choice, examined, tuple(rows[1 : task.centres]))


def _best_of_each(first: int, examined: Examined[TimedOptions]) -> list[int]:
    """Return the best option of each centre, the best centres first, and the chosen one before all."""
    timed, rows = examined.candidates, examined.passing
    order = np.lexsort((rows, timed.options.units[rows], timed.start_s[rows], -examined.total, rows != first))
    best: dict[str, int] = {}
    for row in rows[order].tolist():
        best.setdefault(timed.options.items[row].offer[0], row)
    return list(best.values())


def devices_of(profile: TaskProfile, verdict: Verdict) -> tuple[OperatorDevice, ...]:
    """Return the devices for a task's operators; () if no policy of the profile assigns any.

    Also () if the centre picks the units. Raise SchedulerError if a policy gives an invalid answer.
    """
    task, timed, row = verdict.task, verdict.timed, verdict.row
    if row is None or task.choice is UnitChoice.CENTRE:
        return ()
    operators, kinds = [operator.name for operator in task.operators], tuple(timed.offer(row).devices)
    return profile.assigned(task, timed, row, operators=operators, devices=kinds)
