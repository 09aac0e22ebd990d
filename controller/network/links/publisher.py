"""Publishing the status of links to the path server and the collector: at each change, and again after a while.

A subscriber may have restarted meanwhile, so the full state is sent each time.
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
                # Clear before sending, so that a change meanwhile is sent right afterwards.
                event.clear()
                problem_now = await _send_once(subscriber, self._statuses())
                if problem_now and problem_now != problem:
                    subscriber.on_problem(f"{subscriber.name} cannot be notified of dead links: {problem_now}")
                elif problem and not problem_now:
                    subscriber.on_return(f"{subscriber.name} receives notifications of dead links again")
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
        # Not wait_for, which in Python 3.11 swallows a cancellation that comes as the answer does.
        async with asyncio.timeout(_PATIENCE_S):
            await subscriber.send(statuses)
    except TimeoutError:
        return f"no answer within {_PATIENCE_S:.0f} s"
    except MillraceError as error:
        return str(error)
    return ""


async def _wait_for(event: asyncio.Event, longest_s: float) -> None:
    """Wait for an event, or until the timeout."""
    try:
        async with asyncio.timeout(longest_s):
            await event.wait()
    except TimeoutError:
        return
