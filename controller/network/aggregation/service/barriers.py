"""Barriers of running jobs: all members hold at the same all-reduce while workers join, or the job moves.

The members begin no more all-reduces, report how many they have begun, finish the highest of these, and report the item
with which they continue. Newcomers begin there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, MutableMapping

from controller.network.aggregation.service.job_state import (
    Barrier,
    InstalledJob,
    JobState,
    Join,
    Move,
    Phase,
    WorkerState,
)
from controller.network.aggregation.service.outbox import Outbox
from dataplane.allreduce.jobs.messages import Refused
from dataplane.clock import NS_PER_S

Seats = MutableMapping[str, tuple[JobState, WorkerState]]
"""Workers with their jobs, by token."""


class Barriers:
    """Carries jobs through their barriers; each step follows from the job's state.

    One that lasts longer than `hold_ns` is for its caller to abandon.
    """

    def __init__(self, outbox: Outbox, seats: Seats, hold_ns: int) -> None:
        self._outbox, self._seats, self._hold_ns = outbox, seats, hold_ns
        self._serials = itertools.count(1)

    def begin_numbers(self, after: int) -> None:
        """Give barriers the numbers after this one."""
        self._serials = itertools.count(after + 1)

    def begin(self, job: JobState, now_ns: int) -> bool:
        """Have all members hold, if a worker is to join or the job is to move; return whether they are to."""
        if job.move_reason is None and not job.joiners:
            return False
        job.phase, job.barrier = Phase.HELD, Barrier(next(self._serials), now_ns + self._hold_ns)
        for worker in job.members.values():
            worker.count = worker.next_item = None
        self._outbox.show_all(job, now_ns)
        return True

    def advance(self, job: JobState, barrier: Barrier, installed: InstalledJob, now_ns: int) -> bool:
        """Take the next step of a held job without a pending change; return whether there was one."""
        if barrier.count is None:
            return self._agree(job, barrier, now_ns)
        return self._pass(job, barrier, installed, now_ns)

    def _agree(self, job: JobState, barrier: Barrier, now_ns: int) -> bool:
        counts = [worker.count for worker in job.remaining.values() if worker.count is not None]
        if len(counts) < len(job.members):
            return False
        barrier.count = max(counts)
        self._outbox.show_all(job, now_ns)
        return True

    def _pass(self, job: JobState, barrier: Barrier, installed: InstalledJob, now_ns: int) -> bool:
        """Have all members finish the same all-reduce; then make the pending changes and continue."""
        items = {worker.next_item for worker in job.members.values()}
        if None in items:
            return False
        if len(items) > 1:
            self.refuse(job, tuple(job.joiners), "its workers do not reduce items of the same sizes in the same order")
            self._release(job, now_ns)
        elif job.joiners:
            barrier.item = items.pop() or 0
            worker = next(iter(job.joiners.values()))
            self._outbox.change(job, Join(job.key, installed.number, worker.worker, worker.hello.token))
        elif job.move_reason is not None:
            self._outbox.change(job, Move(job.key, installed.number))
        else:
            self._release(job, now_ns)
        return True

    def joined(self, job: JobState, change: Join, problem: str | None) -> None:
        """Note that the switches add up for a newcomer, or cannot, for the given reason."""
        host = change.worker.host
        worker = job.joiners.get(host)
        if worker is None or worker.hello.token != change.token:
            # Gone meanwhile: it waits to be removed from the switches, if it is in them.
            if problem is not None:
                job.removals.remove(host)
        elif problem is not None:
            self.refuse(job, [host], problem)
        else:
            self._make_member(job, host)

    def _make_member(self, job: JobState, host: str) -> None:
        """Make a joiner a member that begins where the others continue."""
        barrier = job.barrier
        assert barrier is not None
        assert barrier.count is not None
        worker = job.members[host] = job.joiners.pop(host)
        worker.next_item, worker.count, worker.start = barrier.item, barrier.count, (barrier.item, barrier.count)
        barrier.joined.append(host)
        job.size = max(job.size, len(job.members))

    def abandon(self, job: JobState, now_ns: int) -> None:
        """Continue without newcomers or a move, as members are late."""
        barrier = job.barrier
        assert barrier is not None
        late = [
            host
            for host, remaining in job.remaining.items()
            if (remaining.count if barrier.count is None else remaining.next_item) is None
        ]
        what = "report what it had started" if barrier.count is None else f"finish {job.item_name} {barrier.count}"
        reason = f"{' '.join(sorted(late)) or 'nobody'} did not {what} within {self._hold_ns / NS_PER_S:g} s"
        self.refuse(job, tuple(job.joiners), reason)
        job.move_reason = None
        self._release(job, now_ns)

    def _release(self, job: JobState, now_ns: int) -> None:
        barrier = job.barrier
        assert barrier is not None
        job.phase, job.barrier = Phase.RUNNING, None
        job.newcomers, job.newcomers_at = tuple(barrier.joined), barrier.number
        for host in barrier.joined:
            if host in job.members:
                job.members[host].newcomers = job.newcomers
                self._outbox.admit(job, job.members[host])
        self._outbox.show_all(job, now_ns)

    def refuse(self, job: JobState, hosts: Iterable[str], why: str) -> None:
        """Refuse workers that wait to join a running job."""
        for host in hosts:
            worker = job.joiners.pop(host)
            self._seats.pop(worker.hello.token, None)
            self._outbox.tell(worker.hello.token, Refused(f"job {job.name}: {why}"))
