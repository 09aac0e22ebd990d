"""The reader of several feeds, over real sockets: collectors that come, end and return."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from collectors.collector import Collector
from collectors.errors import CollectorError, FeedError
from collectors.feed.server import FeedServer, FeedSettings
from collectors.settings import CollectorSettings, StateSettings
from collectors.shards.client import ShardedFeed
from collectors.shards.membership import Announcement, Membership
from collectors.shards.settings import CollectorLeases
from collectors.values import LinkCondition, LinkStatus, Snapshot
from dataplane.clock import MonotonicClock
from dataplane.leases.sqlite import SqliteLeases
from dataplane.topology.families import leaf_spine
from dataplane.topology.values import LinkKey
from tests.collectors.reports import Reporter, build_topology, long_way
from tests.controller.common.standby.test_lease import Time
from tests.waiting import finish_within, until

MS = 1_000_000
BOUND_S = 60.0
LEASE_NS = 60_000 * MS
LONG = StateSettings(window_ns=600_000 * MS, stale_after_ns=600_000 * MS)
SETTINGS = CollectorSettings(state=LONG)
"""Windows that outlast a slow machine."""


@pytest.fixture
def folder() -> Iterator[Path]:
    # A unix socket's path has about 100 bytes; pytest's own folders may be longer.
    with TemporaryDirectory(prefix="shards") as path:
        yield Path(path)


class Shard:
    """A collector with its feed, in this process."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.address = name, f"unix:{folder / name}"
        self.collector = Collector(build_topology(), MonotonicClock(), SETTINGS)
        self.reporter = Reporter()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Shard]:
        server = FeedServer(self.collector, FeedSettings(address=self.address))
        await server.start()
        try:
            yield self
        finally:
            await server.stop()


async def until_received(feed: ShardedFeed, count: int) -> Snapshot:
    """Return the first merged state with this many reports."""
    async with aclosing(feed.snapshots(10 * MS)) as snapshots:
        async for snapshot in snapshots:
            if sum(state.received for state in snapshot.reporters.values()) >= count:
                return snapshot
    raise AssertionError("the feed has ended")


def reported(shard: Shard, count: int) -> None:
    for _ in range(count):
        shard.collector.receive(shard.reporter.stacked(long_way()))


def test_feeds_are_merged_and_one_that_ends_stops_nothing(folder: Path) -> None:
    async def scenario() -> None:
        one, other = (Shard(folder, name) for name in "ab")
        async with AsyncExitStack() as stack, one.serving():
            first_life = await stack.enter_async_context(AsyncExitStack())
            await first_life.enter_async_context(other.serving())
            feed = await stack.enter_async_context(
                ShardedFeed(build_topology(), [one.address, other.address], state=LONG)
            )
            reported(one, 3)
            reported(other, 4)
            merged = await until_received(feed, 7)
            assert merged.links[LinkKey("s1", "s2")].samples == 7
            assert len(merged.paths) == 1
            await first_life.aclose()
            reported(one, 2)
            assert (await until_received(feed, 9)).links[LinkKey("s1", "s2")].samples == 9
            assert (await feed.snapshot()).links[LinkKey("s1", "s2")].samples == 9
            returned = Shard(folder, "b")
            async with returned.serving():
                reported(returned, 1)
                # What its predecessor had measured still counts, until it is old.
                assert (await until_received(feed, 10)).links[LinkKey("s1", "s2")].samples == 10

    asyncio.run(finish_within(scenario(), BOUND_S))


def test_collectors_are_found_by_their_leases(folder: Path) -> None:
    async def scenario() -> None:
        with SqliteLeases(str(folder / "leases"), 10.0, CollectorError) as storage:
            one, other = (Shard(folder, name) for name in "ab")
            clock = Time()
            members = [
                Membership(
                    storage, Announcement(shard.name, "h2", 1, shard.address), lease_ns=60_000 * MS, now_ns=clock
                )
                for shard in (one, other)
            ]

            def renewed(*addresses: str) -> bool:
                """Renew the leases, and return whether these are the feeds in use."""
                clock.pass_ms(20_000)
                for member in members:
                    member.step()
                return set(feed.feeds) == set(addresses)

            leases = CollectorLeases(sqlite=str(folder / "leases"))
            async with one.serving(), other.serving(), ShardedFeed(build_topology(), leases) as feed:
                await until(lambda: renewed(one.address, other.address))
                reported(one, 3)
                reported(other, 4)
                await until_received(feed, 7)
                members.pop().release()
                await until(lambda: renewed(one.address))
                reported(one, 1)
                assert sum(state.received for state in (await until_received(feed, 8)).reporters.values()) == 8

    asyncio.run(finish_within(scenario(), BOUND_S))


def test_notes_reach_every_collector(folder: Path) -> None:
    async def scenario() -> None:
        one, other = (Shard(folder, name) for name in "ab")
        down = {LinkKey("s1", "s2"): LinkStatus(LinkCondition.DOWN, 5, "port down")}
        async with one.serving(), ShardedFeed(build_topology(), [one.address, other.address]) as feed:
            with pytest.raises(FeedError, match=f"collector at {other.address}"):
                await feed.note_links(down)
            async with other.serving():
                while not other.collector.snapshot().statuses:
                    # The connection waits before it tries again.
                    with suppress(FeedError):
                        await feed.note_links(down)
                    await asyncio.sleep(0.01)
                statuses = [shard.collector.snapshot().statuses for shard in (one, other)]
                assert [set(status) for status in statuses] == [set(down)] * 2

    asyncio.run(finish_within(scenario(), BOUND_S))


def test_state_without_any_collector_is_an_error(folder: Path) -> None:
    async def scenario() -> None:
        async with ShardedFeed(build_topology(), [f"unix:{folder}/a", f"unix:{folder}/b"]) as feed:
            with pytest.raises(FeedError, match=f"^no collector answers: unix:{folder}/a, unix:{folder}/b$"):
                await feed.snapshot()

    asyncio.run(finish_within(scenario(), BOUND_S))


def test_collector_that_does_not_fit_is_left_out_and_told(folder: Path) -> None:
    async def scenario() -> None:
        one, other = (Shard(folder, name) for name in "ab")
        short = StateSettings(window_ns=1000 * MS)
        other.collector = Collector(build_topology(), MonotonicClock(), CollectorSettings(state=short))
        told = list[str]()
        addresses = [one.address, other.address]
        async with (
            one.serving(),
            other.serving(),
            ShardedFeed(build_topology(), addresses, state=LONG, on_wait=told.append) as feed,
        ):
            reported(one, 3)
            await until_received(feed, 3)

            async def is_told() -> bool:
                await feed.snapshot()
                return any(
                    "its state has another window or tx_window than the others': it is left out" in line
                    for line in told
                )

            await until(is_told, lambda: told)

    asyncio.run(finish_within(scenario(), BOUND_S))


def test_collector_of_another_fabric_is_left_out(folder: Path) -> None:
    async def scenario() -> None:
        one = Shard(folder, "a")
        async with one.serving(), ShardedFeed(leaf_spine(1, 1, 1), [one.address, f"unix:{folder}/b"]) as feed:
            with pytest.raises(FeedError, match=f"{one.address}: its links are not those of topology leaf-spine-1-1-1"):
                await anext(feed.snapshots(10 * MS))

    asyncio.run(finish_within(scenario(), BOUND_S))


def test_overtaken_state_is_left_out_and_moves_no_clock(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that a stopped collector had sent arrives after newer ones."""

    async def scenario() -> None:
        one = Shard(folder, "a")
        async with one.serving(), ShardedFeed(build_topology(), [one.address, f"unix:{folder}/b"], state=LONG) as feed:
            newest = await feed.snapshot()
            client = feed.feeds[one.address]
            whole = client.snapshot

            async def overtaken() -> Snapshot:
                return replace(await whole(), taken_ns=1)

            monkeypatch.setattr(client, "snapshot", overtaken)
            reported(one, 3)
            assert (await feed.snapshot()).reporters == newest.reporters
            monkeypatch.undo()
            later = await feed.snapshot()
            assert newest.taken_ns <= later.taken_ns <= time.monotonic_ns()
            assert sum(state.received for state in later.reporters.values()) == 3

    asyncio.run(finish_within(scenario(), BOUND_S))
