"""The decision about one task: the option to take, and the devices of its operators. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.apiserver.resources.operator_devices import OperatorDevice
from controller.apiserver.resources.task import UnitChoice
from controller.scheduling.framework.deciding import NOBODY, PASSES, Choice, Examined, examine
from controller.scheduling.tasks.profiles import TaskProfile
from controller.scheduling.tasks.values import Option, PendingTask, TimedOptions


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """The decision about a task with all intermediate results: an option and the seconds until it begins, or none."""

    choice: Choice[PendingTask]
    examined: Examined[TimedOptions]

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
    def start_s(self) -> float:
        """Seconds until it begins; infinite if unknown."""
        return float("inf") if self.row is None else float(self.timed.start_s[self.row])


def decide(profile: TaskProfile, task: PendingTask, timed: TimedOptions) -> Verdict:
    """Return the option for a task: of those that pass all filters, the one with the most points.

    Raise SchedulerError if a policy gives an invalid answer.
    """
    return Verdict(*examine(profile, task, timed))


def devices_of(profile: TaskProfile, verdict: Verdict) -> tuple[OperatorDevice, ...]:
    """Return the devices for a task's operators; () if no policy of the profile assigns any.

    Also () if the centre picks the units. Raise SchedulerError if a policy gives an invalid answer.
    """
    task, timed, row = verdict.task, verdict.timed, verdict.row
    if row is None or task.choice is UnitChoice.CENTRE:
        return ()
    operators, kinds = [operator.name for operator in task.operators], tuple(timed.offer(row).devices)
    return profile.assigned(task, timed, row, operators=operators, devices=kinds)
