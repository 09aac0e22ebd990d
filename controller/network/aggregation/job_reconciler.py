"""Reconciles the switches with the desired jobs; a job is installed when the call returns.

Every call returns when all switches concerned have acknowledged the change, and raises ControllerError, which names
switch and entry, if they do not do so in time. A change that a switch refuses is undone everywhere. A job ends by
itself, and listeners get the reason, when one of its switches stays away too long, or returns without room for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address
from typing import Final, Protocol

from collectors.values import Snapshot
from controller.common.errors import ControllerError
from controller.network.aggregation.job_migration import BetterTree, MigrationPolicy, better_tree, dead_links
from controller.network.aggregation.jobs import Records, RunningJob, number_of
from controller.network.aggregation.tables import AggregationTables
from controller.network.intents import Worker
from controller.network.links.loss_failures import LossFailureDetector
from controller.network.tables.aggregation import parent_of, switches_of
from controller.network.tables.entities import Entities, EntityKey, Kind, Update
from dataplane.clock import NS_PER_S, Clock
from dataplane.topology.addressing import switch_ipv4
from dataplane.topology.values import LinkKey

LOGGER = logging.getLogger("millrace.jobs")

_LEAST_PATIENCE_NS: Final = 1_000_000_000
_FIRST_MEETING: Final = 3
"""Times `dead_after` that the switches of adopted jobs have to be reached at first."""
_MISSED_INTERVALS: Final = 3
"""Number of intervals without an update after which a state of the network is stale, but at least a second."""

Sleep = Callable[[float], Awaitable[None]]


class Switches(Protocol):
    """Writer of switches, which eventually get the entries of `AggregationTables`."""

    @property
    def live(self) -> frozenset[str]:
        """The switches whose tables are known and can be written."""
        ...

    def held(self, switch: str) -> Entities:
        """Return the known entities of a switch."""
        ...

    def sync(self, switches: Iterable[str]) -> None:
        """Bring switches to the desired entries, and call `JobReconciler.confirmed`."""
        ...

    def problem(self, switch: str) -> str:
        """Return why a switch is not reconciled, '' if unknown."""
        ...


class Listener(Protocol):
    """Represents jobs towards their workers: the job service."""

    def failed(self, number: int, reason: str) -> None:
        """Note that a job has ended because switches cannot continue it."""
        ...

    def should_move(self, number: int, reason: str) -> None:
        """Note that a job would be better off elsewhere: `JobReconciler.move`, when no worker waits for a result."""
        ...


class JobReconciler:
    """The jobs of a fabric; confined to the event loop that executes `run`."""

    def __init__(
        self,
        tables: AggregationTables,
        switches: Switches,
        clock: Clock,
        snapshot: Snapshot,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """Place jobs by `snapshot` until one is observed, and again when none has been observed for too long."""
        self.tables, self._switches, self._clock, self._snapshot, self._sleep = tables, switches, clock, snapshot, sleep
        self._nominal, self._observed_ns = snapshot, clock.now_ns()
        self._loss_failures = LossFailureDetector(tables.settings.moving.dead_loss)
        self._jobs = tables.jobs
        self._migration = MigrationPolicy(tables.settings.moving)
        self._other_topology: LinkKey | None = None
        self._listeners: list[Listener] = []
        self._refusals: dict[int, str] = {}
        self._undo: dict[int, Callable[[], None]] = {}
        self._locks: dict[int, asyncio.Lock] = {}
        self._away_since_ns: dict[str, int] = {node.name: clock.now_ns() for node in tables.topology.switches}
        self._progress = asyncio.Event()

    @property
    def running(self) -> tuple[RunningJob, ...]:
        """The jobs that have not ended."""
        return self._jobs.running

    def listen(self, listener: Listener) -> None:
        """Notify a listener from now on."""
        self._listeners.append(listener)

    def adopt(self, job: RunningJob) -> None:
        """Continue a job of an earlier controller, before any switch is connected; raise ControllerError.

        Switches that hold it as it is are left alone; others get what they lack.
        """
        self._jobs.adopt(job)
        # A restarted controller needs time to reach all switches; those that it has never met are not dead yet.
        grace_ns = (_FIRST_MEETING - 1) * self.tables.settings.dead_after_ns
        for switch in switches_of(job.placed.tree):
            self._away_since_ns[switch] = self._clock.now_ns() + grace_ns

    def keep(self, records: Records, newest: int | None) -> None:
        """Record each change from now on, and give out numbers after `newest` unless None."""
        self._jobs.records = records
        if newest is not None:
            self._jobs.given_out(newest)

    def aggregator(self, number: int, host: str) -> IPv4Address:
        """Return the address that a worker of a job sends to; raise ControllerError for an unknown worker."""
        switch = parent_of(self._jobs.job(number).placed.tree, host)
        return switch_ipv4(self.tables.topology.switch[switch].node_id)

    def links(self, number: int) -> tuple[LinkKey, ...]:
        """Return the links by which contributions to a job reach its root; raise ControllerError for an unknown one."""
        return self._jobs.links(number)

    async def create(
        self, workers: Sequence[Worker], *, window: int, capacity: int, server: Worker | None = None
    ) -> RunningJob:
        """Return a job of these workers, all of them members, that all switches of its tree hold.

        Raise ControllerError, without a trace of it, if there are no cells, or a switch refuses it.
        """
        job = self._jobs.create(
            workers,
            self._placement_state(),
            window=window,
            capacity=capacity,
            server=server,
            banned=self._unreachable(),
        )
        async with self._lock(job.number):
            await self._until_written(job, lambda: self._forget(job))
        return job

    async def leave(self, number: int, host: str) -> RunningJob:
        """Return a job once all its switches hold it without a member.

        ControllerError at the deadline: the change stays wanted, as the others must continue without that worker.
        """
        async with self._lock(number):
            job = self._jobs.leave(number, host)
            await self._until_written(job)
            return job

    async def join(self, number: int, worker: Worker) -> RunningJob:
        """Return a job once all its switches hold it with one more member; ControllerError leaves it unchanged."""
        async with self._lock(number):
            job = self._jobs.join(number, worker)
            await self._until_written(job, lambda: self._undo_join(job, worker))
            return job

    async def move(self, number: int) -> RunningJob:
        """Return a job of the same members at the best place, under a new number; the same job if its place is best.

        Call it while no worker waits for a result, and `end` the previous one once the new one is recorded as the
        workers' job. Raise ControllerError, and leave the job where it is, if it cannot be moved.
        """
        async with self._lock(number):
            job = self._jobs.job(number)
            if self._better(job) is None:
                return job
            before = job.placed.job
            workers = [worker for worker in before.workers if worker.host in job.members.workers]
            new = await self.create(workers, window=before.window, capacity=before.capacity, server=before.server)
            self._migration.moved(number, new.number, self._clock.now_ns())
            return new

    async def end(self, number: int) -> None:
        """Return once no reachable switch holds anything of a job; the others will not when they return."""
        async with self._lock(number):
            job = self._jobs.job(number)
            self._forget(job)
            await self._until_acknowledged(job.number, switches_of(job.placed.tree), "gone from")

    def observe(self, snapshot: Snapshot) -> None:
        """Take the newest state of the network: jobs avoid dead links, and listeners hear which should move.

        A state of another topology is left out.
        """
        topology = self.tables.topology
        unknown = next((key for key in topology.directed_links if key not in snapshot.links), None)
        if unknown is not None:
            if unknown != self._other_topology:
                LOGGER.warning("ignoring network state of a topology other than %s: unknown %s", topology.name, unknown)
            self._other_topology = unknown
            return
        self._other_topology = None
        self._snapshot, self._observed_ns = self._loss_failures.confirmed(snapshot), self._clock.now_ns()
        self._avoid()
        better_trees = {job.number: self._better(job) for job in self._migration.judged(self.running)}
        for number, better in self._migration.step(better_trees, self._clock.now_ns()):
            for listener in self._listeners:
                listener.should_move(number, str(better))

    def _placement_state(self) -> Snapshot:
        """Return the state to place by: the one without telemetry if the newest is old because the collector hangs."""
        limit_ns = max(_LEAST_PATIENCE_NS, _MISSED_INTERVALS * self.tables.settings.interval_ns)
        is_old = self._clock.now_ns() - self._observed_ns > limit_ns
        return self._nominal if is_old else self._snapshot

    def _avoid(self) -> None:
        measured = dead_links(self.tables.topology, self._snapshot, self.tables.settings.moving)
        if self.tables.avoid(measured=measured):
            self._switches.sync(self.tables.topology.switch)

    def _unreachable(self) -> set[str]:
        return self.tables.topology.switch.keys() - self._switches.live

    def _better(self, job: RunningJob) -> BetterTree | None:
        tables = self.tables
        return better_tree(
            tables.topology,
            tables.hops,
            self._placement_state(),
            job,
            taken=self._jobs.taken(),
            banned=self._unreachable(),
        )

    async def run(self) -> None:
        """End jobs whose switches stay away too long, until cancelled."""
        bound_ns = self.tables.settings.dead_after_ns
        while True:
            progress, now_ns = self._progress, self._clock.now_ns()
            used = {switch for job in self.running for switch in switches_of(job.placed.tree)}
            due = {switch: since_ns + bound_ns for switch, since_ns in self._away_since_ns.items() if switch in used}
            for switch, due_ns in due.items():
                if due_ns <= now_ns:
                    self._fail_jobs_on(switch)
            waits = [due_ns - now_ns for due_ns in due.values() if due_ns > now_ns]
            await self._wait_for_progress(progress, min(waits, default=None))

    def confirmed(self, switch: str) -> None:
        """Note that a switch holds the desired entries, as far as known."""
        self._away_since_ns.pop(switch, None)
        self._progressed()

    def lost(self, switch: str) -> None:
        """Note that a switch is gone, or that its contents are unknown."""
        if switch not in self._away_since_ns:
            self._away_since_ns[switch] = self._clock.now_ns()
            self._progressed()

    def forgotten(self, switches: Iterable[str]) -> None:
        """Clear cells of these switches again."""
        self._switches.sync(switches)

    def contradicted(self, number: int, reason: str) -> None:
        """End a job that a switch knows better than our record of it."""
        self._fail(number, reason)

    def refuse(self, switch: str, updates: Iterable[Update], problem: str) -> bool:
        """Note that a switch refused updates; return whether all of them were about jobs, which it is now spared."""
        numbers = [self._number(switch, update.key) for update in updates]
        concerned = {number for number in numbers if number is not None}
        for number in concerned:
            self._refused(number, problem)
        self._progressed()
        return bool(concerned) and None not in numbers

    def _refused(self, number: int, problem: str) -> None:
        if number not in self._undo:
            self._fail(number, problem)
            return
        self._refusals[number] = problem
        self._undo.pop(number)()

    def _number(self, switch: str, key: EntityKey) -> int | None:
        """Return the job that needs an entity of a switch."""
        for job in self.running:
            if number_of(key) == job.number or key in self._jobs.entities_of(job.number).get(switch, {}):
                return job.number
            block = job.placed.blocks.get(switch)
            if block is not None and key.kind is Kind.REGISTER and block.first <= key.number < block.end:
                return job.number
        return None

    async def _until_written(self, job: RunningJob, undo: Callable[[], None] | None = None) -> None:
        """Return when all switches hold a job as it is; on any failure, `undo` the change."""
        switches = switches_of(job.placed.tree)
        if undo is not None:
            self._undo[job.number] = undo
        try:
            self._switches.sync(switches)
            await self._until_acknowledged(job.number, switches, "in")
            self._jobs.job(job.number)
        # Also when the caller is cancelled: nobody would undo the change later.
        except BaseException:
            if job.number in self._undo:
                self._undo[job.number]()
            raise
        finally:
            self._undo.pop(job.number, None)
            self._refusals.pop(job.number, None)

    def _undo_join(self, job: RunningJob, worker: Worker) -> None:
        if self._is_running(job.number):
            self._jobs.leave(job.number, worker.host)
            self._switches.sync(switches_of(job.placed.tree))

    async def _until_acknowledged(self, number: int, switches: Sequence[str], where: str) -> None:
        """Return once switches hold a job's desired entries; ControllerError if one refuses, or at the deadline."""
        limit_ns = self.tables.settings.deadline_ns
        deadline = asyncio.ensure_future(self._sleep(limit_ns / NS_PER_S))
        try:
            while True:
                # Take the event before looking, as progress replaces it: none is missed in between.
                progress = self._progress
                if number in self._refusals:
                    raise ControllerError(f"aggregation job {number}: {self._refusals[number]}")
                behind = self._behind(number, switches)
                if behind is None:
                    return
                if deadline.done():
                    raise ControllerError(
                        f"aggregation job {number}: not {where} {behind} within {limit_ns / NS_PER_S:g} s"
                    )
                waiting = asyncio.ensure_future(progress.wait())
                await asyncio.wait((deadline, waiting), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
        finally:
            deadline.cancel()

    def _behind(self, number: int, switches: Iterable[str]) -> str | None:
        """Return a switch that is not reconciled for a job, and why; None if all are."""
        for switch in switches:
            lacking = self.tables.lacking(number, switch, self._switches.held(switch))
            if switch not in self._switches.live and not self._is_running(number):
                continue
            if switch not in self._switches.live or lacking is not None:
                why = self._switches.problem(switch) or "writes not acknowledged"
                return f"switch {switch} ({lacking or 'state of its tables unknown'}: {why})"
        return None

    async def _wait_for_progress(self, progress: asyncio.Event, wait_ns: int | None) -> None:
        """Wait for progress, or until the timeout."""
        waiting: list[asyncio.Future[object]] = [asyncio.ensure_future(progress.wait())]
        if wait_ns is not None:
            waiting.append(asyncio.ensure_future(self._sleep(wait_ns / NS_PER_S)))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiting:
                waiter.cancel()

    def _fail_jobs_on(self, switch: str) -> None:
        seconds = self.tables.settings.dead_after_ns / NS_PER_S
        for job in self.running:
            if switch in switches_of(job.placed.tree):
                why = self._switches.problem(switch)
                self._fail(job.number, f"switch {switch} has been unreachable for {seconds:g} s{why and f': {why}'}")

    def _fail(self, number: int, reason: str) -> None:
        self._forget(self._jobs.job(number))
        self._progressed()
        for listener in self._listeners:
            listener.failed(number, reason)

    def _forget(self, job: RunningJob) -> None:
        """Drop a job from the desired state."""
        if self._is_running(job.number):
            self._jobs.end(job.number)
            self._locks.pop(job.number, None)
            self._switches.sync(switches_of(job.placed.tree))

    def _is_running(self, number: int) -> bool:
        return any(job.number == number for job in self.running)

    def _lock(self, number: int) -> asyncio.Lock:
        """Return the lock for changes of one job; raise ControllerError if there is no such job."""
        self._jobs.job(number)
        return self._locks.setdefault(number, asyncio.Lock())

    def _progressed(self) -> None:
        self._progress.set()
        self._progress = asyncio.Event()
