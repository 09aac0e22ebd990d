"""Clients of the chain's daemons: status asked for all the time, how long answers take, and route sets as they come."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.values import CollectorStatus
from controller.network.paths.records.values import PathServerStatus
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from controller.network.status.service import ControllerClient, ControllerClientSettings
from controller.network.status.values import ControllerStatus
from dataplane.errors import MillraceError
from dataplane.load.values import DaemonLoad

POLL_S = 0.2
_LONGEST_S = 30.0
_FIGURE = re.compile(r"[\d.,]+")

T = TypeVar("T")


class StatusPoll(Generic[T]):
    """Asks a daemon for its status again and again; keeps the newest, and the longest time without an answer."""

    def __init__(self, ask: Callable[[], Awaitable[T]], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._clock_s = ask, clock_s
        self.newest: T | None = None
        self.answers = 0
        self.causes: dict[str, str] = {}
        """Causes of overload that the daemon has named, the last text of each by that text without its figures."""
        self._longest_s = 0.0
        self._asked_s: float | None = None
        self._excused = 0

    @property
    def longest_s(self) -> float:
        """The longest time from a question to the next answer, one that is open included."""
        waiting_s = 0.0 if self._asked_s is None or self._excused else self._clock_s() - self._asked_s
        return max(self._longest_s, waiting_s)

    @contextmanager
    def excused(self) -> Iterator[None]:
        """While the block lasts, the daemon need not answer: it is away, and a question that is open begins after."""
        self._excused += 1
        try:
            yield
        finally:
            self._excused -= 1
            self._asked_s = None

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            if self._asked_s is None:
                self._asked_s = self._clock_s()
            try:
                self.newest = await asyncio.wait_for(self._ask(), _LONGEST_S)
            except (MillraceError, TimeoutError):
                await asyncio.sleep(POLL_S)
                continue
            self.answers += 1
            self.causes |= {_FIGURE.sub("", cause): cause for cause in _causes(self.newest)}
            if self._asked_s is not None and not self._excused:
                self._longest_s = max(self._longest_s, self._clock_s() - self._asked_s)
            self._asked_s = None
            await asyncio.sleep(POLL_S)

    async def fresh(self) -> T:
        """Return a status of now; raise TimeoutError if there is none."""
        before, deadline = self.answers, self._clock_s() + _LONGEST_S
        while self.newest is None or self.answers < before + 2:
            if self._clock_s() > deadline:
                raise TimeoutError("a daemon does not answer")
            await asyncio.sleep(POLL_S / 4)
        return self.newest


def _causes(status: object) -> set[str]:
    """Return the causes of overload that a status names; those of some daemons have none."""
    load = getattr(status, "load", None)
    return {overload.cause for overload in load.overloads} if isinstance(load, DaemonLoad) else set()


class Lateness:
    """Delay of this process itself: an answer that arrives meanwhile appears late by this much."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def run(self) -> None:
        """Sleep and look at the clock until cancelled."""
        while True:
            due_s = time.monotonic() + POLL_S / 4
            await asyncio.sleep(POLL_S / 4)
            self.longest_s = max(self.longest_s, time.monotonic() - due_s)


Poll: TypeAlias = StatusPoll[CollectorStatus] | StatusPoll[PathServerStatus] | StatusPoll[ControllerStatus]


@dataclass(frozen=True, slots=True)
class Clients:
    """Those of a chain in a folder; `controller` is None where there is none."""

    routes: RouteClient
    collector: StatusPoll[CollectorStatus]
    paths: StatusPoll[PathServerStatus]
    controller: StatusPoll[ControllerStatus] | None
    lateness: Lateness

    @property
    def polls(self) -> dict[str, Poll]:
        """The polls by the daemon's name."""
        every: dict[str, Poll] = {"collector": self.collector, "paths": self.paths}
        return every if self.controller is None else every | {"controller": self.controller}

    @property
    def longest_s(self) -> float:
        """The longest that any of them waited."""
        return max(poll.longest_s for poll in self.polls.values())


@asynccontextmanager
async def clients(folder: Path, *, controller: bool) -> AsyncIterator[Clients]:
    """Ask all daemons of a folder while the block lasts."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        feed = await enter(FeedClient(FeedClientSettings(address=f"unix:{folder}/collector.sock")))
        paths = await enter(RouteClient(RouteClientSettings(address=f"unix:{folder}/paths.sock")))
        routes = await enter(RouteClient(RouteClientSettings(address=f"unix:{folder}/paths.sock")))
        third = None
        if controller:
            settings = ControllerClientSettings(address=f"unix:{folder}/controller.sock")
            third = StatusPoll((await enter(ControllerClient(settings))).status)
        connected = Clients(routes, StatusPoll(feed.status), StatusPoll(paths.status), third, Lateness())
        tasks = [asyncio.create_task(poll.run()) for poll in connected.polls.values()]
        tasks.append(asyncio.create_task(connected.lateness.run()))
        try:
            yield connected
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
