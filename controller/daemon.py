"""The controller daemon: one session a switch, tables as they should be, routes as the path server wants them.

Three kinds of task share one `Coordinator` on one event loop: `_tend` keeps a switch connected and right, `_follow`
takes the newest set of routes, `_steer` sends the steps that the plan allows. A switch that is gone holds up only the
flows that need it. When the daemon ends, the switches keep their tables and traffic goes on.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from collectors.errors import FeedError
from collectors.state import NetworkStateBuilder
from collectors.values import Snapshot
from controller.aggregation.keeper import JobKeeper
from controller.coordinator import Coordinator
from controller.daemon_settings import RetrySettings
from controller.errors import ControllerError, PathError, SessionError
from controller.intents import RouteSet
from controller.link_keeper import LinkKeeper
from controller.link_status import RETURN_AFTER_NS, LinkWatch
from controller.p4runtime.session import AsyncSession
from controller.reconcile import MAX_BATCH
from controller.tables.entities import Batch, Entities, Kind, Update
from controller.tables.int_domain import IntDomain
from controller.tables.int_watch import Watch
from controller.tables.reporting import Reporting
from controller.telemetry_change import Stage, longest_flight_ns
from controller.update_plan import Phase, Step
from dataplane.clock import Clock
from dataplane.fabric.topology import LinkKey
from dataplane.rpc.backoff import Backoff

LOGGER = logging.getLogger("millrace.controller")


class SwitchSession(AsyncSession, Protocol):
    """An open session that can install the program and tells when it ends."""

    async def install_pipeline(self) -> bool:
        """Make the switch run the program; return whether it had to be sent."""
        ...

    async def wait_lost(self) -> SessionError:
        """Return why the session ended, when it has."""
        ...


class Companion(Protocol):
    """Whoever looks after something in switches beside their tables as a whole."""

    async def serve(self, switch: str, session: SwitchSession) -> None:
        """Look after a switch that is connected and right, until cancelled; SessionError: no longer this time."""
        ...


_UNIMPLEMENTED = "UNIMPLEMENTED"

Connect = Callable[[str], AbstractAsyncContextManager[SwitchSession]]
"""Opens a session to a switch by name, as primary controller; raises SessionError."""

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """What the daemon is about: switches that are right, those that are not and why, and the routes in force."""

    live: tuple[str, ...]
    problems: Mapping[str, str]
    wanted_version: int | None
    pending_entries: int
    settled: bool
    rejected_route_sets: int
    source_problem: str | None
    writes: int


@dataclass(slots=True)
class _Switch:
    """What the daemon keeps of a switch beside its tables."""

    name: str
    backoff: Backoff
    session: SwitchSession | None = None
    doubt: asyncio.Event = field(default_factory=asyncio.Event)
    jobs: asyncio.Event = field(default_factory=asyncio.Event)
    is_new: bool = False
    """It has held nothing before this daemon."""
    problem: str = "not connected yet"


class Daemon:
    """Keeps a fabric's tables right until its task is cancelled; make it inside a running event loop."""

    def __init__(
        self,
        coordinator: Coordinator,
        connect: Connect,
        routes: AsyncIterator[RouteSet],
        clock: Clock,
        *,
        retry: RetrySettings,
        rng: random.Random,
        sleep: Sleep = asyncio.sleep,
        states: AsyncIterator[Snapshot] | None = None,
        companions: Sequence[Companion] = (),
        return_after_ns: int = RETURN_AFTER_NS,
    ) -> None:
        """Place jobs by the newest of `states`, by the topology's own figures without it."""
        self.coordinator = coordinator
        self._connect, self._routes, self._clock, self._retry, self._sleep = connect, routes, clock, retry, sleep
        self._switches = {
            node.name: _Switch(node.name, Backoff(retry.first_wait_ns, retry.longest_wait_ns, rng))
            for node in coordinator.topology.switches
        }
        self._changed = asyncio.Event()
        self._telemetry_changed = asyncio.Event()
        self._everybody_seen = asyncio.Event()
        self._seen: set[str] = set()
        self._made_ns: int | None = None
        self._companions = tuple(companions)
        self._rejected = 0
        self._source_problem: str | None = None
        self._writes = 0
        self._sending = False
        self.jobs: JobKeeper | None = None
        if coordinator.aggregation is not None:
            state = NetworkStateBuilder(coordinator.topology, clock).snapshot()
            self.jobs = JobKeeper(coordinator.aggregation, _Writer(coordinator, self._switches), clock, state, sleep)
        self._states = states
        watch = LinkWatch(coordinator.topology, return_after_ns=return_after_ns)
        self.links = LinkKeeper(coordinator, watch, clock, self._avoid, sleep)
        """Takes what switches say of their ports."""

    async def run(self) -> None:
        """Tend every switch and follow the routes until cancelled."""
        async with asyncio.TaskGroup() as group:
            for switch in self._switches.values():
                group.create_task(self._tend(switch), name=f"tend {switch.name}")
            group.create_task(self._follow(), name="follow routes")
            group.create_task(self._steer(), name="steer")
            group.create_task(self._change_telemetry(), name="change telemetry")
            group.create_task(self.links.run(), name="keep links")
            if self.jobs is not None:
                group.create_task(self.jobs.run(), name="keep jobs")
                if self._states is not None:
                    group.create_task(_observe(self.jobs, self._states), name="observe")

    def configure(self, watches: Sequence[Watch], reporting: Reporting, domain: IntDomain) -> None:
        """Want other telemetry on every switch; raise ControllerError, and change nothing, if it does not fit."""
        self.coordinator.configure(watches, reporting, domain)
        self._telemetry_changed.set()

    def _avoid(self, died: Set[LinkKey], back: Set[LinkKey]) -> None:
        """Write what it takes to go around dead links: routes, the way of reports, jobs."""
        self._changed.set()
        for switch in self._switches.values():
            switch.jobs.set()
        if self.jobs is not None:
            for link in died | back:
                self.jobs.link_changed(link, up=link in back)

    def status(self) -> DaemonStatus:
        """Return what is and what is not as it should be."""
        plan = self.coordinator.plan()
        routes = self.coordinator.routes
        live = self.coordinator.live
        is_right = len(live) == len(self._switches) and self.coordinator.telemetry.is_settled
        return DaemonStatus(
            tuple(sorted(live)),
            {name: switch.problem for name, switch in self._switches.items() if name not in live},
            None if routes is None else routes.version,
            len(plan.pending),
            is_right and not plan.steps and not plan.pending and not self._sending,
            self._rejected,
            self._source_problem,
            self._writes,
        )

    async def _tend(self, switch: _Switch) -> None:
        """Connect, make right, wait for the end or for doubt; again and again, waiting longer while it fails."""
        while True:
            try:
                async with self._connect(switch.name) as session:
                    self.coordinator.forgive()
                    await self._serve(switch, session)
            except SessionError as error:
                switch.problem = str(error)
                LOGGER.warning("%s", error)
            finally:
                switch.session = None
                self.coordinator.lost(switch.name)
                if self.jobs is not None:
                    self.jobs.lost(switch.name)
                self._changed.set()
            await self._sleep(switch.backoff.next_s())

    async def _serve(self, switch: _Switch, session: SwitchSession) -> None:
        """Keep a connected switch right; raise SessionError when its session ends."""
        if await session.install_pipeline():
            switch.is_new = True
            LOGGER.info("switch %s: pipeline installed", switch.name)
        ended = asyncio.create_task(session.wait_lost())
        company: list[asyncio.Task[None]] = []
        try:
            while not ended.done():
                switch.doubt.clear()
                await self._reconcile(switch, session)
                if switch.session is session and not company:
                    company = [asyncio.create_task(_accompany(one, switch.name, session)) for one in self._companions]
                while await self._told(switch, ended):
                    await self._bring_jobs(switch, session)
                self.coordinator.lost(switch.name)
            raise ended.result()
        finally:
            ended.cancel()
            for one in company:
                one.cancel()
            await asyncio.gather(*company, return_exceptions=True)

    @staticmethod
    async def _told(switch: _Switch, ended: asyncio.Task[SessionError]) -> bool:
        """Wait, and return whether it is for jobs only that something is to be done."""
        doubt, jobs = (asyncio.create_task(event.wait()) for event in (switch.doubt, switch.jobs))
        try:
            await asyncio.wait((ended, doubt, jobs), return_when=asyncio.FIRST_COMPLETED)
        finally:
            doubt.cancel()
            jobs.cancel()
        return not ended.done() and not switch.doubt.is_set()

    async def _bring_jobs(self, switch: _Switch, session: SwitchSession) -> None:
        """Have a switch that is right hold what is wanted of jobs: first cells are cleared, then entries written.

        Before that its reports are sent around dead links.
        """
        switch.jobs.clear()
        for batch in self.coordinator.report_updates(switch.name):
            if not await self._write_jobs(switch, session, batch):
                return
            self.coordinator.acknowledged(switch.name, batch)
        for number, batches in self.coordinator.clearings(switch.name).items():
            for batch in batches:
                if not await self._write_jobs(switch, session, batch):
                    return
            self.coordinator.cleared(number, switch.name)
        for batch in self.coordinator.sums(switch.name):
            if not await self._write_jobs(switch, session, batch):
                return
            self.coordinator.acknowledged(switch.name, batch)
        self.coordinator.brought(switch.name)
        if self.jobs is not None:
            self.jobs.brought(switch.name)

    async def _write_jobs(self, switch: _Switch, session: SwitchSession, batch: Batch) -> bool:
        """Write a batch; return whether it was taken, else what the switch holds is to be read again."""
        try:
            await session.write(batch)
        except SessionError as error:
            if error.code == _UNIMPLEMENTED and batch[0].key.kind is Kind.REGISTER:
                return self._spare_clearing(switch, batch, error)
            if not self._refuse_jobs(switch, batch, error):
                raise
            return False
        self._writes += 1
        return True

    def _spare_clearing(self, switch: _Switch, batch: Batch, error: SessionError) -> bool:
        """Return whether cells that a switch cannot clear will do: whatever is in them is of jobs of other numbers."""
        if switch.is_new and not self.coordinator.has_repeated_numbers:
            return True
        cause = "it cannot clear cells, and may hold sums of jobs from before; restart it"
        refusal = SessionError(switch.name, "clear cells", cause, code=error.code, refused=error.refused)
        self._refuse_jobs(switch, batch, refusal)
        return False

    def _refuse_jobs(self, switch: _Switch, batch: Batch, error: SessionError) -> bool:
        """Return whether it was only jobs that a switch refused; then they end, and it is looked at again."""
        refused = [batch[place] for place in error.refused]
        if self.jobs is None or not self.jobs.refuse(switch.name, refused, str(error)):
            return False
        LOGGER.warning("%s", error)
        switch.doubt.set()
        return True

    async def _reconcile(self, switch: _Switch, session: SwitchSession) -> None:
        batches = self.coordinator.connected(switch.name, await session.read())
        for batch in batches:
            try:
                await session.write(batch)
            except SessionError as error:
                if self._refuse_jobs(switch, batch, error):
                    return
                if not self.coordinator.refuse([batch[place] for place in error.refused]):
                    if error.refused and self.coordinator.telemetry.roll_back():
                        LOGGER.warning("telemetry is as it was before: %s", error)
                        self._telemetry_changed.set()
                        return
                    raise
                # A switch is not given up for a flow that it has no place for: look again, without that flow.
                LOGGER.warning("%s", error)
                switch.doubt.set()
                return
            self._writes += 1
            self.coordinator.acknowledged(switch.name, batch)
        switch.session, switch.problem = session, ""
        switch.backoff.reset()
        self.coordinator.reconciled(switch.name)
        switch.jobs.set()
        self._telemetry_changed.set()
        count = sum(map(len, batches))
        LOGGER.info("switch %s: right, after %d %s", switch.name, count, "update" if count == 1 else "updates")
        self._seen.add(switch.name)
        if len(self._seen) == len(self._switches):
            self._everybody_seen.set()
        self._changed.set()

    async def _change_telemetry(self) -> None:
        """Have every switch look again when telemetry comes to another stage, and wait where packets are to arrive."""
        change, seen = self.coordinator.telemetry, self.coordinator.telemetry.number
        while True:
            await self._telemetry_changed.wait()
            self._telemetry_changed.clear()
            if change.number == seen:
                continue
            seen = change.number
            LOGGER.info("telemetry: %s", change.stage)
            if change.stage is Stage.DRAIN:
                await self._sleep(max(self._retry.drain_ns, longest_flight_ns(self.coordinator.topology)) / 1e9)
                change.drained(seen)
                self._telemetry_changed.set()
            else:
                for switch in self._switches.values():
                    switch.doubt.set()

    async def _follow(self) -> None:
        """Take every set of routes that comes; without a source the switches keep the paths that they have."""
        try:
            async for routes in self._routes:
                self._take(routes)
        except PathError as error:
            self._source_problem = str(error)
            LOGGER.critical("no more routes: %s", error)

    def _take(self, routes: RouteSet) -> None:
        try:
            self.coordinator.want(routes)
        except ControllerError as error:
            self._rejected += 1
            LOGGER.warning("routes version %d are not taken: %s", routes.version, error)
        else:
            self._changed.set()

    async def _steer(self) -> None:
        """Send steps as long as there are any, then wait for a change."""
        await self._meet_everybody()
        while True:
            await self._changed.wait()
            self._changed.clear()
            while (step := self.coordinator.next_step()) is not None:
                wait_ns = self._drain_ns(step)
                if wait_ns > 0:
                    # What is wanted may change meanwhile, so the step is worked out again afterwards.
                    await self._sleep(wait_ns / 1e9)
                    continue
                await self._send(step)

    async def _meet_everybody(self) -> None:
        """Wait until every switch was read once, or the patience ends.

        After a restart of the controller the switches hold paths that it does not know; judged by a part of them,
        an entry might be removed while an unread switch still sends to it.
        """
        seen = asyncio.create_task(self._everybody_seen.wait())
        patience = asyncio.ensure_future(self._sleep(self._retry.patience_ns / 1e9))
        try:
            await asyncio.wait((seen, patience), return_when=asyncio.FIRST_COMPLETED)
        finally:
            seen.cancel()
            patience.cancel()

    def _drain_ns(self, step: Step) -> int:
        if step.phase is Phase.MAKE or self._made_ns is None:
            return 0
        return self._made_ns + self._retry.drain_ns - self._clock.now_ns()

    async def _send(self, step: Step) -> None:
        """Write one step to its switches at the same time and wait for all of them."""
        self._sending = True
        try:
            await asyncio.gather(*(self._write(self._switches[name], step.updates[name]) for name in step.updates))
        finally:
            self._sending = False
        if step.phase is Phase.MAKE:
            self._made_ns = self._clock.now_ns()

    async def _write(self, switch: _Switch, updates: tuple[Update, ...]) -> None:
        session = switch.session
        for start in range(0, len(updates), MAX_BATCH):
            batch: Batch = updates[start : start + MAX_BATCH]
            try:
                if session is None:
                    raise SessionError(switch.name, "write", "the session has ended")
                await session.write(batch)
                self._writes += 1
            except SessionError as error:
                self._doubt(switch, session, batch, error)
                return
            if switch.session is session:
                self.coordinator.acknowledged(switch.name, batch)

    def _doubt(self, switch: _Switch, session: SwitchSession | None, batch: Batch, error: SessionError) -> None:
        """Stop using a switch whose tables are no longer known for sure, and have them read again."""
        LOGGER.warning("%s", error)
        self.coordinator.refuse([batch[place] for place in error.refused])
        if switch.session is session:
            switch.problem = str(error)
            self.coordinator.lost(switch.name)
            switch.doubt.set()


async def _observe(jobs: JobKeeper, states: AsyncIterator[Snapshot]) -> None:
    """Show jobs what the network is like; without a source they stay where they are."""
    try:
        async for state in states:
            jobs.observe(state)
    except FeedError as error:
        LOGGER.critical("no more states of the network: %s", error)


async def _accompany(companion: Companion, switch: str, session: SwitchSession) -> None:
    try:
        await companion.serve(switch, session)
    except SessionError as error:
        LOGGER.warning("%s", error)


@dataclass(frozen=True, slots=True)
class _Writer:
    """What a `JobKeeper` needs of a daemon."""

    coordinator: Coordinator
    switches: Mapping[str, _Switch]

    @property
    def live(self) -> frozenset[str]:
        return self.coordinator.live

    def held(self, switch: str) -> Entities:
        return self.coordinator.held(switch)

    def bring(self, switches: Iterable[str]) -> None:
        for switch in switches:
            self.switches[switch].jobs.set()

    def problem(self, switch: str) -> str:
        return self.switches[switch].problem
