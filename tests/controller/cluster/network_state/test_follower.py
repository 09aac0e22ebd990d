"""Cost maps followed over a real feed and real routes, over restarts of the other side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest

from collectors.collector import Collector
from collectors.errors import FeedError
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedServer, FeedSettings
from collectors.values import LinkCondition, LinkStatus, Snapshot
from controller.cluster.cost_map import CostModel
from controller.cluster.cost_map.live import CostMapKeeper
from controller.cluster.network_state.follower import CostMapFollower, ask, follow
from controller.cluster.network_state.settings import NetworkStateSettings
from controller.common.errors import CostMapError, PathError
from controller.network.paths.records.values import LinkChange
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from controller.network.paths.service.process import serve
from controller.network.paths.settings import ManagedFlow, PathServerSettings, RecordSettings
from dataplane.clock import MonotonicClock, UtcClock, VirtualClock
from dataplane.topology.families import from_text
from dataplane.topology.values import LinkKey
from tests.controller.cluster.cost_map.fabrics import fabric
from tests.waiting import finish_within, until

T = TypeVar("T")
MS = 1_000_000
TOPOLOGY = fabric("ring:switches=4,hosts=1")
LINK = LinkKey("s1", "s2")


@pytest.fixture
def folder() -> Iterator[Path]:
    # A unix socket's path has about 100 bytes; pytest's own folders may be longer.
    with TemporaryDirectory(prefix="state") as name:
        yield Path(name)


def run(scenario: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        return await finish_within(scenario(), 20)

    return asyncio.run(bounded())


def settings_of(folder: Path, *, path_server: bool = False) -> NetworkStateSettings:
    return NetworkStateSettings(
        feed=f"unix:{folder}/feed",
        path_server=f"unix:{folder}/paths" if path_server else None,
        interval_ns=10 * MS,
    )


@asynccontextmanager
async def collecting(collector: Collector, folder: Path) -> AsyncIterator[None]:
    server = FeedServer(collector, FeedSettings(address=f"unix:{folder}/feed"))
    await server.start()
    try:
        yield
    finally:
        await server.stop()


@asynccontextmanager
async def routing(folder: Path) -> AsyncIterator[RouteClient]:
    """Run a path server that looks after h1 to h2."""
    settings = PathServerSettings(
        topology="unused",
        feed="unused",
        interval_ns=10 * MS,
        listen=f"unix:{folder}/paths",
        flows=(ManagedFlow(src="h1", dst="h2", rate_bps=1_000_000),),
        records=RecordSettings(database=str(folder / "paths.db")),
    )
    stop = asyncio.Event()
    async with FeedClient(FeedClientSettings(address=f"unix:{folder}/feed")) as feed:
        task = asyncio.create_task(serve(settings, TOPOLOGY, feed, UtcClock(), stop))
        try:
            async with RouteClient(RouteClientSettings(address=settings.listen)) as client:
                yield client
        finally:
            stop.set()
            await task


def test_maps_follow_the_collector_over_its_restart(folder: Path) -> None:
    async def scenario() -> None:
        collector = Collector(TOPOLOGY, MonotonicClock())
        async with follow(TOPOLOGY, settings_of(folder)) as follower, aclosing(follower.maps()) as maps:
            with pytest.raises(CostMapError, match="the collector has sent nothing yet"):
                follower.current()
            async with collecting(collector, folder):
                first = await anext(maps)
                assert [path.switches for path in first.costs.cost("h1", "h2").paths] == [("s1", "s2")]
                collector.note_links({LINK: LinkStatus(LinkCondition.DOWN, 0)})
                while (await anext(maps)).costs.cost("h1", "h2").paths[0].switches != ("s1", "s4", "s3", "s2"):
                    pass
            await until(lambda: follower.status.feed_problem is not None, "the feed has no problem")
            before = follower.current().version
            async with collecting(Collector(TOPOLOGY, MonotonicClock()), folder):
                while (await anext(maps)).version <= before:
                    pass
                assert follower.status.feed_problem is None

    run(scenario)


def test_maps_follow_routes(folder: Path) -> None:
    async def scenario() -> None:
        settings = settings_of(folder, path_server=True)
        async with (
            collecting(Collector(TOPOLOGY, MonotonicClock()), folder),
            follow(TOPOLOGY, settings) as follower,
            aclosing(follower.maps()) as maps,
        ):
            await until(lambda: follower.status.age_ns is not None, "no snapshot comes")
            with pytest.raises(CostMapError, match="has sent no routes yet"):
                follower.current()
            async with routing(folder) as paths:
                assert not (await anext(maps)).costs.cost("h1", "h2").explicit
                # The path server routes a flow around a link reported as down.
                await paths.link_changed(LinkChange(LINK, up=False))
                while not (cost := (await anext(maps)).costs.cost("h1", "h2")).explicit:
                    pass
                assert [path.switches for path in cost.paths] == [("s1", "s4", "s3", "s2")]
                once = (await ask(TOPOLOGY, settings)).costs.cost("h1", "h2")
                assert once.paths == cost.paths
            await until(lambda: follower.status.routes_problem is not None, "the routes have no problem")
            assert follower.current().costs.cost("h1", "h2").explicit

    run(scenario)


def test_single_query_fails_at_once_without_a_server(folder: Path) -> None:
    with pytest.raises(FeedError, match="collector at unix:"):
        run(lambda: ask(TOPOLOGY, settings_of(folder)))
    with pytest.raises(PathError, match="path server at unix:"):
        run(lambda: ask(TOPOLOGY, settings_of(folder, path_server=True)))


def test_a_collector_of_another_network_is_refused(folder: Path) -> None:
    async def scenario() -> None:
        async with collecting(Collector(from_text("ring:switches=3,hosts=1"), MonotonicClock()), folder):
            with pytest.raises(CostMapError, match="measures another network"):
                await ask(TOPOLOGY, settings_of(folder))

    run(scenario)


class FakeFeed:
    """Yields the test's items; raises those that are errors."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[Snapshot | Exception] = asyncio.Queue()

    async def snapshots(self, interval_ns: int) -> AsyncGenerator[Snapshot, None]:
        assert interval_ns == 7
        while True:
            item = await self.waiting.get()
            if isinstance(item, Exception):
                raise item
            yield item


def test_peer_of_another_version_is_named_and_asked_again_later() -> None:
    async def scenario() -> None:
        feed, clock, waits = FakeFeed(), VirtualClock(), asyncio.Queue[float]()

        async def sleep(seconds: float) -> None:
            waits.put_nowait(seconds)
            await asyncio.sleep(0)

        keeper = CostMapKeeper(CostModel(TOPOLOGY), wants_routes=False)
        follower = CostMapFollower(keeper, feed, None, clock, interval_ns=7, sleep=sleep)
        task = asyncio.create_task(follower.run())
        feed.waiting.put_nowait(FeedError("this version does not understand its answer"))
        assert await waits.get() > 0
        with pytest.raises(CostMapError, match="nothing yet; this version does not understand its answer"):
            follower.current()
        feed.waiting.put_nowait(Snapshot(5, {}, {}, {}))
        assert (await follower.first(10)).version == 1
        clock.advance_to(11_000_000_000)
        with pytest.raises(CostMapError, match=r"11\.0 s old"):
            follower.current()
        task.cancel()

    run(scenario)


def test_foreign_error_ends_following_and_is_raised() -> None:
    async def scenario() -> None:
        feed = FakeFeed()
        follower = CostMapFollower(
            CostMapKeeper(CostModel(TOPOLOGY), wants_routes=False), feed, None, VirtualClock(), interval_ns=7
        )
        feed.waiting.put_nowait(ZeroDivisionError("a bug"))
        with pytest.raises(ExceptionGroup):
            await follower.run()
        with pytest.raises(CostMapError, match="a bug"):
            follower.current()

    run(scenario)
