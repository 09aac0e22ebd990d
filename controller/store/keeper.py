"""Keeps what switches hold of named content as it should be, one task a connected switch, beside the daemon's own.

At each producer's switch the most asked for names are copied: the switch tells hot names by a digest and counts the
packets of those that it holds, and once an interval it is decided who comes and who goes. Names that are recorded are
in their server's switch for as long as they are wanted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from controller.errors import ControllerError, SessionError
from controller.p4runtime.session import AsyncSession, Bundling, Learned, LearningSession
from controller.store.settings import RecordedSettings, StoreSettings
from controller.store.switch_store import Generations, RecordedName, SwitchStore
from controller.tables.entities import EntityKey
from controller.tables.store import DIGEST, PACKETS, Writer, hot_name
from dataplane.clock import Clock
from dataplane.fabric.topology import Topology
from dataplane.store.dialogues import segments_of
from dataplane.store.errors import StoreError
from dataplane.store.names import Segment, digest

LOGGER = logging.getLogger("millrace.controller")

Sleep = Callable[[float], Awaitable[None]]

BUNDLING = Bundling(messages=64, wait_ns=10_000_000)
"""Hot names come in lists, soon enough to tell how soon they became hot."""
_AGAIN_S = 1.0
_ANSWER_S = 30.0
"""For all that a switch is asked or told at a time."""


@dataclass(slots=True)
class _Part:
    """A switch's part of the store; `problem` is why it is not as it should be, empty when it is."""

    switch: str
    store: SwitchStore
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    right: asyncio.Condition = field(default_factory=asyncio.Condition)
    problem: str = "not connected yet"


class StoreKeeper:
    """Looks after the store in all switches; raises ControllerError for settings that do not fit the topology."""

    def __init__(
        self, topology: Topology, settings: StoreSettings, clock: Clock, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._topology, self._settings, self._clock, self._sleep = topology, settings, clock, sleep
        stores = switch_stores(topology, settings)
        self._parts = {switch: _Part(switch, store) for switch, store in stores.items()}
        for wanted in settings.recorded:
            want(topology, stores, wanted)

    def store(self, switch: str) -> SwitchStore:
        """Return what is known of a switch."""
        return self._parts[switch].store

    def problem(self, switch: str) -> str:
        """Return why a switch does not hold what it is to hold, nothing when it does."""
        return self._parts[switch].problem

    async def record(self, wanted: RecordedSettings, *, deadline_s: float = 10.0) -> None:
        """Return when the server's switch records a name; raise ControllerError, and want it no more, if it does not.

        Nobody remembers this over a restart of the controller: who wants it asks again.
        """
        switch = self._topology.attachment[_host(self._topology, wanted.server)].node
        part = self._parts[switch]
        want(self._topology, {name: one.store for name, one in self._parts.items()}, wanted)
        number = digest(wanted.name)
        part.changed.set()
        try:
            async with asyncio.timeout(deadline_s), part.right:
                await part.right.wait_for(lambda: part.store.is_recorded(number))
        except TimeoutError:
            self.forget(wanted)
            cause = part.problem or "no answer"
            raise ControllerError(f"{wanted.name}: {switch} does not have it after {deadline_s:g} s: {cause}") from None

    def forget(self, wanted: RecordedSettings) -> None:
        """Want a name to be recorded no more."""
        part = self._parts[self._topology.attachment[_host(self._topology, wanted.server)].node]
        part.store.forget(digest(wanted.name))
        part.changed.set()

    async def serve(self, switch: str, session: AsyncSession) -> None:
        """Look after a switch that is connected, and whose other tables are right, until cancelled."""
        if not isinstance(session, LearningSession):
            return
        part = self._parts[switch]
        try:
            while True:
                try:
                    await self._keep(part, session)
                except (SessionError, ControllerError) as error:
                    part.problem = str(error)
                    LOGGER.warning("store: %s", error)
                await self._sleep(_AGAIN_S)
        finally:
            part.problem = part.problem or "not connected"

    async def _keep(self, part: _Part, session: LearningSession) -> None:
        async with _answered(part.switch):
            entities, counted = await session.read(), await self._packets(part, session)
            part.store.connected(entities, counted, self._clock.now_ns())
            await session.learn(DIGEST, BUNDLING, partial(self._told, part))
        while True:
            part.changed.clear()
            async with _answered(part.switch):
                await self._bring(part, session)
            if await self._interval_over(part):
                async with _answered(part.switch):
                    part.store.interval(await self._packets(part, session), self._clock.now_ns())

    async def _bring(self, part: _Part, session: LearningSession) -> None:
        for batch in part.store.batches():
            await session.write(batch)
            part.store.acknowledged(batch)
        part.problem = ""
        async with part.right:
            part.right.notify_all()

    async def _interval_over(self, part: _Part) -> bool:
        """Wait for the end of an interval, or until something else is wanted."""
        changed = asyncio.ensure_future(part.changed.wait())
        ended = asyncio.ensure_future(self._sleep(self._settings.interval_ns / 1e9))
        try:
            await asyncio.wait((changed, ended), return_when=asyncio.FIRST_COMPLETED)
            return not changed.done()
        finally:
            changed.cancel()
            ended.cancel()

    @staticmethod
    async def _packets(part: _Part, session: LearningSession) -> dict[Segment, int]:
        return {} if part.store.is_idle else by_segment(await session.packets(PACKETS))

    def _told(self, part: _Part, learned: Learned) -> None:
        now_ns = self._clock.now_ns()
        for message in learned.messages:
            part.store.told(hot_name(message), now_ns)


@asynccontextmanager
async def _answered(switch: str) -> AsyncIterator[None]:
    """Raise SessionError when a switch has not answered for too long."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            yield
    except TimeoutError as error:
        raise SessionError(switch, "keep the store", f"no answer within {_ANSWER_S:g} s") from error


def switch_stores(topology: Topology, settings: StoreSettings) -> dict[str, SwitchStore]:
    """Return what each switch is to hold: copies for the producers that are plugged in at it."""
    producers: dict[str, set[int]] = {node.name: set() for node in topology.switches}
    for host in settings.producers:
        address = int(topology.host[_host(topology, host)].ipv4)
        producers[topology.attachment[host].node].add(address)
    generations = Generations()
    return {switch: SwitchStore(found, settings, generations) for switch, found in producers.items()}


def want(topology: Topology, stores: Mapping[str, SwitchStore], wanted: RecordedSettings) -> None:
    """Have a name recorded at its server's switch; raise ControllerError that names it."""
    switch = topology.attachment[_host(topology, wanted.server)].node
    writers = frozenset(_writer(topology, switch, host) for host in wanted.writers)
    try:
        number = digest(wanted.name)
    except StoreError as error:
        raise ControllerError(str(error)) from error
    try:
        stores[switch].record(RecordedName(number, segments_of(wanted.bytes), writers, wanted.forward))
    except ControllerError as error:
        raise ControllerError(f"{wanted.name}: {switch}: {error}") from error


def by_segment(packets: Mapping[EntityKey, int]) -> dict[Segment, int]:
    """Return what a switch has counted by segment."""
    found = {}
    for key, count in packets.items():
        match = dict(key.match)
        name, number = match["name"], match["segment"]
        if isinstance(name, int) and isinstance(number, int):
            found[Segment(name, number)] = count
    return found


def _writer(topology: Topology, switch: str, host: str) -> Writer:
    edge = topology.attachment[_host(topology, host)]
    return Writer(int(topology.host[host].ipv4), edge.port if edge.node == switch else 0)


def _host(topology: Topology, name: str) -> str:
    if name not in topology.host:
        raise ControllerError(f"store: topology {topology.name} has no host {name!r}")
    return name
