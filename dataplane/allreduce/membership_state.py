"""A worker's state in a job: the job service's messages in, commands for its engine out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from dataplane.allreduce.jobs.messages import Admitted, Downward, Ended, Refused, View, Waiting

_MOST_NAMED: Final = 8
"""Hosts that a line of the log names at most."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The worker is a member: all-reduce with these settings."""

    admitted: Admitted


@dataclass(frozen=True, slots=True)
class EnterBarrier:
    """Begin no more, for `limit_ns` at most, and say how many were begun."""

    barrier: int
    limit_ns: int


@dataclass(frozen=True, slots=True)
class RunUntil:
    """Finish so many, and say where the next one begins."""

    barrier: int
    count: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Begin again; the aggregator, number and nonce are given where they are others than before."""

    epoch: int
    contributors: int
    aggregator: str | None = None
    number: int | None = None
    nonce: int | None = None
    newcomers: tuple[str, ...] = ()
    """Who has come in."""


@dataclass(frozen=True, slots=True)
class SetEpoch:
    """Members have changed: continue in this epoch, in which so many contribute."""

    epoch: int
    contributors: int


@dataclass(frozen=True, slots=True)
class ReportWhenComplete:
    """Say when there are all results before an item, or nothing more is to come."""

    item: int


@dataclass(frozen=True, slots=True)
class Fail:
    """There is no job for the worker; `admitted`: there was one, `removed`: it continues for the others."""

    reason: str
    admitted: bool
    removed: bool


def describe_members(before: tuple[str, ...], after: tuple[str, ...]) -> str | None:
    """Return in words who has come and gone, and how many a mean is over; None where nobody has."""
    gone, come = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    if not gone and not come:
        return None
    told = [f"{_named(gone)} {'is no longer a member' if len(gone) == 1 else 'are no longer members'}"] if gone else []
    told += [f"{_named(come)} {'is a member' if len(come) == 1 else 'are members'}"] if come else []
    return f"{', '.join(told)}: a mean is over {len(after)} worker{'' if len(after) == 1 else 's'}"


def _named(hosts: list[str]) -> str:
    more = len(hosts) - _MOST_NAMED
    return " ".join(hosts[:_MOST_NAMED]) + (f" and {more} others" if more > 0 else "")


Command: TypeAlias = Begin | EnterBarrier | RunUntil | Resume | SetEpoch | ReportWhenComplete | Fail


@dataclass(slots=True)
class MembershipState:
    """A worker's view of its job; repeated messages, as after a broken connection, are repeated orders at most."""

    present: tuple[str, ...] = ()
    """The workers that have joined a job that has not begun."""
    members: tuple[str, ...] = ()
    admitted: Admitted | None = None
    """How the worker was admitted, with number, aggregator and epoch as they are now."""
    place: tuple[int, str] = (0, "")
    """The number and the aggregator that the worker sends to."""
    barrier: int | None = None
    is_over: bool = False

    def take(self, message: Downward) -> list[Command]:
        """Return what is to be done about a message, in order."""
        if self.is_over:
            return []
        match message:
            case Waiting():
                self.present = message.present
                return []
            case Admitted():
                return self._begin(message)
            case View():
                return self._look(message)
            case Refused():
                return self._fail(message.reason, removed=False)
            case Ended():
                return self._fail(message.reason, removed=message.removed)

    def overdue(self) -> list[Command]:
        """Return what is to be done when a barrier was not ended in time.

        Going on does no harm: nothing that is begun alone can be complete before the others come to it.
        """
        if self.barrier is None or self.admitted is None:
            return []
        self.barrier = None
        return [Resume(self.admitted.epoch, self.admitted.contributors)]

    def _begin(self, message: Admitted) -> list[Command]:
        if self.admitted is not None:
            return []
        self.admitted, self.members = message, message.members
        self.place = message.number, message.aggregator
        return [Begin(message)]

    def _look(self, view: View) -> list[Command]:
        before = self.admitted
        if before is None:
            return []
        self.members = view.members
        self.admitted = replace(
            before,
            number=view.number,
            aggregator=view.aggregator,
            root=view.root,
            epoch=view.epoch,
            nonce=view.nonce,
            contributors=view.contributors,
        )
        commands: list[Command] = []
        if view.barrier is None or view.barrier.number != self.barrier:
            commands += self._leave_hold(view)
        if view.epoch != before.epoch and not commands:
            commands.append(SetEpoch(view.epoch, view.contributors))
        if view.barrier is not None:
            if self.barrier is None or view.barrier.count is None:
                commands.append(EnterBarrier(view.barrier.number, view.barrier.limit_ns))
            self.barrier = view.barrier.number
            if view.barrier.count is not None:
                commands.append(RunUntil(view.barrier.number, view.barrier.count))
        if view.leaving is not None:
            commands.append(ReportWhenComplete(view.leaving))
        return commands

    def _leave_hold(self, view: View) -> list[Command]:
        """Return how to continue after the barrier that the worker is at, or where the job has moved to."""
        place = view.number, view.aggregator
        is_moved, self.place = place != self.place, place
        if is_moved:
            self.barrier = None
            where = view.aggregator, view.number, view.nonce
            return [Resume(view.epoch, view.contributors, *where, view.newcomers)]
        if self.barrier is None:
            return []
        self.barrier = None
        return [Resume(view.epoch, view.contributors, newcomers=view.newcomers)]

    def _fail(self, reason: str, *, removed: bool) -> list[Command]:
        self.is_over = True
        return [Fail(reason, admitted=self.admitted is not None, removed=removed)]
