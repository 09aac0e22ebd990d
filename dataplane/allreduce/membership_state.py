"""A worker's state in a job: the job service's messages in, commands for its engine out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from dataplane.allreduce.jobs.messages import Admitted, Downward, Ended, Refused, View, Waiting

_MOST_NAMED: Final = 8
"""Maximum number of hosts named in a log line."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The worker is a member: all-reduce with these settings."""

    admitted: Admitted


@dataclass(frozen=True, slots=True)
class EnterBarrier:
    """Stop starting all-reduces, for at most `limit_ns`, and report how many were started."""

    barrier: int
    limit_ns: int


@dataclass(frozen=True, slots=True)
class RunUntil:
    """Finish this many, and report where the next one begins."""

    barrier: int
    count: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume; the aggregator, number and nonce are given if they have changed."""

    epoch: int
    contributors: int
    aggregator: str | None = None
    number: int | None = None
    nonce: int | None = None
    newcomers: tuple[str, ...] = ()
    """Workers that have joined."""


@dataclass(frozen=True, slots=True)
class SetEpoch:
    """Membership has changed: continue in this epoch, with this many contributors."""

    epoch: int
    contributors: int


@dataclass(frozen=True, slots=True)
class ReportWhenComplete:
    """Report when all results before an item exist, or nothing more will come."""

    item: int


@dataclass(frozen=True, slots=True)
class Fail:
    """The worker has no job; `admitted`: it had one, `removed`: the job continues for the others."""

    reason: str
    admitted: bool
    removed: bool


def describe_members(before: tuple[str, ...], after: tuple[str, ...]) -> str | None:
    """Describe who joined and left, and how many workers a mean covers; None if nobody did."""
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
    """A worker's view of its job; repeated messages, as after a broken connection, at most repeat commands."""

    present: tuple[str, ...] = ()
    """Workers that have joined a job that has not started."""
    members: tuple[str, ...] = ()
    admitted: Admitted | None = None
    """Terms of the worker's admission, with current number, aggregator and epoch."""
    place: tuple[int, str] = (0, "")
    """The number and aggregator that the worker sends to."""
    barrier: int | None = None
    finished: int | None = None
    """Barrier at which the worker has reported to have finished everything."""
    is_over: bool = False

    @property
    def main_server(self) -> str | None:
        """The main server's host, while it is a member of the job."""
        return None if self.admitted is None else self.admitted.main_server

    def take(self, message: Downward) -> list[Command]:
        """Return the commands that follow from a message, in order."""
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
        """Return the commands that follow when a barrier was not ended in time.

        Continuing does no harm: nothing that one worker starts can complete before the others reach it. Unless it has
        finished: then the job may have changed, and others continue with newcomers, or elsewhere.
        """
        if self.barrier is None or self.admitted is None or self.finished == self.barrier:
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
            main_server=view.main_server,
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
        """Return how to continue after the worker's barrier, or where the job has moved to."""
        target = view.number, view.aggregator
        is_moved, self.place = target != self.place, target
        # After a restart of the service they may be those of an earlier barrier.
        newcomers = view.newcomers if view.newcomers_at in (None, self.barrier) else ()
        if is_moved:
            self.barrier = None
            where = view.aggregator, view.number, view.nonce
            return [Resume(view.epoch, view.contributors, *where, newcomers)]
        if self.barrier is None:
            return []
        self.barrier = None
        return [Resume(view.epoch, view.contributors, newcomers=newcomers)]

    def _fail(self, reason: str, *, removed: bool) -> list[Command]:
        self.is_over = True
        return [Fail(reason, admitted=self.admitted is not None, removed=removed)]
