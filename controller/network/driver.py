"""Drives a fabric's switches over asynchronous sessions, as a `Coordinator` directs; it knows no owner by name.

Each switch has a task that keeps it connected, reads it and reconciles it (`_maintain`), and one for each owner that
listens to it; one task sends the steps that concern several switches (`_apply_steps`), and each owner whose changes
have stages has one that takes all switches through them. A switch that is gone delays only what needs it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from controller.common.errors import ControllerError, SessionError
from controller.common.tracing import NO_SPAN, UNTRACED, Attributes, Traces
from controller.network.coordinator import Coordinator, Exchange
from controller.network.daemon_settings import RetrySettings
from controller.network.owners.base import ListeningOwner, StagedOwner
from controller.network.owners.steps import Step
from controller.network.p4runtime.session import AsyncSession, Learned, LearningSession
from controller.network.tables.entities import Entities, Update
from dataplane.clock import NS_PER_S, Clock
from dataplane.event_loop.deadlines import loop_timeout
from dataplane.event_loop.turns import Turns
from dataplane.rpc.backoff import Backoff

LOGGER = logging.getLogger("millrace.controller")

_LISTEN_AGAIN_S: Final = 1.0
_ANSWER_S: Final = 30.0
"""Timeout of a switch for all requests of a listening owner at a time."""
_FILL_S: Final = 5.0
"""A switch that takes longer to fill does not block others."""
_CONNECT_S: Final = 1.0
"""A switch that takes longer to answer does not block calls to others."""
_CONNECTS_PER_FILL: Final = 4
_RPC: Final = {"rpc.system.name": "grpc", "rpc.method": "p4.v1.P4Runtime/Write"}
"""OpenTelemetry's attributes of a write."""


class SwitchSession(AsyncSession, Protocol):
    """An open session that can install the program and reports its end."""

    async def install_pipeline(self) -> bool:
        """Make the switch run the program; return whether it had to be sent."""
        ...

    async def wait_lost(self) -> SessionError:
        """Return why the session ended, when it has."""
        ...


Connect = Callable[[str], AbstractAsyncContextManager[SwitchSession]]
"""Opens a session to a switch by name, as primary controller; raises SessionError."""

Sleep = Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class _Switch:
    """State that the driver keeps of a switch, apart from its tables."""

    name: str
    backoff: Backoff
    session: SwitchSession | None = None
    doubt: asyncio.Event = field(default_factory=asyncio.Event)
    """Set if its tables must be read again."""
    work: asyncio.Event = field(default_factory=asyncio.Event)
    """An owner may have work for it."""
    problem: str = "not connected yet"


class Driver:
    """Keeps switches reconciled until its task is cancelled; construct it inside a running event loop."""

    def __init__(
        self,
        coordinator: Coordinator,
        connect: Connect,
        clock: Clock,
        *,
        retry: RetrySettings,
        rng: random.Random,
        sleep: Sleep = asyncio.sleep,
        traces: Traces = UNTRACED,
    ) -> None:
        self.coordinator = coordinator
        self._traces, self._applying = traces, NO_SPAN
        self._connect, self._clock, self._retry, self._sleep = connect, clock, retry, sleep
        self._switches = {
            node.name: _Switch(node.name, Backoff(retry.first_wait_ns, retry.longest_wait_ns, rng))
            for node in coordinator.topology.switches
        }
        self._steps_changed, self._somebody_seen = asyncio.Event(), asyncio.Event()
        # Limits: all programs and tables at once need too much memory, and all first calls at once would time out.
        self._fill = Turns(retry.at_once, _FILL_S)
        self._begin = Turns(_CONNECTS_PER_FILL * retry.at_once, _CONNECT_S)
        self._staged = {owner.name: asyncio.Event() for owner in coordinator.staged}
        self._seen: set[str] = set()
        self._sending = False
        self.writes = 0
        """Batches acknowledged by switches."""

    async def run(self) -> None:
        """Maintain every switch, and send the steps that concern several, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for switch in self._switches.values():
                group.create_task(self._maintain(switch), name=f"maintain {switch.name}")
            group.create_task(self._apply_steps(), name="apply steps")
            for owner in self.coordinator.staged:
                group.create_task(self._follow_stages(owner), name=f"stages of {owner.name}")

    @property
    def live(self) -> frozenset[str]:
        """The switches whose tables are known and can be written."""
        return self.coordinator.live

    @property
    def is_sending(self) -> bool:
        """Return whether a step is in flight."""
        return self._sending

    def held(self, switch: str) -> Entities:
        """Return the known entities of a switch."""
        return self.coordinator.held(switch)

    def problem(self, switch: str) -> str:
        """Return why a switch is not reconciled, '' if it is or the reason is unknown."""
        return self._switches[switch].problem

    def sync(self, switches: Iterable[str]) -> None:
        """Bring each switch to its owners' desired state."""
        for name in switches:
            self._switches[name].work.set()

    def changed(self) -> None:
        """Bring all switches to the owners' desired state: each one, by steps, and by stages."""
        self.sync(self._switches)
        self.steps_changed()
        self._stages_changed()

    def routes_changed(self, version: int, traceparent: str) -> None:
        """Send the steps of a new set of routes, traced in this context."""
        self._applying.end("superseded by newer routes")
        about = {"millrace.routes.version": version}
        self._applying = self._traces.begin("apply routes", about, parent=traceparent)
        self.steps_changed()

    def steps_changed(self) -> None:
        """Send the steps to the owners' desired state."""
        self._steps_changed.set()

    async def _maintain(self, switch: _Switch) -> None:
        """Connect, reconcile, and wait for the end or for doubt, in a loop; back off while it fails."""
        while True:
            try:
                async with AsyncExitStack() as stack:
                    async with self._begin.turn():
                        session = await stack.enter_async_context(self._connect(switch.name))
                    self.coordinator.forgive()
                    switch.session = session
                    await self._serve(switch, session)
            except SessionError as error:
                if switch.problem != str(error):
                    # Logged once while it stays the same: an absent switch is tried several times a second.
                    LOGGER.warning("%s", error)
                switch.problem = str(error)
            finally:
                switch.session = None
                self.coordinator.lost(switch.name)
                self.steps_changed()
            await self._sleep(switch.backoff.next_s())

    async def _serve(self, switch: _Switch, session: SwitchSession) -> None:
        """Keep a connected switch reconciled; raise SessionError when its session ends."""
        async with self._fill.turn():
            if await session.install_pipeline():
                self.coordinator.installed(switch.name)
                LOGGER.info("switch %s: pipeline installed", switch.name)
        ended = asyncio.create_task(session.wait_lost())
        listeners: list[asyncio.Task[None]] = []
        try:
            while not ended.done():
                # Clear before reading, so that doubt that arises meanwhile causes another reading.
                switch.doubt.clear()
                await _cancel(listeners)
                async with self._fill.turn():
                    is_right = await self._reconcile(switch, session)
                listeners = self._listeners(switch, session) if is_right else []
                while await self._wait_for_work(switch, ended):
                    switch.work.clear()
                    if await self._carry_out(switch, session, self.coordinator.sync(switch.name)) is None:
                        switch.doubt.set()
                self.coordinator.lost(switch.name)
            raise ended.result()
        finally:
            ended.cancel()
            await _cancel(listeners)

    @staticmethod
    async def _wait_for_work(switch: _Switch, ended: asyncio.Task[SessionError]) -> bool:
        """Wait, and return whether there is work at a switch whose tables are known."""
        doubt, work = (asyncio.create_task(event.wait()) for event in (switch.doubt, switch.work))
        try:
            await asyncio.wait((ended, doubt, work), return_when=asyncio.FIRST_COMPLETED)
        finally:
            doubt.cancel()
            work.cancel()
        return not ended.done() and not switch.doubt.is_set()

    async def _reconcile(self, switch: _Switch, session: SwitchSession) -> bool:
        """Read a switch and reconcile it; return False if it must be read again."""
        exchange = self.coordinator.reconcile(switch.name, await session.read())
        count = await self._carry_out(switch, session, exchange)
        if count is None:
            switch.doubt.set()
            return False
        switch.problem = ""
        switch.backoff.reset()
        switch.work.set()
        LOGGER.info("switch %s: reconciled, %d %s written", switch.name, count, "update" if count == 1 else "updates")
        if switch.name not in self._seen:
            self._seen.add(switch.name)
            self._somebody_seen.set()
        self.steps_changed()
        return True

    async def _carry_out(self, switch: _Switch, session: SwitchSession | None, exchange: Exchange) -> int | None:
        """Send an exchange's batches and return its result; also None if the session was replaced meanwhile."""
        answer: SessionError | None = None
        try:
            batch = next(exchange)
            while True:
                answer = None
                try:
                    if session is None:
                        raise SessionError(switch.name, "write", "the session has ended")
                    await session.write(batch)
                    self.writes += 1
                except SessionError as error:
                    answer = error
                # The session was replaced meanwhile: the answer says nothing about the new one.
                if switch.session is not session:
                    return None
                batch = exchange.send(answer)
        except StopIteration as done:
            count: int | None = done.value
            if count is None:
                switch.problem = str(answer)
            return count
        finally:
            exchange.close()
            self._stages_changed()

    def _stages_changed(self) -> None:
        for event in self._staged.values():
            event.set()

    async def _follow_stages(self, owner: StagedOwner) -> None:
        """Have every switch read again when a change enters another stage, and pause where the stage requires it."""
        seen, changed = owner.number, self._staged[owner.name]
        while True:
            await changed.wait()
            changed.clear()
            if owner.number == seen:
                continue
            seen, pause_ns = owner.number, owner.pause_ns
            LOGGER.info("%s: %s", owner.name, owner.stage)
            if pause_ns is not None:
                await self._sleep(max(self._retry.drain_ns, pause_ns) / NS_PER_S)
                owner.paused(seen)
                changed.set()
                continue
            for switch in self._switches.values():
                switch.doubt.set()

    async def _apply_steps(self) -> None:
        """Send steps as long as there are any, then wait for a change."""
        await self._meet_everybody()
        while True:
            await self._steps_changed.wait()
            # Clear before planning, so that a change meanwhile wakes this loop again.
            self._steps_changed.clear()
            while (step := self.coordinator.next_step()) is not None:
                wait_ns = self.coordinator.not_before_ns(step, self._retry.drain_ns) - self._clock.now_ns()
                if wait_ns > 0:
                    # The desired state may change meanwhile, so the step is computed again afterwards.
                    await self._sleep(wait_ns / NS_PER_S)
                    continue
                await self._send(step)
            if self._applying is not NO_SPAN and not self.coordinator.plan().pending:
                self._applying.end()
                self._applying = NO_SPAN

    async def _meet_everybody(self) -> None:
        """Wait until every switch was read once, or no other one for the length of the patience.

        After a restart of the controller the switches hold paths that it does not know: deciding by some of them, it
        might remove an entry that an unread switch still sends to.
        """
        while len(self._seen) < len(self._switches):
            self._somebody_seen.clear()
            seen = asyncio.create_task(self._somebody_seen.wait())
            patience = asyncio.ensure_future(self._sleep(self._retry.patience_ns / NS_PER_S))
            try:
                await asyncio.wait((seen, patience), return_when=asyncio.FIRST_COMPLETED)
            finally:
                seen.cancel()
                patience.cancel()
            if not self._somebody_seen.is_set():
                return

    async def _send(self, step: Step) -> None:
        """Write one step to its switches at the same time and wait for all of them."""
        self._sending = True
        try:
            await asyncio.gather(*(self._write(self._switches[name], step.updates[name]) for name in step.updates))
        finally:
            self._sending = False
        self.coordinator.stepped(step, self._clock.now_ns())

    async def _write(self, switch: _Switch, updates: tuple[Update, ...]) -> None:
        """Write a switch's part of a step; stop using a switch whose tables are no longer certain."""
        session, problem = switch.session, "the session has ended"
        about: Attributes = {"millrace.switch": switch.name, "millrace.updates": len(updates), **_RPC}
        span = self._traces.begin("write", about, parent=self._applying.traceparent, is_call=True)
        try:
            if await self._carry_out(switch, session, self.coordinator.write(switch.name, updates)) is not None:
                problem = ""
                return
        except SessionError as error:
            LOGGER.warning("%s", error)
            switch.problem = problem = str(error)
        finally:
            span.end(problem)
        if switch.session is session:
            self.coordinator.lost(switch.name)
            switch.doubt.set()

    def _listeners(self, switch: _Switch, session: SwitchSession) -> list[asyncio.Task[None]]:
        if not isinstance(session, LearningSession):
            return []
        return [asyncio.create_task(self._listen(switch, session, owner)) for owner in self.coordinator.listening]

    async def _listen(self, switch: _Switch, session: LearningSession, owner: ListeningOwner) -> None:
        """Pass the counts and digests of a reconciled switch to an owner, until cancelled."""
        while True:
            try:
                await self._listen_once(switch, session, owner)
            except (SessionError, ControllerError) as error:
                owner.unheard(switch.name, str(error))
                LOGGER.warning("%s: %s", owner.name, error)
            await self._sleep(_LISTEN_AGAIN_S)

    async def _listen_once(self, switch: _Switch, session: LearningSession, owner: ListeningOwner) -> None:
        learn = partial(self._learned, switch.name, owner)
        async with _answered(switch.name):
            await self._count(switch, session, owner)
            for digest, bundling in owner.digests.items():
                await session.learn(digest, bundling, learn)
        while True:
            await self._sleep(owner.interval_ns / NS_PER_S)
            async with _answered(switch.name):
                await self._count(switch, session, owner)

    async def _count(self, switch: _Switch, session: LearningSession, owner: ListeningOwner) -> None:
        counter = owner.counter(switch.name)
        packets = {} if counter is None else await session.packets(counter)
        owner.counted(switch.name, packets, self._clock.now_ns())
        switch.work.set()

    def _learned(self, switch: str, owner: ListeningOwner, learned: Learned) -> None:
        owner.learned(switch, learned, self._clock.now_ns())


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _answered(switch: str) -> AsyncIterator[None]:
    """Raise SessionError when a switch has not answered for too long."""
    try:
        async with loop_timeout(_ANSWER_S):
            yield
    except TimeoutError as error:
        raise SessionError(switch, "listen", f"no answer within {_ANSWER_S:g} s") from error
