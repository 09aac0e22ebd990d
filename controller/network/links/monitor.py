"""Handling of dead links by the daemon: ports and switches in; routes around dead links, and their status, out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass
from typing import Final, Protocol

from collectors.values import LinkStatus
from controller.network.links.status import LinkStatusTable
from dataplane.clock import Clock
from dataplane.errors import MillraceError
from dataplane.switch.ports.states import PortState
from dataplane.topology.values import LinkKey

# Publishing the status of links to the path server and the collector: at each change, and again after a while.
#
# A subscriber may have restarted meanwhile, so all that is known is sent each time.


INTERVAL_S: Final = 2.0
"""Interval at which the state is sent when nothing changes."""
_PATIENCE_S: Final = 5.0

Send = Callable[[Mapping[LinkKey, LinkStatus]], Awaitable[None]]


def _nothing(_: str) -> None:
    """Ignore a recovery."""


class LinkStatusPublisher:
    """The newest status of all links, for any number of tasks that send it to subscribers."""

    def __init__(self, statuses: Callable[[], Mapping[LinkKey, LinkStatus]]) -> None:
        self._statuses = statuses
        self._waiting: set[asyncio.Event] = set()

    def changed(self) -> None:
        """Send to every subscriber at once."""
        for event in self._waiting:
            event.set()

    async def publish_to(self, subscriber: Subscriber) -> None:
        """Keep one subscriber up to date until cancelled; a failure to reach it is reported once while it lasts."""
        event, problem = asyncio.Event(), ""
        self._waiting.add(event)
        try:
            while True:
                event.clear()
                problem_now = await _send_once(subscriber, self._statuses())
                if problem_now and problem_now != problem:
                    subscriber.on_problem(f"{subscriber.name} does not hear of dead links: {problem_now}")
                elif problem and not problem_now:
                    subscriber.on_return(f"{subscriber.name} hears of dead links again")
                problem = problem_now
                await _wait_for(event, INTERVAL_S)
        finally:
            self._waiting.discard(event)


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Recipient of link statuses: how to reach it, and callbacks for failures."""

    name: str
    send: Send
    on_problem: Callable[[str], None]
    on_return: Callable[[str], None] = _nothing


async def _send_once(subscriber: Subscriber, statuses: Mapping[LinkKey, LinkStatus]) -> str:
    """Send once; return why it failed, '' if it did not."""
    try:
        await asyncio.wait_for(subscriber.send(statuses), _PATIENCE_S)
    except TimeoutError:
        return f"no answer within {_PATIENCE_S:.0f} s"
    except MillraceError as error:
        return str(error)
    return ""


async def _wait_for(event: asyncio.Event, longest_s: float) -> None:
    """Wait for an event, no longer than that."""
    try:
        await asyncio.wait_for(event.wait(), longest_s)
    except TimeoutError:
        return


LOGGER: Final = logging.getLogger("millrace.controller")


class Routing(Protocol):
    """Routes traffic over links, and around dead ones: the coordinator."""

    @property
    def down(self) -> frozenset[LinkKey]:
        """The links that are avoided."""
        ...

    def avoid(self, down: Set[LinkKey]) -> bool:
        """Keep off these links from now on, both ways; return whether they are others than before."""
        ...


class LinkMonitor:
    """Has traffic avoid dead links, and publishes the status of all of them."""

    def __init__(
        self,
        routing: Routing,
        table: LinkStatusTable,
        clock: Clock,
        on_change: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Call `on_change` whenever what the switches should hold has changed."""
        self._routing, self._table, self._clock = routing, table, clock
        self._on_change, self._sleep = on_change, sleep
        self._due = asyncio.Event()
        self.publisher = LinkStatusPublisher(lambda: table.statuses(clock.now_ns()))

    def port_changed(self, switch: str, state: PortState) -> None:
        """Take a switch's report of one of its ports."""
        self._note(self._table.port_changed(switch, state, self._clock.now_ns()))

    def reachable(self, switch: str) -> None:
        """Note that a switch can be asked for its ports again."""
        self._note(self._table.reachable(switch, self._clock.now_ns()))

    def unreachable(self, switch: str) -> None:
        """Note that a switch cannot be asked for its ports: its neighbours, not it, report on its links."""
        self._note(self._table.unreachable(switch, self._clock.now_ns()))

    async def run(self) -> None:
        """Take links back into use when they have been up for long enough, until cancelled."""
        while True:
            self._due.clear()
            due_ns = self._table.due_ns()
            if due_ns is None:
                await self._due.wait()
                continue
            await self._sleep(max(0, due_ns - self._clock.now_ns()) / 1e9)
            self._note(self._table.tick(self._clock.now_ns()))

    def _note(self, changed: bool) -> None:
        self._due.set()
        if not changed:
            return
        before, down = self._routing.down, self._table.down
        statuses = self._table.statuses(self._clock.now_ns())
        died, back = down - before, before - down
        for link in sorted(died, key=str):
            LOGGER.warning("link %s is dead: %s", link, statuses[link].cause)
        for link in sorted(back, key=str):
            LOGGER.info("link %s is back", link)
        if self._routing.avoid(down):
            self._on_change()
        self.publisher.changed()
