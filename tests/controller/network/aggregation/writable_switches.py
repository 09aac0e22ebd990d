"""Fake switches that only accept a daemon's writes, fast enough for many tests, and a daemon over them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from collectors.values import Snapshot
from controller.common.errors import ControllerError, SessionError
from controller.network.aggregation.job_reconciler import JobReconciler
from controller.network.aggregation.jobs import RunningJob
from controller.network.aggregation.settings import AggregationSettings
from controller.network.daemon import Daemon
from controller.network.daemon_settings import RetrySettings
from controller.network.features import Features
from controller.network.intents import RouteSet
from controller.network.owners.base import Owner
from controller.network.reconcile import apply
from controller.network.tables.entities import Batch, Entity, EntityKey, Kind, Update, Verb
from dataplane.clock import VirtualClock
from dataplane.topology.values import LinkKey, Topology

T = TypeVar("T")
TURNS = 3000
MS = 1_000_000
SETTINGS = AggregationSettings(deadline_ns=100 * MS, dead_after_ns=500 * MS)


@dataclass
class FakeSwitch:
    """Tables, and written cells."""

    tables: dict[EntityKey, Entity] = field(default_factory=dict)
    cleared: list[int] = field(default_factory=list)
    log: list[Update] = field(default_factory=list)
    refuse: Callable[[Update], bool] = field(default=lambda _: False)
    is_stuck: bool = False
    can_clear: bool = True
    has_program: bool = True

    def write(self, name: str, batch: Batch) -> None:
        if not self.can_clear and batch[0].key.kind is Kind.REGISTER:
            everything = tuple(range(len(batch)))
            raise SessionError(name, "write", "not supported yet", code="UNIMPLEMENTED", refused=everything)
        refused = tuple(index for index, update in enumerate(batch) if self.refuse(update))
        for index, update in enumerate(batch):
            if index not in refused:
                self._execute(update)
        if refused:
            cause = f"{batch[refused[0]]}: no room"
            raise SessionError(name, "write", cause, code="RESOURCE_EXHAUSTED", refused=refused)

    def _execute(self, update: Update) -> None:
        self.log.append(update)
        if update.key.kind is Kind.REGISTER:
            self.cleared.append(update.key.number)
            return
        if update.key.kind is not Kind.DEFAULT:
            assert (update.key in self.tables) is (update.verb is not Verb.INSERT), str(update)
        self.tables = apply(self.tables, (update,))


@dataclass
class FakeSession:
    """A session to a fake switch that can be cut."""

    switch: str
    target: FakeSwitch
    pulled: asyncio.Event = field(default_factory=asyncio.Event)

    async def install_pipeline(self) -> bool:
        had_it, self.target.has_program = self.target.has_program, True
        return not had_it

    async def read(self) -> dict[EntityKey, Entity]:
        await self._answer("read")
        return dict(self.target.tables)

    async def write(self, batch: Batch) -> None:
        await self._answer("write")
        self.target.write(self.switch, batch)

    async def wait_lost(self) -> SessionError:
        await self.pulled.wait()
        return SessionError(self.switch, "listen", "unplugged")

    async def _answer(self, doing: str) -> None:
        await asyncio.sleep(0)
        while self.target.is_stuck and not self.pulled.is_set():
            await asyncio.sleep(0)
        if self.pulled.is_set():
            raise SessionError(self.switch, doing, "unplugged", code="UNAVAILABLE")


@dataclass
class Lab:
    """Fake switches under a daemon; tests advance the clock."""

    topology: Topology
    settings: AggregationSettings = SETTINGS
    switches: dict[str, FakeSwitch] = field(default_factory=dict)
    sessions: dict[str, FakeSession] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    clock: VirtualClock = field(default_factory=VirtualClock)
    failures: list[tuple[int, str]] = field(default_factory=list)
    proposals: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.switches = {node.name: FakeSwitch() for node in self.topology.switches}

    @asynccontextmanager
    async def connect(self, name: str) -> AsyncIterator[FakeSession]:
        await asyncio.sleep(0)
        if name in self.down:
            raise SessionError(name, "connect", "nobody there", code="UNAVAILABLE")
        self.sessions[name] = FakeSession(name, self.switches[name])
        yield self.sessions[name]

    async def sleep(self, seconds: float) -> None:
        end_ns = self.clock.now_ns() + round(seconds * 1e9)
        while self.clock.now_ns() < end_ns:
            await asyncio.sleep(0)

    def stop(self, name: str) -> None:
        """Switch off a switch, which loses its state."""
        self.down.add(name)
        self.switches[name] = FakeSwitch()
        self.sessions[name].pulled.set()

    def failed(self, number: int, reason: str) -> None:
        self.failures.append((number, reason))

    def should_move(self, number: int, reason: str) -> None:
        self.proposals.append((number, reason))


@dataclass
class Running:
    """A daemon over a lab, and its jobs."""

    lab: Lab
    daemon: Daemon
    jobs: JobReconciler
    down: set[LinkKey] = field(default_factory=set)

    def link_changed(self, link: LinkKey, *, up: bool) -> None:
        """Report a link change of a switch to the jobs only."""
        (self.down.discard if up else self.down.add)(link)
        assert self.daemon.features.aggregation is not None
        self.daemon.features.aggregation.avoid(frozenset(self.down))
        self.daemon._driver.sync(self.lab.switches)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass until a condition holds."""
        for _ in range(TURNS):
            if condition():
                return
            await self.turn()
        raise AssertionError(f"never: {self.daemon.status()}")

    async def turn(self) -> None:
        self.lab.clock.advance_to(self.lab.clock.now_ns() + MS)
        await asyncio.sleep(0)

    async def right(self) -> None:
        """Wait until every switch holds exactly the desired entries."""
        await self.until(lambda: all(self.is_right(name) for name in self.lab.switches))

    def is_right(self, name: str) -> bool:
        coordinator, held = self.daemon.coordinator, self.lab.switches[name].tables.keys()
        return name in coordinator.live and coordinator.is_right(name) and held == coordinator.held(name).keys()

    async def of(self, call: Awaitable[T]) -> T:
        """Let time pass until a call returns."""
        task = asyncio.ensure_future(call)
        await self.until(task.done)
        return task.result()

    async def moved(self, number: int) -> RunningJob:
        """Move a job and end the previous one, as the job service does."""
        job = await self.jobs.move(number)
        if job.number != number:
            with suppress(ControllerError):
                await self.jobs.end(number)
        return job

    def about(self, number: int) -> dict[str, set[str]]:
        """Return the tables of each switch that have entries of a job."""
        by_switch = {
            name: {key.table for key in switch.tables if dict(key.match).get("job") == number}
            for name, switch in self.lab.switches.items()
        }
        return {name: tables for name, tables in by_switch.items() if tables}


async def _no_routes() -> AsyncIterator[RouteSet]:
    yield RouteSet(0, ())


@asynccontextmanager
async def running(
    lab: Lab,
    more: Sequence[Owner] = (),
    states: AsyncIterator[Snapshot] | None = None,
    *,
    before: Callable[[Daemon], None] | None = None,
) -> AsyncIterator[Running]:
    """Run a daemon over a lab with all switches reconciled; `before` gets it before any is connected."""
    daemon = Daemon(
        Features(lab.topology, aggregation=lab.settings, more=more),
        lab.connect,
        _no_routes(),
        lab.clock,
        retry=RetrySettings(drain_ns=0, first_wait_ns=MS, longest_wait_ns=4 * MS, patience_ns=0),
        rng=random.Random(1),
        sleep=lab.sleep,
        states=states,
    )
    assert daemon.jobs is not None
    daemon.jobs.listen(lab)
    if before is not None:
        before(daemon)
    task = asyncio.create_task(daemon.run())
    run = Running(lab, daemon, daemon.jobs)
    try:
        await run.right()
        yield run
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
