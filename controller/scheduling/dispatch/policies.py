"""Task policies: filters, which refuse options, and scores, which rank the others.

As in controller.scheduling.framework.policies, except that policies rank options: so many units of a centre's offer. A
policy is a class with `Settings`, a `dataplane.config.Strict`, and is constructed with one; the same question gives the
same answer. Each is registered as an entry point of the group `millrace.policies.tasks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from controller.apiserver.resources.operator_devices import OperatorDevice
from controller.scheduling.dispatch.values import CentresView, Flags, Floats, Longs, Options, PendingTask


@dataclass(frozen=True, eq=False)
class Question:
    """The input of policies: a task, its options, and the start and duration of each.

    Columns are seconds: `start_s` from now until units are free (and, for a task that may wait, until the network is
    forecast good), `transfer_s` until its input has arrived (infinite if unreachable), and the bounds of the run time
    in `options`. `is_good` says whether the option begins in its centre's good hours.
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
        """Upper bound of the seconds from now until an option has ended."""
        finish: Floats = self.start_s + self.transfer_s + self.options.high
        return finish


class TaskFilter(Protocol):
    """Refuses options."""

    def passes(self, asked: Question) -> Flags | None:
        """Return whether each option is allowed, None if all are."""
        ...

    def reason(self, asked: Question, row: int) -> str:
        """Return why an option is refused; called only for refused options."""
        ...


class TaskScore(Protocol):
    """Ranks options."""

    def points(self, asked: Question, rows: Longs) -> Longs:
        """Return the points of each of `rows`, 0 to `MOST_POINTS`: the more, the better."""
        ...

    def reason(self, asked: Question, row: int) -> str:
        """Return the basis of an option's points."""
        ...


@runtime_checkable
class AssignsDevices(Protocol):
    """A score that also assigns devices to a task's operators; the first of several decides."""

    def operator_devices(self, asked: Question, row: int) -> Sequence[OperatorDevice]:
        """Return the device of each operator for an option: one of the devices of a unit, or the CPU."""
        ...
