"""What a policy of tasks is: a filter, which refuses options, or a score, which ranks the others.

As in controller.scheduling.framework.policies, but that what is ranked are options: so many units of a centre's offer.
A policy is a class with `Settings`, a `dataplane.config.Strict`, and is made with one; the same question gives the same
answer. Each is named by an entry point of the group `millrace.policies.tasks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from controller.apiserver.resources.operator_devices import OperatorDevice
from controller.scheduling.dispatch.values import CentresView, Flags, Floats, Longs, Options, PendingTask


@dataclass(frozen=True, eq=False)
class Question:
    """What policies are asked: a task, its options, and for each one when it would begin and how long it takes.

    Columns are seconds: `start_s` from now until units are free (and, for a task that may wait, until the network is
    forecast good), `transfer_s` until what it reads is there (infinite where nothing leads), and the bounds of the
    run time in `options`. `is_good` says whether the option begins in its centre's good hours.
    """

    task: PendingTask
    view: CentresView
    options: Options
    start_s: Floats
    transfer_s: Floats
    is_measured_way: Flags
    is_good: Flags

    @property
    def finish_s(self) -> Floats:
        """Seconds from now until an option has ended, at most."""
        finish: Floats = self.start_s + self.transfer_s + self.options.high
        return finish


class TaskFilter(Protocol):
    """Refuses options."""

    def passes(self, asked: Question) -> Flags | None:
        """Return for each option whether it may be taken, None if all may."""
        ...

    def reason(self, asked: Question, row: int) -> str:
        """Return why an option is refused; it is asked only about those that are."""
        ...


class TaskScore(Protocol):
    """Ranks options."""

    def points(self, asked: Question, rows: Longs) -> Longs:
        """Return the points of each of `rows`, 0 to `MOST_POINTS`: the more, the better."""
        ...

    def reason(self, asked: Question, row: int) -> str:
        """Return what an option's points are from."""
        ...


@runtime_checkable
class AssignsDevices(Protocol):
    """A score that also says where a task's operators are to run; of several the first one's word counts."""

    def operator_devices(self, asked: Question, row: int) -> Sequence[OperatorDevice]:
        """Return the device of each operator for an option; of those that a unit of it has, and the CPU."""
        ...
