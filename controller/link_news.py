"""Telling the path server and the collector which links are dead: at each change, and again after a while.

Whoever is told may have begun anew meanwhile, so all that is known is told each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from collectors.values import LinkStatus
from dataplane.errors import MillraceError
from dataplane.topology.values import LinkKey

INTERVAL_S: Final = 2.0
"""How often what is known is told when nothing changes."""
_PATIENCE_S: Final = 5.0

Tell = Callable[[Mapping[LinkKey, LinkStatus]], Awaitable[None]]


class LinkNews:
    """The newest condition of all links, for any number of tasks that pass it on."""

    def __init__(self, statuses: Callable[[], Mapping[LinkKey, LinkStatus]]) -> None:
        self._statuses = statuses
        self._waiting: set[asyncio.Event] = set()

    def changed(self) -> None:
        """Have everybody told at once."""
        for event in self._waiting:
            event.set()

    async def pass_on(self, listener: Listener) -> None:
        """Tell one listener until cancelled; a listener that cannot be told is a problem, told once while it lasts."""
        event, problem = asyncio.Event(), ""
        self._waiting.add(event)
        try:
            while True:
                event.clear()
                found = await _told(listener, self._statuses())
                if found and found != problem:
                    listener.on_problem(f"{listener.name} does not hear of dead links: {found}")
                problem = found
                await _either(event, INTERVAL_S)
        finally:
            self._waiting.discard(event)


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is to be told, how, and who hears when that fails."""

    name: str
    tell: Tell
    on_problem: Callable[[str], None]


async def _told(listener: Listener, statuses: Mapping[LinkKey, LinkStatus]) -> str:
    """Tell once; return why it failed, '' if it did not."""
    try:
        await asyncio.wait_for(listener.tell(statuses), _PATIENCE_S)
    except TimeoutError:
        return f"no answer within {_PATIENCE_S:.0f} s"
    except MillraceError as error:
        return str(error)
    return ""


async def _either(event: asyncio.Event, longest_s: float) -> None:
    """Wait for an event, no longer than that."""
    try:
        await asyncio.wait_for(event.wait(), longest_s)
    except TimeoutError:
        return
