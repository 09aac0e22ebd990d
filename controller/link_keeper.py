"""What the daemon does about links that die: ports and switches in, routes around dead links and news of them out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from controller.coordinator import Coordinator
from controller.link_news import LinkNews
from controller.link_status import LinkWatch
from dataplane.clock import Clock
from dataplane.switch.ports.states import PortState

LOGGER: Final = logging.getLogger("millrace.controller")


class LinkKeeper:
    """Has a coordinator keep off dead links, and says so to everybody who follows `news`."""

    def __init__(
        self,
        coordinator: Coordinator,
        watch: LinkWatch,
        clock: Clock,
        on_change: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Call `on_change` whenever what the coordinator wants has changed."""
        self._coordinator, self._watch, self._clock = coordinator, watch, clock
        self._on_change, self._sleep = on_change, sleep
        self._due = asyncio.Event()
        self.news = LinkNews(lambda: watch.statuses(clock.now_ns()))

    def port_changed(self, switch: str, state: PortState) -> None:
        """Take what a switch says of one of its ports."""
        self._note(self._watch.port_changed(switch, state, self._clock.now_ns()))

    def answers(self, switch: str) -> None:
        """Note that a switch can be asked for its ports again."""
        self._note(self._watch.reachable(switch, self._clock.now_ns()))

    def is_silent(self, switch: str) -> None:
        """Note that a switch cannot be asked for its ports: it says nothing of its links, its neighbours do."""
        self._note(self._watch.unreachable(switch, self._clock.now_ns()))

    async def run(self) -> None:
        """Take links back into use when they have been up for long enough, until cancelled."""
        while True:
            self._due.clear()
            due_ns = self._watch.due_ns()
            if due_ns is None:
                await self._due.wait()
                continue
            await self._sleep(max(0, due_ns - self._clock.now_ns()) / 1e9)
            self._note(self._watch.tick(self._clock.now_ns()))

    def _note(self, changed: bool) -> None:
        self._due.set()
        if not changed:
            return
        before, down = self._coordinator.down, self._watch.down
        statuses = self._watch.statuses(self._clock.now_ns())
        died, back = down - before, before - down
        for link in sorted(died, key=str):
            LOGGER.warning("link %s is dead: %s", link, statuses[link].cause)
        for link in sorted(back, key=str):
            LOGGER.info("link %s is back", link)
        if self._coordinator.avoid(down):
            self._on_change()
        self.news.changed()
