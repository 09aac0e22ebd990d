"""Membership of jobs: workers meet by job name, are removed when silent, and rejoin between all-reduces.

A state machine without sockets and clocks: events come with their time, and it returns the actions to take. A worker's
token identifies it. Each job has at most one change of the switches in progress; the next action is computed from the
job's state after each event, so that nothing depends on the order of events.

A worker that joins a running job waits until all members hold at a barrier (barriers.py).

Jobs of an earlier controller are adopted: their workers are away, and prove by their tokens who they are when they
return. Until then nobody takes a seat of theirs.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

from controller.network.aggregation.service.admission import problem_of
from controller.network.aggregation.service.barriers import Barriers
from controller.network.aggregation.service.job_state import (
    Action,
    Change,
    Create,
    End,
    InstalledJob,
    JobState,
    Join,
    Move,
    Phase,
    Remove,
    WorkerState,
)
from controller.network.aggregation.service.main_servers import (
    adopt_terms,
    is_missing,
    present,
    server_of,
    with_server,
)
from controller.network.aggregation.service.outbox import Outbox
from controller.network.aggregation.service.seats import JobSeats, ended, restored
from controller.network.aggregation.service.settings import JobSettings
from dataplane.allreduce.jobs.messages import (
    Arrived,
    Completed,
    Downward,
    Ended,
    Finished,
    Heartbeat,
    Hello,
    Leave,
    Refused,
    Waiting,
)
from dataplane.wire.aggregation import age

_GENERATION_BITS: Final = 32


class Rendezvous:
    """All jobs and their workers; each method takes an event and returns the actions to take."""

    def __init__(self, settings: JobSettings, hosts: Collection[str], change_ns: int) -> None:
        """Take the topology's hosts, and the longest time that a change of the switches may take."""
        self._settings, self._hosts = settings, frozenset(hosts)
        self._jobs: dict[int, JobState] = {}
        self._workers: dict[str, tuple[JobState, WorkerState]] = {}
        self._latecomers: dict[str, tuple[Hello, int]] = {}
        """Workers that wait for the seat of one that may return, and until when, by token."""
        self._serials = itertools.count(1)
        self._outbox = Outbox(settings.lease_ns, change_ns)
        self._barriers = Barriers(self._outbox, self._workers, settings.hold_ns)
        self.ended: deque[JobState] = deque(maxlen=settings.kept)
        """Jobs that have ended, the newest last."""

    @property
    def jobs(self) -> tuple[JobState, ...]:
        """Return jobs that have not ended, the oldest first."""
        return tuple(job for job in self._jobs.values() if job.phase is not Phase.ENDED)

    def adopt(
        self,
        generation: int,
        jobs: Iterable[tuple[JobSeats, InstalledJob]],
        lost: Iterable[tuple[JobSeats, str]],
        now_ns: int,
    ) -> list[Action]:
        """Take over the jobs of earlier controllers, of which there were so many; `lost` cannot be continued."""
        # Barriers of another controller have other numbers: a worker may still be held by one of them.
        self._barriers.begin_numbers(generation << _GENERATION_BITS)
        until_ns = now_ns + self._settings.effective_return_ns
        for seats, installed in jobs:
            job = restored(next(self._serials), seats, installed, now_ns, until_ns)
            self._jobs[job.key] = job
            for worker in with_server(job):
                self._workers[worker.hello.token] = job, worker
        self.ended.extend(ended(next(self._serials), seats, reason, now_ns) for seats, reason in lost)
        return self._reconcile(now_ns)

    def connect(self, hello: Hello, now_ns: int) -> list[Action]:
        """Seat a worker that arrived, or returned over another connection."""
        seat = self._workers.get(hello.token)
        if seat is not None:
            self._reconnected(*seat, hello, now_ns)
        elif hello.number is not None:
            self._outbox.tell(hello.token, self._farewell_of(hello, hello.number))
        elif (job := self._job_with_absent(hello)) is not None:
            self._latecomers[hello.token] = hello, now_ns + hello.deadline_ns
            self._outbox.tell(hello.token, Waiting(tuple(sorted(job.members)), job.hello.workers))
        else:
            self._arrive(hello, now_ns)
        return self._reconcile(now_ns)

    def _arrive(self, hello: Hello, now_ns: int) -> None:
        problem = problem_of(hello, self._hosts, self._named(hello.job), self._settings, len(self.jobs))
        if problem is None:
            self._seat_worker(hello, now_ns)
        else:
            self._outbox.tell(hello.token, Refused(f"job {hello.job}: {problem}"))

    def _job_with_absent(self, hello: Hello) -> JobState | None:
        """Return the job in which a worker's seat is kept for another one of its host, which may return."""
        job = self._named(hello.job)
        if job is None:
            return None
        holder = job.main_server if hello.is_main_server else job.members.get(hello.host)
        return None if holder is None or holder.away_until_ns is None else job

    def _seat_latecomers(self, now_ns: int) -> bool:
        """Seat or refuse those whose wait is over; return whether there were any."""
        over = [
            hello
            for hello, until_ns in self._latecomers.values()
            if until_ns <= now_ns or self._job_with_absent(hello) is None
        ]
        for hello in over:
            del self._latecomers[hello.token]
            if self._job_with_absent(hello) is None:
                self._arrive(hello, now_ns)
            else:
                reason = f"{hello.host} has a worker in it that may return: the controller has just restarted"
                self._outbox.tell(hello.token, Refused(f"job {hello.job}: {reason}"))
        return bool(over)

    def receive(
        self, token: str, message: Heartbeat | Arrived | Finished | Leave | Completed, now_ns: int
    ) -> list[Action]:
        """Take a worker's message."""
        seat = self._workers.get(token)
        if token in self._latecomers:
            if isinstance(message, Leave):
                del self._latecomers[token]
            return []
        if seat is None:
            self._outbox.tell(token, Ended("this worker has been removed from its job", removed=True))
            return self._reconcile(now_ns)
        job, worker = seat
        worker.heard_ns = now_ns
        if isinstance(message, Heartbeat):
            return []
        match message:
            case Arrived() if (
                job.barrier is not None and message.barrier == job.barrier.number and job.barrier.count is None
            ):
                worker.count = message.count
            case Finished() if job.barrier is not None and message.barrier == job.barrier.number:
                if message.count == job.barrier.count:
                    worker.next_item = message.next_item
            case Leave():
                self._begin_leaving(job, worker, message.next_item, now_ns)
            case Completed():
                worker.results_before = message.next_item
            case _:
                pass
        return self._reconcile(now_ns)

    def disconnect(self, token: str, now_ns: int) -> list[Action]:
        """Note that a worker's connection is gone; it may come back."""
        seat = self._workers.get(token)
        if seat is not None:
            seat[1].disconnected_ns = now_ns
        self._latecomers.pop(token, None)
        return self._reconcile(now_ns)

    def change_done(
        self, change: Change, result: InstalledJob | str, now_ns: int, *, taken_back: InstalledJob | None = None
    ) -> list[Action]:
        """Note that a change of the switches was made, or failed for the given reason.

        `taken_back` is the job as it is after a change that was made in some switches and then undone: in a new epoch.
        """
        job = self._jobs.get(change.key)
        if job is None or job.pending_change != change:
            return []
        job.pending_change = None
        problem = result if isinstance(result, str) else None
        if isinstance(result, InstalledJob):
            job.installed = result
        elif taken_back is not None:
            job.installed = taken_back
        if job.phase is Phase.ENDED:
            self._forget(job, is_there=not isinstance(change, End) and job.installed is not None)
        else:
            self._changed(job, change, problem, now_ns)
        return self._reconcile(now_ns)

    def job_failed(self, number: int, reason: str, now_ns: int) -> list[Action]:
        """Note that a job is no longer in the switches."""
        for job in self.jobs:
            if job.installed is not None and job.installed.number == number:
                job.installed = None
                self._end(job, reason, now_ns)
        return self._reconcile(now_ns)

    def should_move(self, number: int, reason: str, now_ns: int) -> list[Action]:
        """Note that other switches would be better for a job."""
        for job in self.jobs:
            if job.installed is not None and job.installed.number == number:
                job.move_reason = reason
        return self._reconcile(now_ns)

    def end(self, name: str, reason: str, now_ns: int) -> list[Action] | None:
        """End a job on request; None if there is none of that name."""
        job = self._named(name)
        if job is None:
            return None
        self._end(job, reason, now_ns)
        return self._reconcile(now_ns)

    def remove(self, name: str, host: str, reason: str, now_ns: int) -> list[Action] | None:
        """Remove a worker on request; None if there is no such one."""
        job = self._named(name)
        if job is None or (host not in job.members and host not in job.joiners):
            return None
        self._expel(job, host, reason)
        return self._reconcile(now_ns)

    def tick(self, now_ns: int) -> list[Action]:
        """Note that nothing has happened for a while."""
        return self._reconcile(now_ns)

    def excuse(self, waited_ns: int, now_ns: int) -> None:
        """Extend all leases by a time in which nobody could be heard."""
        for _, worker in self._workers.values() if waited_ns else ():
            worker.excuse(waited_ns, now_ns)

    def due_ns(self) -> int | None:
        """Return when `tick` is due, if nothing happens before."""
        times = [until_ns for _, until_ns in self._latecomers.values()]
        for job in self.jobs:
            times += [self._lease_end_ns(worker) for worker in (*job.remaining.values(), *job.joiners.values())]
            waiting = job.members if job.phase is Phase.GATHERING else job.joiners
            times += [worker.admit_until_ns for worker in waiting.values() if worker.start is None]
            if job.main_server is not None:
                times.append(self._lease_end_ns(job.main_server))
                times += [job.main_server.admit_until_ns] if job.phase is Phase.GATHERING else []
            if job.barrier is not None:
                times.append(job.barrier.deadline_ns)
        return min(times, default=None)

    def _named(self, name: str) -> JobState | None:
        return next((job for job in self.jobs if job.name == name), None)

    def _farewell_of(self, hello: Hello, number: int) -> Ended:
        """Return the last message to a worker that was admitted, and is no longer known."""
        for job in self.jobs:
            if job.installed is not None and job.installed.number == number:
                return job.removed.get(hello.token, Ended(f"{hello.host} has left job {job.name}", removed=True))
        for job in reversed(self.ended):
            if job.name == hello.job:
                return Ended(f"job {job.name} has ended: {job.reason}")
        return Ended(f"job {hello.job} has ended: the controller does not know its number {number}")

    def _seat_worker(self, hello: Hello, now_ns: int) -> None:
        job = self._named(hello.job)
        if job is None:
            serial = next(self._serials)
            job = self._jobs[serial] = JobState(serial, hello, 0, 0, 0)
            adopt_terms(job, hello, self._settings)
        if hello.is_main_server:
            self._seat_server(job, WorkerState(hello, now_ns, now_ns + hello.deadline_ns), now_ns)
            return
        if job.hello.is_main_server:
            adopt_terms(job, hello, self._settings)
        elif hello.host in job.members or hello.host in job.joiners:
            self._expel(job, hello.host, "another worker of the same host has joined")
            if job.phase is Phase.ENDED:
                self._outbox.tell(hello.token, Refused(f"job {hello.job} has just ended: {job.reason}"))
                return
        worker = WorkerState(hello, now_ns, now_ns + hello.deadline_ns)
        self._workers[hello.token] = job, worker
        (job.members if job.phase is Phase.GATHERING else job.joiners)[hello.host] = worker
        self._outbox.tell_waiting(job, worker)

    def _seat_server(self, job: JobState, server: WorkerState, now_ns: int) -> None:
        if job.main_server is not None:
            self._unseat_server(job, f"{server.hello.host} has started it again", now_ns)
        job.main_server = server
        self._workers[server.hello.token] = job, server
        if job.installed is None:
            self._outbox.tell_waiting(job, server)
        else:
            self._outbox.admit(job, server)
            self._outbox.show_all(job, now_ns)

    def _unseat_server(self, job: JobState, why: str, now_ns: int) -> None:
        """Continue without the main server, which may come back."""
        server = job.main_server
        assert server is not None
        job.main_server = None
        farewell = Ended(f"{server.hello.host} is no longer the main server of job {job.name}: {why}", removed=True)
        job.remember_removed(server.hello.token, farewell)
        self._workers.pop(server.hello.token, None)
        self._outbox.tell(server.hello.token, farewell)
        if job.installed is not None:
            self._outbox.show_all(job, now_ns)

    def _reconnected(self, job: JobState, worker: WorkerState, hello: Hello, now_ns: int) -> None:
        """Send a worker the current state over its new connection."""
        worker.heard_ns, worker.disconnected_ns, worker.away_until_ns = now_ns, None, None
        is_seated = worker is job.main_server or job.members.get(hello.host) is worker
        if not is_seated or job.installed is None:
            self._outbox.tell_waiting(job, worker)
            return
        if job.barrier is not None and hello.host in job.barrier.joined:
            return
        if hello.number is None:
            self._outbox.admit(job, worker)
        self._outbox.show(job, worker, now_ns)

    def _begin_leaving(self, job: JobState, worker: WorkerState, item: int, now_ns: int) -> None:
        """Let a worker leave at once, or have the others report when they have all of its results.

        They may lack some, which the switches may have forgotten, and would get sums without it once it has left.
        """
        if worker is job.main_server:
            self._unseat_server(job, "it has left", now_ns)
        elif job.installed is None or job.members.get(worker.hello.host) is not worker:
            self._leave(job, worker)
        elif worker.leaves_before is None:
            worker.leaves_before = item
            self._outbox.show_all(job, now_ns)

    def _release_leavers(self, job: JobState) -> None:
        """Release leavers that no remaining member needs any more."""
        for host, item in job.leaving.items():
            if all(
                remaining.results_before is not None and age(remaining.results_before, than=item) >= 0
                for remaining in job.remaining.values()
            ):
                self._leave(job, job.members[host])

    def _leave(self, job: JobState, worker: WorkerState) -> None:
        was_member = job.members.get(worker.hello.host) is worker
        farewell = Ended(f"{worker.hello.host} has left job {job.name}", removed=True)
        self._drop(job, worker.hello.host, farewell)
        if was_member and job.phase is not Phase.GATHERING:
            job.size -= 1

    def _expel(self, job: JobState, host: str, why: str) -> None:
        """Remove a worker that has not left by itself; end the job if too few are left."""
        farewell = Ended(f"{host} was removed from job {job.name}: {why}", removed=True)
        job.remember_removed((job.joiners.get(host) or job.members[host]).hello.token, farewell)
        self._drop(job, host, farewell)

    def _drop(self, job: JobState, host: str, farewell: Downward) -> None:
        worker = job.joiners.pop(host, None)
        if worker is None:
            worker = job.members.pop(host)
            if job.phase is not Phase.GATHERING:
                job.removals.append(host)
        elif isinstance(job.pending_change, Join) and job.pending_change.token == worker.hello.token:
            job.removals.append(host)
        self._outbox.tell(worker.hello.token, farewell)
        self._workers.pop(worker.hello.token, None)

    def _reconcile(self, now_ns: int) -> list[Action]:
        """Take all actions that time and the state of each job call for; return them."""
        self._advance_all(now_ns)
        while self._seat_latecomers(now_ns):
            self._advance_all(now_ns)
        return self._outbox.take()

    def _advance_all(self, now_ns: int) -> None:
        for job in self.jobs:
            self._expire(job, now_ns)
            while job.phase is not Phase.ENDED and job.pending_change is None and self._advance(job, now_ns):
                pass

    def _lease_end_ns(self, worker: WorkerState) -> int:
        """Return when a worker counts as dead if it stays silent."""
        if worker.away_until_ns is not None:
            return worker.away_until_ns
        lease_ns = worker.heard_ns + self._settings.lease_ns
        return (
            lease_ns
            if worker.disconnected_ns is None
            else min(lease_ns, worker.disconnected_ns + self._settings.reconnect_ns)
        )

    def _expire(self, job: JobState, now_ns: int) -> None:
        """Remove silent workers, refuse those that have waited long enough, and abandon barriers that last too long."""
        for host, worker in (*job.remaining.items(), *job.joiners.items()):
            if self._lease_end_ns(worker) <= now_ns:
                self._expel(job, host, worker.silence_at(now_ns))
        if job.main_server is not None and self._lease_end_ns(job.main_server) <= now_ns:
            self._unseat_server(job, job.main_server.silence_at(now_ns), now_ns)
        self._release_leavers(job)
        if job.phase is Phase.GATHERING:
            late = min((worker.admit_until_ns for worker in with_server(job)), default=now_ns + 1)
            if (len(job.members) < job.hello.workers or is_missing(job)) and late <= now_ns:
                self._end(job, f"only {present(job)} joined in time", now_ns)
            return
        for host, worker in tuple(job.joiners.items()):
            if worker.admit_until_ns <= now_ns and not job.is_joining(worker):
                self._barriers.refuse(job, [host], "the others did not reach a point where it could join in time")
        if (
            job.barrier is not None
            and job.barrier.deadline_ns <= now_ns
            and not isinstance(job.pending_change, Join | Move)
        ):
            self._barriers.abandon(job, now_ns)

    def _advance(self, job: JobState, now_ns: int) -> bool:
        """Take the next step of a job without a pending change; return whether there was one."""
        if job.phase is Phase.GATHERING:
            return self._gather(job, now_ns)
        if job.installed is None:
            return False
        installed = job.installed
        if not job.members or 2 * len(job.members) < job.size:
            left = f"{len(job.members)} of {job.size} workers are left" if job.size else "all workers have left"
            self._end(job, left, now_ns)
        elif job.removals:
            self._outbox.change(job, Remove(job.key, installed.number, job.removals.popleft()))
        elif job.barrier is None:
            return self._barriers.begin(job, now_ns)
        else:
            return self._barriers.advance(job, job.barrier, installed, now_ns)
        return True

    def _gather(self, job: JobState, now_ns: int) -> bool:
        if not with_server(job):
            self._end(job, "all workers left before it started", now_ns)
            return True
        if len(job.members) < job.hello.workers or is_missing(job):
            return False
        job.phase = Phase.CREATING
        workers = tuple(job.members[host].worker for host in sorted(job.members))
        job.server = server_of(job)
        self._outbox.change(job, Create(job.key, workers, job.window, job.capacity, job.server))
        return True

    def _changed(self, job: JobState, change: Change, problem: str | None, now_ns: int) -> None:
        match change:
            case Create() if problem is not None:
                self._end(job, problem, now_ns)
            case Create():
                job.phase = Phase.RUNNING
                for worker in with_server(job):
                    self._outbox.admit(job, worker)
            case Remove() if problem is not None:
                self._end(job, f"{change.host} cannot be removed: {problem}", now_ns)
            case Remove():
                self._outbox.show_all(job, now_ns)
            case Join():
                self._barriers.joined(job, change, problem)
                if problem is not None:
                    self._outbox.show_all(job, now_ns)
            case Move():
                job.move_reason = None
            case End():
                pass

    def _end(self, job: JobState, reason: str, now_ns: int) -> None:
        """End a job and send all its workers the same reason."""
        begun = job.phase not in (Phase.GATHERING, Phase.CREATING)
        text = f"job {job.name} has ended: {reason}" if begun else f"job {job.name}: {reason}"
        for worker in (*with_server(job), *job.joiners.values()):
            is_member = begun and worker in with_server(job)
            self._outbox.tell(worker.hello.token, Ended(text) if is_member else Refused(text))
            self._workers.pop(worker.hello.token, None)
        if begun or job.members:
            self.ended.append(job)
        job.phase, job.reason, job.ended_ns, job.barrier = Phase.ENDED, reason, now_ns, None
        if job.pending_change is None:
            self._forget(job, is_there=job.installed is not None)

    def _forget(self, job: JobState, *, is_there: bool) -> None:
        """Forget an ended job, once the switches hold nothing of it."""
        if is_there and job.installed is not None:
            self._outbox.change(job, End(job.key, job.installed.number))
        else:
            del self._jobs[job.key]
