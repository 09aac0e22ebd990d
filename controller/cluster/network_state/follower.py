"""Current cost maps for schedulers: followed from the collector's feed and the path server's routes.

Both reconnect after restarts of the other side. While the path server is down its last routes stay in force, as they do
in switches; while the collector is down the last map grows old and is then refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from collectors.errors import FeedError
from collectors.feed.states.feed_time import FeedTime
from collectors.shards.client import feed_at
from collectors.values import Snapshot
from controller.cluster.cost_map.live import CostMapKeeper, LiveCosts
from controller.cluster.cost_map.model import CostModel
from controller.cluster.cost_map.values import HostLinkState
from controller.cluster.network_state.settings import NetworkStateSettings
from controller.common.errors import CostMapError
from controller.network.intents import RouteSet
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from dataplane.clock import Clock, MonotonicClock
from dataplane.errors import MillraceError
from dataplane.topology.values import Topology

LOGGER: Final = logging.getLogger("millrace.network_state")
_AGAIN_S: Final = 5.0
"""Delay before retrying after an error due to the other side's version."""


class SnapshotFeed(Protocol):
    """Source of snapshots: `collectors.feed.client.FeedClient`."""

    def snapshots(self, interval_ns: int) -> AsyncGenerator[Snapshot, None]:
        """Yield a snapshot at every interval, reconnecting after restarts."""
        ...


class RouteFeed(Protocol):
    """Source of routes: `controller.network.paths.service.client.RouteClient`."""

    def routes(self) -> AsyncIterator[RouteSet]:
        """Yield the current routes, then each newer set, reconnecting after restarts."""
        ...


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """Status of a follower: the age of the newest state (ns), None before the first, and what it waits for."""

    age_ns: int | None
    version: int
    has_routes: bool
    feed_problem: str | None
    routes_problem: str | None


class CostMapFollower:
    """Follows the network's state while `run` runs; one subscription serves all callers.

    `current` and `status` may be called at any time in the event loop of `run`; maps are immutable and may be shared.
    """

    def __init__(
        self,
        keeper: CostMapKeeper,
        feed: SnapshotFeed,
        routes: RouteFeed | None,
        clock: Clock,
        *,
        interval_ns: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._keeper, self._feed, self._routes, self._clock = keeper, feed, routes, clock
        self._interval_ns, self._sleep = interval_ns, sleep
        self._time = FeedTime()
        self._working = asyncio.Lock()
        self._changed = asyncio.Event()
        self._problems: dict[str, str] = {}

    async def run(self) -> None:
        """Follow until cancelled; failures of the other sides show up as problems in `status` and never end it."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep("feed", self._watch_feed))
                if self._routes is not None:
                    group.create_task(self._keep("routes", partial(self._watch_routes, self._routes)))
        except* Exception as errors:
            self.note_problem("feed", f"following the network's state failed: {errors.exceptions[0]!r}")
            raise

    def current(self) -> LiveCosts:
        """Return the newest map; raise CostMapError, in one line, if there is none, or none recent enough."""
        try:
            return self._keeper.current(self._clock.now_ns())
        except CostMapError as error:
            reasons = "; ".join(self._problems.values())
            raise CostMapError(f"{error}; {reasons}" if reasons else str(error)) from None

    async def first(self, patience_s: float) -> LiveCosts:
        """Return a map as soon as one is usable; raise CostMapError after waiting this long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                async with aclosing(self.maps()) as maps:
                    async for live in maps:
                        return live
        return self.current()

    async def maps(self) -> AsyncGenerator[LiveCosts, None]:
        """Yield the current map, if there is one, then each newer one; a slow reader gets only the newest."""
        version = 0
        while True:
            changed = self._changed
            newest = self._keeper.newest
            if newest is not None and newest.version != version and self._is_usable():
                version = newest.version
                yield newest
            elif changed is self._changed:
                await changed.wait()

    @property
    def status(self) -> FollowerStatus:
        """Current status of the follower."""
        newest = self._keeper.newest
        return FollowerStatus(
            age_ns=self._keeper.age_ns(self._clock.now_ns()),
            version=0 if newest is None else newest.version,
            has_routes=self._keeper.has_routes,
            feed_problem=self._problems.get("feed"),
            routes_problem=self._problems.get("routes"),
        )

    def take_host_links(self, states: Iterable[HostLinkState]) -> None:
        """Accept hosts' latest measurements of their own links; PathError for an unknown host."""
        self._keeper.take_host_links(states, self._clock.now_ns())

    def note_problem(self, subject: str, line: str) -> None:
        """Record why `feed` or `routes` is being waited for."""
        if subject not in self._problems:
            LOGGER.warning("%s", line)
        self._problems[subject] = line

    def _is_usable(self) -> bool:
        try:
            self._keeper.current(self._clock.now_ns())
        except CostMapError:
            return False
        return True

    async def _keep(self, subject: str, watch: Callable[[], Awaitable[None]]) -> None:
        """Retry forever: a peer with an incompatible version may be replaced by a compatible one."""
        while True:
            try:
                await watch()
            except MillraceError as error:
                self.note_problem(subject, str(error))
            await self._sleep(_AGAIN_S)

    async def _watch_feed(self) -> None:
        async with aclosing(self._feed.snapshots(self._interval_ns)) as snapshots:
            async for snapshot in snapshots:
                self._time.observe(snapshot.taken_ns, self._clock.now_ns())
                # The feed's times are by another machine's clock.
                taken_ns = snapshot.taken_ns + self._time.offset_ns
                await self._work("feed", partial(self._keeper.observe, snapshot, taken_ns))

    async def _watch_routes(self, source: RouteFeed) -> None:
        async for routes in source.routes():
            await self._work("routes", partial(self._keeper.take_routes, routes))

    async def _work(self, subject: str, call: Callable[[], None]) -> None:
        """Build a map outside the event loop, one at a time, and notify waiters."""
        async with self._working:
            await asyncio.to_thread(call)
        if self._problems.pop(subject, None) is not None:
            LOGGER.info("%s recovered", subject)
        self._changed.set()
        self._changed = asyncio.Event()


@asynccontextmanager
async def follow(
    topology: Topology | CostModel, settings: NetworkStateSettings, *, clock: Clock | None = None
) -> AsyncIterator[CostMapFollower]:
    """Follow the network's state while the block runs; the other sides may start later.

    Raise FeedError and PathError for invalid addresses.
    """
    model = topology if isinstance(topology, CostModel) else CostModel(topology)
    keeper = CostMapKeeper(model, wants_routes=settings.path_server is not None, stale_after_ns=settings.stale_after_ns)
    feed = feed_at(
        settings.feed,
        model.topology,
        tls=settings.tls,
        on_wait=lambda line: follower.note_problem("feed", line),
    )
    routes = None
    if settings.path_server is not None:
        routes = RouteClient(
            RouteClientSettings(address=settings.path_server, tls=settings.tls),
            on_wait=lambda line: follower.note_problem("routes", line),
        )
    follower = CostMapFollower(keeper, feed, routes, clock or MonotonicClock(), interval_ns=settings.interval_ns)
    async with feed, routes or _nothing():
        task = asyncio.create_task(follower.run(), name="follow the network's state")
        try:
            yield follower
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def ask(topology: Topology | CostModel, settings: NetworkStateSettings, *, patience_s: float = 10.0) -> LiveCosts:
    """Return the current cost map without waiting for the other sides: one that is down is an error at once.

    Raise FeedError, PathError, or CostMapError for data that does not fit the topology.
    """
    model = topology if isinstance(topology, CostModel) else CostModel(topology)
    keeper = CostMapKeeper(model, wants_routes=settings.path_server is not None, stale_after_ns=settings.stale_after_ns)
    if settings.path_server is not None:
        async with RouteClient(RouteClientSettings(address=settings.path_server, tls=settings.tls)) as routes:
            keeper.take_routes(await routes.current_routes())
    try:
        async with (
            asyncio.timeout(patience_s),
            feed_at(settings.feed, model.topology, tls=settings.tls) as feed,
        ):
            # Unlike a stream, this fails at once if the collector is down.
            keeper.observe(await feed.snapshot(), 0)
    except TimeoutError:
        raise FeedError(f"collector at {settings.feed}: no answer within {patience_s:.0f} s") from None
    return keeper.current(0)


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield
