"""Change signals over the feed: messages, several watchers, and their pace."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from collectors.collector import Collector
from collectors.errors import FeedError
from collectors.feed import feed_pb2
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedServer, FeedSettings
from collectors.feed.signals import SignalBoard, merged, signals_message, signals_of, tells
from collectors.values import FlowKey, NetworkSignals
from dataplane.clock import VirtualClock
from dataplane.rpc.errors import MessageError
from tests.collectors.reports import Reporter, build_topology, long_way
from tests.waiting import finish_within

MS = 1_000_000
FLOW = FlowKey(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 17, 1, 2)
OTHER = FlowKey(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 6, 1, 2)
EVERYTHING = NetworkSignals(7, True, True, {FLOW: 12.5, OTHER: 3.0}, 4)


@pytest.mark.parametrize("signals", [NetworkSignals(), NetworkSignals(queue_frames=0), EVERYTHING])
def test_signs_travel_unchanged(signals: NetworkSignals) -> None:
    message = feed_pb2.Signals.FromString(signals_message(signals).SerializeToString())
    assert signals_of(message) == signals


def test_columns_that_do_not_fit_are_refused() -> None:
    message = signals_message(EVERYTHING)
    message.more_hz.append(1.0)
    with pytest.raises(MessageError, match=r"^Signals.more_hz has 3 entries for 2 rows$"):
        signals_of(message)
    message = signals_message(EVERYTHING)
    message.more_hz[0] = math.nan
    with pytest.raises(MessageError, match=r"^Signals.more_hz: an entry is nan$"):
        signals_of(message)


def test_signs_add_up_over_time() -> None:
    later = NetworkSignals(3, False, False, {FLOW: 1.5}, 1)
    assert merged(EVERYTHING, later) == NetworkSignals(7, True, True, {FLOW: 14.0, OTHER: 3.0}, 5)
    assert merged(NetworkSignals(), later) == later


def test_a_short_queue_alone_tells_nothing() -> None:
    assert not tells(NetworkSignals(queue_frames=3), 4.0)
    assert tells(NetworkSignals(queue_frames=4), 4.0)
    assert tells(NetworkSignals(grown={FLOW: 1.0}), math.inf)


def test_all_who_watch_get_the_signs_since_they_began() -> None:
    waiting = [NetworkSignals(queue_frames=9)]
    board = SignalBoard(lambda: waiting.pop() if waiting else NetworkSignals())
    first = board.watch()  # what came before is past
    assert first.take() == NetworkSignals()
    waiting.append(NetworkSignals(queue_frames=1))
    second = board.watch()
    waiting.append(NetworkSignals(queue_frames=2))
    assert first.take() == NetworkSignals(queue_frames=2)
    assert second.take() == NetworkSignals(queue_frames=2)
    second.close()
    waiting.append(NetworkSignals(queue_frames=3))
    assert first.take() == NetworkSignals(queue_frames=3)
    assert second.take() == NetworkSignals()


@asynccontextmanager
async def reading(collector: Collector) -> AsyncIterator[FeedClient]:
    with TemporaryDirectory(prefix="feed") as folder:
        address = f"unix:{Path(folder) / 'socket'}"
        server = FeedServer(collector, FeedSettings(address=address, signal_interval_ns=MS))
        await server.start()
        try:
            async with FeedClient(FeedClientSettings(address=address)) as client:
                yield client
        finally:
            await server.stop()


def test_signs_reach_a_client_and_those_below_its_queue_do_not() -> None:
    async def scenario() -> None:
        collector, reporter = Collector(build_topology(), VirtualClock()), Reporter()
        async with reading(collector) as client, aclosing(client.signals(4.0, 2 * MS)) as signals:
            assert await anext(signals) == NetworkSignals()
            collector.receive(reporter.stacked(long_way(queue=3)))
            collector.take_signals()  # without a listener
            collector.receive(reporter.stacked(long_way(1, queue=8)))
            assert (await anext(signals)).queue_frames == 8

    asyncio.run(finish_within(scenario(), 20))


@pytest.mark.parametrize(
    ("queue_frames", "gap_ns", "reason"),
    [
        (math.nan, MS, "a queue of nan frames is not possible"),
        (-1.0, MS, "a queue of -1.0 frames is not possible"),
        (1.0, 0, "shortest gap of 0 ns is not between 1 ns and one hour"),
    ],
)
def test_a_watch_that_makes_no_sense_is_refused(queue_frames: float, gap_ns: int, reason: str) -> None:
    async def scenario() -> None:
        async with reading(Collector(build_topology(), VirtualClock())) as client:
            with pytest.raises(FeedError, match=reason):
                await anext(client.signals(queue_frames, gap_ns))

    asyncio.run(finish_within(scenario(), 20))
