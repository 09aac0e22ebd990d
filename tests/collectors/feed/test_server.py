"""The feed over a real unix socket: snapshots, records, status, slow readers, versions, restarts of the collector."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import grpc.aio
import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError, FeedError
from collectors.feed import feed_pb2, links_pb2
from collectors.feed import server as feed_server
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedServer, FeedSettings
from collectors.statistics.link_windows import figures_of, merged
from collectors.values import DropRecord, HopRecord, JobNote, Snapshot
from dataplane.clock import VirtualClock
from dataplane.wire.completion import Completion
from dataplane.wire.drop_reasons import DropReason
from tests.collectors.reports import Reporter, build_topology, long_way
from tests.waiting import finish_within, until

T = TypeVar("T")
MS = 1_000_000
FEED = feed_pb2.DESCRIPTOR.services_by_name["Feed"]


@pytest.fixture
def address() -> Iterator[str]:
    # A unix socket's path has about 100 bytes; pytest's own folders may be longer.
    with TemporaryDirectory(prefix="feed") as folder:
        yield f"unix:{Path(folder) / 'socket'}"


def run(scenario: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        return await finish_within(scenario(), 20)

    return asyncio.run(bounded())


@asynccontextmanager
async def serving(collector: Collector, settings: FeedSettings) -> AsyncIterator[FeedServer]:
    server = FeedServer(collector, settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def make_collector() -> Collector:
    return Collector(build_topology(), VirtualClock())


def test_snapshots_are_put_into_bytes_beside_the_event_loop(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports can be taken meanwhile."""
    threads, encode = set[str](), feed_server.snapshot_bytes

    def noted(snapshot: Snapshot) -> bytes:
        threads.add(threading.current_thread().name)
        return encode(snapshot)

    monkeypatch.setattr(feed_server, "snapshot_bytes", noted)

    async def scenario() -> None:
        async with (
            serving(make_collector(), FeedSettings(address=address)),
            FeedClient(FeedClientSettings(address=address)) as client,
        ):
            await anext(client.snapshots(MS))

    run(scenario)
    assert threads
    assert threading.main_thread().name not in threads


def test_no_snapshots_are_sent_more_often_than_the_settings_say(address: str) -> None:
    async def scenario() -> None:
        async with (
            serving(make_collector(), FeedSettings(address=address, shortest_interval_ns=3600_000 * MS)),
            FeedClient(FeedClientSettings(address=address)) as client,
            aclosing(client.snapshots(1)) as snapshots,
        ):
            await anext(snapshots)
            second = asyncio.ensure_future(anext(snapshots))
            for _ in range(50):  # which take longer than a nanosecond
                await client.status()
            assert not second.done()
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)

    run(scenario)


def test_whoever_stops_reading_ends_the_stream_of_snapshots(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks for single snapshots must not leave a stream behind each time."""
    asked, encode = list[int](), feed_server.snapshot_bytes

    def counted(snapshot: Snapshot) -> bytes:
        asked.append(1)
        return encode(snapshot)

    monkeypatch.setattr(feed_server, "snapshot_bytes", counted)

    async def scenario() -> None:
        async with (
            serving(make_collector(), FeedSettings(address=address)),
            FeedClient(FeedClientSettings(address=address)) as client,
        ):
            for _ in range(5):
                async with aclosing(client.snapshots(MS)) as snapshots:
                    await anext(snapshots)
            async with aclosing(client.snapshots(MS)) as snapshots:
                for _ in range(3):
                    await anext(snapshots)
                before = len(asked)
                for _ in range(10):
                    await anext(snapshots)
                # Our own stream's, and one that may be under way.
                assert len(asked) - before <= 11

    run(scenario)


def test_names_of_jobs_reach_the_collector(address: str) -> None:
    async def scenario() -> None:
        collector = make_collector()
        collector.receive(Reporter().item(12, Completion(3, 0, 0, 10, 0, 0)))
        async with (
            serving(collector, FeedSettings(address=address)),
            FeedClient(FeedClientSettings(address=address)) as client,
        ):
            await client.name_jobs({3: JobNote("resnet", epoch=2)})
            (state,) = (await anext(client.snapshots(MS))).jobs.values()
            assert (state.name, state.epoch, state.cells) == ("resnet", 2, None)

    run(scenario)


def test_snapshots_records_and_status_reach_the_client(address: str) -> None:
    async def scenario() -> None:
        collector, reporter = make_collector(), Reporter()
        collector.receive(reporter.stacked(long_way()))
        async with (
            serving(collector, FeedSettings(address=address)),
            FeedClient(FeedClientSettings(address=address)) as client,
        ):
            snapshots = client.snapshots(MS)
            assert await anext(snapshots) == collector.snapshot()
            assert await anext(snapshots) == collector.snapshot()
            records = client.records()
            assert await anext(records) == ()
            heard: list[tuple[HopRecord, ...]] = []
            collector.subscribe(heard.append)
            for _ in range(3):
                collector.receive(reporter.stacked(long_way()))
            got: list[HopRecord] = []
            while len(got) < 9:
                got += await anext(records)
            assert got == [record for batch in heard for record in batch]
            counters = dict((await client.status()).counters)
            assert counters.pop(Count.FEED_BYTES) > 0
            assert counters == {"reports": 4, "records": 12}
            windows = await client.link_windows()
            assert windows.places == collector.snapshot().links.places  # type: ignore[attr-defined]  # in columns
            samples = figures_of(merged([windows.windows])).samples.tolist()
            assert samples == [state.samples for state in collector.snapshot().links.values()]
            assert (await client.snapshot()).links == collector.snapshot().links

    run(scenario)


def test_drops_reach_the_client(address: str) -> None:
    async def scenario() -> None:
        collector = make_collector()
        async with (
            serving(collector, FeedSettings(address=address)),
            FeedClient(FeedClientSettings(address=address)) as client,
        ):
            drops = client.drops()
            assert await anext(drops) == ()
            heard: list[DropRecord] = []
            collector.subscribe_drops(heard.extend)
            collector.receive(Reporter().dropped(long_way(), DropReason.QUEUE_FULL))
            assert await anext(drops) == tuple(heard)
            assert [drop.reason for drop in heard] == [DropReason.QUEUE_FULL]

    run(scenario)


def test_a_slow_subscriber_loses_batches_and_nobody_else_does(address: str) -> None:
    async def scenario() -> None:
        collector, reporter = make_collector(), Reporter()
        settings = FeedSettings(address=address, queue_records=6)
        async with serving(collector, settings), FeedClient(FeedClientSettings(address=address)) as client:
            records = client.records()
            assert await anext(records) == ()
            for _ in range(5):  # no await in between: the feed has no turn
                collector.receive(reporter.stacked(long_way()))
                collector.hand_over_records()
            got = await anext(records) + await anext(records)
            assert [record.sequence for record in got] == [0, 0, 0, 1, 1, 1]
            assert collector.counters[Count.FEED_BATCHES_DROPPED] == 3
            assert collector.counters[Count.RECORDS] == 15

    run(scenario)


def test_who_stops_reading_is_unsubscribed(address: str) -> None:
    async def scenario() -> None:
        collector = make_collector()
        async with serving(collector, FeedSettings(address=address)):
            async with FeedClient(FeedClientSettings(address=address)) as client:
                assert await anext(client.records()) == ()
                assert len(collector._column_sinks) == 1
            await until(lambda: not collector._column_sinks)

    run(scenario)


@pytest.mark.parametrize(
    ("method", "request_bytes", "reason"),
    [
        ("GetStatus", b"\x92\x09\xc0", "a millrace.collectors.v2.GetStatusRequest does not decode"),
        ("GetStatus", b"\x08\x01", "GetStatusRequest has fields unknown to this version"),
        ("NoteLinks", b"\x0a\xff", "a millrace.collectors.v2.LinkStatuses does not decode"),
        (
            "NoteLinks",
            links_pb2.LinkStatuses(condition=[links_pb2.LINK_CONDITION_UP]).SerializeToString(),
            "LinkStatuses.condition has 1 entries for 0 rows",
        ),
        ("WatchSnapshots", b"", "interval of 0 ns is not between 1 ns and one hour"),
        ("SetRules", b"\x0a\x00", "rule '': Object missing required field `name`"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_in_words(
    address: str, method: str, request_bytes: bytes, reason: str
) -> None:
    async def scenario() -> None:
        async with (
            serving(make_collector(), FeedSettings(address=address)),
            grpc.aio.insecure_channel(address) as channel,
            FeedClient(FeedClientSettings(address=address)) as client,
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await anext(aiter(channel.unary_stream(f"/{FEED.full_name}/{method}", None, None)(request_bytes)))
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert reason in (caught.value.details() or "")
            assert (await client.status()).counters == {}

    run(scenario)


@pytest.mark.parametrize("interval_ns", [0, -1, 3_600_000_000_001])
def test_intervals_have_bounds(address: str, interval_ns: int) -> None:
    async def scenario() -> None:
        async with (
            serving(make_collector(), FeedSettings(address=address)),
            FeedClient(FeedClientSettings(address=address)) as client,
        ):
            with pytest.raises(FeedError, match=f": interval of {interval_ns} ns is not between 1 ns and one hour"):
                await anext(client.snapshots(interval_ns))

    run(scenario)


def test_the_client_gives_up_where_waiting_mends_nothing(address: str) -> None:
    """A service of another version has another name."""

    async def scenario() -> None:
        other = grpc.aio.server()
        other.add_insecure_port(address)
        await other.start()
        try:
            async with FeedClient(FeedClientSettings(address=address)) as client:
                with pytest.raises(FeedError, match="another service answers there, or another version"):
                    await anext(client.records())
                with pytest.raises(FeedError, match="another service answers there, or another version"):
                    await client.status()
        finally:
            await other.stop(None)

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"\x12\x01", "a millrace.collectors.v2.Snapshot does not decode"),
        (feed_pb2.Snapshot(links=links_pb2.Links(rate_bps=b"1")), "Links.rate_bps has 1 bytes for 0 rows"),
        (feed_pb2.Snapshot(reporters=feed_pb2.Reporters(node_id=[1])), "Reporters.hw_id has 0 entries for 1 rows"),
    ],
)
def test_an_answer_that_makes_no_sense_is_an_error_of_the_feed(
    address: str, answer: bytes | feed_pb2.Snapshot, reason: str
) -> None:
    async def answered(_: bytes, __: object) -> AsyncIterator[bytes]:
        yield answer if isinstance(answer, bytes) else answer.SerializeToString()

    async def scenario() -> None:
        other = grpc.aio.server()
        methods = {"WatchSnapshots": grpc.unary_stream_rpc_method_handler(answered)}
        other.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(FEED.full_name, methods),))
        other.add_insecure_port(address)
        await other.start()
        try:
            async with FeedClient(FeedClientSettings(address=address)) as client:
                with pytest.raises(FeedError, match=f"collector at {address}: .*: {reason}$"):
                    await anext(client.snapshots(MS))
        finally:
            await other.stop(None)

    run(scenario)


def test_client_backs_off_reports_why_and_reconnects(address: str) -> None:
    async def scenario() -> None:
        reasons: list[str] = []
        answered: list[str] = []
        waits: list[float] = []
        collector = make_collector()
        server = FeedServer(collector, FeedSettings(address=address))

        async def sleep(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 4:
                await server.start()
            await asyncio.sleep(0.01)

        settings = FeedClientSettings(address=address, first_wait_ns=100 * MS, longest_wait_ns=400 * MS)
        told = {"on_wait": reasons.append, "on_answer": answered.append}
        async with FeedClient(settings, rng=random.Random(1), sleep=sleep, **told) as client:
            snapshots = client.snapshots(MS)
            first = await anext(snapshots)
            assert answered == [f"the collector at {address} answers"]
            assert first.links
            for seconds, most in zip(waits, (0.1, 0.2, 0.4, 0.4), strict=False):
                assert most / 2 <= seconds <= most
            assert f"for the collector at {address}: cannot connect: " in reasons[0]
            before = len(waits)
            await server.stop()
            server = FeedServer(collector, FeedSettings(address=address))
            await server.start()
            while len(waits) == before:
                await anext(snapshots)
            assert len(answered) == 2
            await server.stop()

    run(scenario)


def test_status_of_nobody_is_a_clear_error(address: str) -> None:
    async def scenario() -> None:
        async with FeedClient(FeedClientSettings(address=address)) as client:
            with pytest.raises(FeedError, match=f"collector at {address}: cannot connect: "):
                await client.status()
        with pytest.raises(FeedError, match="async with"):
            await client.status()

    run(scenario)


def test_an_address_that_cannot_be_had_is_a_clear_error() -> None:
    async def scenario() -> None:
        with pytest.raises(CollectorError, match="cannot serve the feed at unix:/no/such/folder/socket"):
            FeedServer(make_collector(), FeedSettings(address="unix:/no/such/folder/socket"))

    run(scenario)


def test_a_free_tcp_port_is_told() -> None:
    async def scenario() -> None:
        async with serving(make_collector(), FeedSettings(address="127.0.0.1:0")) as server:
            assert server.address.startswith("127.0.0.1:")
            assert not server.address.endswith(":0")
            async with FeedClient(FeedClientSettings(address=server.address)) as client:
                assert (await client.status()).counters == {}

    run(scenario)
