"""Reports over a real UDP socket on loopback, and the bounded queue behind it."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError
from collectors.receiver import ReceiverSettings, ReportReceiver
from collectors.report_sources import SO_RXQ_OVFL, SocketSource
from collectors.values import HopRecord
from dataplane.clock import VirtualClock
from tests.collectors.reports import Reporter, build_topology, long_way

LOOPBACK = ReceiverSettings(address="127.0.0.1", udp_port=0)


def collector() -> Collector:
    return Collector(build_topology(), VirtualClock())


def test_reports_sent_to_the_port_become_records() -> None:
    async def scenario() -> list[tuple[HopRecord, ...]]:
        heard: list[tuple[HopRecord, ...]] = []
        enough = asyncio.Event()
        core = collector()

        def sink(records: tuple[HopRecord, ...]) -> None:
            heard.append(records)
            if len(heard) == 5:
                enough.set()

        core.subscribe(sink)
        receiver = ReportReceiver(core, LOOPBACK)
        running = asyncio.create_task(receiver.run())
        reporter = Reporter()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(5):
                sender.sendto(reporter.stacked(long_way()), ("127.0.0.1", receiver.udp_port))
        await asyncio.wait_for(enough.wait(), 10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return heard

    assert [records[0].sequence for records in asyncio.run(scenario())] == [0, 1, 2, 3, 4]


def test_a_full_queue_drops_and_counts() -> None:
    core = collector()
    receiver = ReportReceiver(core, ReceiverSettings(address="127.0.0.1", udp_port=0, queue_reports=3))
    reporter = Reporter()
    for _ in range(5):
        receiver.offer(reporter.stacked(long_way()), None)
    assert core.counters[Count.RECEIVE_QUEUE_FULL] == 2
    receiver.work()
    assert core.counters[Count.REPORTS] == 3
    receiver.close()


def test_work_is_done_in_bursts() -> None:
    core = collector()
    receiver = ReportReceiver(core, ReceiverSettings(address="127.0.0.1", udp_port=0, burst_reports=2))
    for _ in range(3):
        receiver.offer(b"", None)
    receiver.work()
    assert core.counters[Count.REPORTS] == 2
    receiver.work()
    assert core.counters[Count.REPORTS] == 3
    receiver.close()


def test_what_the_kernel_dropped_is_counted_by_difference_and_over_its_wrap() -> None:
    source = SocketSource("127.0.0.1", 0, 1 << 16)
    for total in (2**32 - 2, 2**32 - 1, 3):
        source.count_overflow([(socket.SOL_SOCKET, SO_RXQ_OVFL, struct.pack("=I", total))])
    source.count_overflow([(socket.SOL_SOCKET, 99, b"\xff" * 4)])
    assert source.lost == 2**32 + 3
    source.close()


def test_a_port_in_use_is_a_clear_error() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        with pytest.raises(CollectorError, match=f"cannot receive reports on UDP 127.0.0.1 port {port}: "):
            ReportReceiver(collector(), ReceiverSettings(address="127.0.0.1", udp_port=port))


def test_a_buffer_of_any_size_may_be_asked_for() -> None:
    asyncio.run(made(ReceiverSettings(address="127.0.0.1", udp_port=0, socket_buffer_bytes=1 << 40)))


def test_a_name_that_is_no_name_is_refused() -> None:
    with pytest.raises(CollectorError, match="cannot receive reports on UDP"):
        asyncio.run(made(ReceiverSettings(address="x" * 70 + ".org", udp_port=0)))


async def made(settings: ReceiverSettings) -> None:
    """Make a receiver and close it."""
    ReportReceiver(collector(), settings).close()
