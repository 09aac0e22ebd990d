"""Handling of dead links by the daemon: ports and switches in; routes around dead links, and their status, out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Set
from dataclasses import replace
from typing import Final, Protocol

from collectors.values import LinkCondition, LinkStatus
from controller.network.links.publisher import LinkStatusPublisher
from controller.network.links.status import LinkStatusTable
from dataplane.clock import NS_PER_S, Clock
from dataplane.switch.ports.states import PortState
from dataplane.topology.values import LinkKey

LOGGER: Final = logging.getLogger("millrace.controller")

DRAINED: Final = "drained"
"""Cause that is stated for a link which works, and is drained."""


class Routing(Protocol):
    """Routes traffic over links, and around dead ones: the coordinator."""

    @property
    def down(self) -> frozenset[LinkKey]:
        """The avoided links."""
        ...

    def avoid(self, down: Set[LinkKey]) -> bool:
        """Avoid these links from now on, both ways; return whether they differ from the previous ones."""
        ...


class LinkMonitor:
    """Makes traffic avoid dead links, and publishes the status of all links."""

    def __init__(
        self,
        routing: Routing,
        table: LinkStatusTable,
        clock: Clock,
        on_change: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        drained: Callable[[], Iterable[LinkKey]] = tuple,
    ) -> None:
        """Call `on_change` whenever what the switches should hold has changed; `drained` returns the drained links."""
        self._routing, self._table, self._clock = routing, table, clock
        self._on_change, self._sleep, self._drained = on_change, sleep, drained
        self._due = asyncio.Event()
        self.publisher = LinkStatusPublisher(self._published)

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
            # Clear before asking the table: a report that comes later sets it again.
            self._due.clear()
            due_ns = self._table.due_ns()
            if due_ns is None:
                await self._due.wait()
                continue
            await self._sleep(max(0, due_ns - self._clock.now_ns()) / NS_PER_S)
            self._note(self._table.tick(self._clock.now_ns()))

    def _published(self) -> dict[LinkKey, LinkStatus]:
        """Return the status of all links; drained ones say so unless they are down."""
        statuses = self._table.statuses(self._clock.now_ns())
        for link in self._drained():
            status = statuses.get(link)
            if status is not None and status.condition is LinkCondition.UP:
                statuses[link] = replace(status, cause=DRAINED)
        return statuses

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
            LOGGER.info("link %s is alive again", link)
        if self._routing.avoid(down):
            self._on_change()
        self.publisher.changed()
