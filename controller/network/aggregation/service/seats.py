"""Workers' seats in jobs that the switches hold, kept in the job storage, and read by the next controller.

A seat is recorded before its worker is told of it, and withdrawn before anything is done without it. Jobs that are
still gathering are not kept: their workers arrive again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from controller.common.errors import JobError
from controller.network.aggregation.service.job_state import InstalledJob, JobState, Phase, WorkerState
from controller.network.aggregation.storage import JobStorage, freeze, thaw
from controller.network.intents import Worker
from dataplane.allreduce.jobs.messages import Ended, Hello

_SEATS: Final = "seats/"
_GENERATION: Final = "generation"


@dataclass(frozen=True, slots=True)
class Seat:
    """A member, or the main server."""

    hello: Hello
    start: tuple[int, int] | None = None
    newcomers: tuple[str, ...] = ()
    leaves_before: int | None = None


@dataclass(frozen=True, slots=True)
class JobSeats:
    """A job's terms and members; fields as in `JobState`."""

    number: int
    hello: Hello
    window: int
    capacity: int
    size: int
    members: tuple[Seat, ...]
    main_server: Seat | None = None
    server: Worker | None = None
    newcomers: tuple[str, ...] = ()
    newcomers_at: int | None = None
    removed: tuple[tuple[str, Ended], ...] = ()


@dataclass(frozen=True, slots=True)
class StoredSeats:
    """Jobs by number, and how many controllers have had them."""

    jobs: Mapping[int, JobSeats]
    generation: int


class SeatRecords:
    """Writes changes of seats, and only those."""

    def __init__(self, storage: JobStorage) -> None:
        self.storage = storage
        self._kept: dict[int, tuple[object, ...]] = {}

    def read(self, entries: Mapping[str, bytes]) -> StoredSeats:
        """Return what the storage's entries say; raise JobError naming the invalid one."""
        name, jobs = self.storage.name, dict[int, JobSeats]()
        for key, value in entries.items():
            if key.startswith(_SEATS):
                seats = thaw(name, key, value, JobSeats)
                if key != f"{_SEATS}{seats.number}":
                    raise JobError(f"{name}: {key} is job {seats.number}: move it away")
                jobs[seats.number] = seats
        generation = thaw(name, _GENERATION, entries[_GENERATION], int) if _GENERATION in entries else 0
        return StoredSeats(jobs, generation)

    def begin(self, generation: int, jobs: Iterable[JobState], gone: Iterable[int]) -> None:
        """Write the number of this controller and its jobs as adopted, and forget the seats of others."""
        changes: dict[str, bytes | None] = {f"{_SEATS}{number}": None for number in gone}
        changes[_GENERATION] = freeze(generation)
        self._write(jobs, changes)

    def keep(self, jobs: Iterable[JobState]) -> None:
        """Write the differences from the last call; raise LostLeaseError if another controller is active."""
        self._write(jobs, {})

    def _write(self, jobs: Iterable[JobState], changes: dict[str, bytes | None]) -> None:
        kept = dict[int, tuple[object, ...]]()
        for job in jobs:
            if job.installed is None or job.phase is Phase.ENDED:
                continue
            number = job.installed.number
            kept[number] = _fingerprint(job)
            if self._kept.get(number) != kept[number]:
                changes[f"{_SEATS}{number}"] = freeze(_seats_of(job, number))
        changes.update({f"{_SEATS}{number}": None for number in self._kept.keys() - kept.keys()})
        if changes:
            self.storage.save(changes)
        self._kept = kept


def restored(key: int, seats: JobSeats, installed: InstalledJob, now_ns: int, until_ns: int) -> JobState:
    """Return a job as an earlier controller left it, whose workers are away and may return until `until_ns`.

    Whoever has a seat but is not in the switches was being removed; whoever is in the switches without a seat had not
    been told that it joined, and is removed from them.
    """

    def away(seat: Seat) -> WorkerState:
        worker = WorkerState(seat.hello, now_ns, until_ns, disconnected_ns=now_ns, away_until_ns=until_ns)
        worker.start, worker.newcomers, worker.leaves_before = seat.start, seat.newcomers, seat.leaves_before
        return worker

    job = JobState(key, seats.hello, seats.window, seats.capacity, seats.size, Phase.RUNNING, installed)
    job.members = {seat.hello.host: away(seat) for seat in seats.members if seat.hello.host in installed.aggregators}
    job.main_server = None if seats.main_server is None else away(seats.main_server)
    job.server, job.newcomers, job.newcomers_at = seats.server, seats.newcomers, seats.newcomers_at
    for token, farewell in seats.removed:
        job.remember_removed(token, farewell)
    for seat in seats.members:
        if seat.hello.host not in job.members:
            farewell = Ended(f"{seat.hello.host} was removed from job {job.name}", removed=True)
            job.remember_removed(seat.hello.token, farewell)
    job.removals.extend(sorted(installed.aggregators.keys() - job.members.keys()))
    return job


def ended(key: int, seats: JobSeats, reason: str, now_ns: int) -> JobState:
    """Return a job that cannot be continued."""
    job = JobState(key, seats.hello, seats.window, seats.capacity, seats.size, Phase.ENDED)
    job.reason, job.ended_ns = reason, now_ns
    return job


def _seated(job: JobState) -> list[WorkerState]:
    """Return the members that know that they are; others join a barrier that a restart would break off."""
    joined = () if job.barrier is None else job.barrier.joined
    return [worker for host, worker in job.members.items() if host not in joined]


def _fingerprint(job: JobState) -> tuple[object, ...]:
    """Return what differs whenever `_seats_of` does; cheap, as it is computed whenever anything happens."""
    members = _seated(job)
    return (
        members,  # compared by identity first
        [worker.leaves_before for worker in members],
        job.main_server,
        job.size,
        job.server,
        job.newcomers_at,
        tuple(job.removed),
        job.hello,
    )


def _seats_of(job: JobState, number: int) -> JobSeats:
    return JobSeats(
        number,
        job.hello,
        job.window,
        job.capacity,
        job.size,
        tuple(map(_seat, _seated(job))),
        None if job.main_server is None else _seat(job.main_server),
        job.server,
        job.newcomers,
        job.newcomers_at,
        tuple(job.removed.items()),
    )


def _seat(worker: WorkerState) -> Seat:
    return Seat(worker.hello, worker.start, worker.newcomers, worker.leaves_before)
