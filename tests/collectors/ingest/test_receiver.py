"""Reports over a real UDP socket on loopback: bursts, datagrams put together, losses."""

from __future__ import annotations

import asyncio
import itertools
import socket

import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError
from collectors.ingest.receiver import ReceiverSettings, ReportReceiver
from collectors.ingest.report_sources import SOL_UDP, WrappingCount
from collectors.native.receive_state import MESSAGES
from collectors.settings import CollectorSettings, Core
from collectors.values import HopRecord
from dataplane.clock import VirtualClock
from tests.collectors.cores import every_core
from tests.collectors.reports import Reporter, build_topology, long_way
from tests.waiting import finish_within, wait_until

UDP_SEGMENT = 103
LOOPBACK = ReceiverSettings(address="127.0.0.1", udp_port=0)


def collector(core: Core = Core.NATIVE) -> Collector:
    return Collector(build_topology(), VirtualClock(), CollectorSettings(core=core, relays=("127.0.0.1",)))


def drain(receiver: ReportReceiver, collecting: Collector, reports: int) -> None:
    """Drain a receiver, turn by turn, until this many reports have arrived."""

    def has_come() -> bool:
        receiver.drain()
        return collecting.counters[Count.REPORTS] >= reports

    wait_until(has_come, f"{dict(collecting.counters)}: not {reports} reports")


def test_reports_sent_to_the_port_become_records() -> None:
    async def scenario() -> list[int]:
        # One after the other, also where a burst of reports comes as one batch.
        heard: list[int] = []
        enough = asyncio.Event()
        core, loop = collector(), asyncio.get_running_loop()

        def sink(records: tuple[HopRecord, ...]) -> None:
            heard.extend(sequence for sequence, _ in itertools.groupby(record.sequence for record in records))
            if len(heard) == 5:
                # The receiving thread is another one.
                loop.call_soon_threadsafe(enough.set)

        core.subscribe(sink)
        receiver = ReportReceiver(core, LOOPBACK)
        running = asyncio.create_task(receiver.run())
        reporter = Reporter()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(5):
                sender.sendto(reporter.stacked(long_way()), ("127.0.0.1", receiver.udp_port))
        await finish_within(enough.wait(), 10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return heard

    assert asyncio.run(scenario()) == [0, 1, 2, 3, 4]


def test_burst_read_by_python_is_bounded() -> None:
    """A turn of the reference core reads one batch of messages where the setting allows one report."""
    core = collector(Core.REFERENCE)
    settings = ReceiverSettings(address="127.0.0.1", udp_port=0, burst_reports=1)
    receiver = ReportReceiver(core, settings, VirtualClock())
    sent = MESSAGES + 50
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(sent):
            sender.sendto(b"no report", ("127.0.0.1", receiver.udp_port))
    receiver.drain()
    assert core.counters[Count.REPORTS] == MESSAGES
    receiver.drain()
    receiver.drain()
    assert core.counters[Count.REPORTS] == sent
    assert core.counters[Count.KERNEL_QUEUE_FULL] == 0
    receiver.close()


@every_core
def test_datagrams_that_the_kernel_puts_together_are_taken_apart(core: Core) -> None:
    taking = collector(core)
    receiver = ReportReceiver(taking, LOOPBACK)
    reporter = Reporter()
    reports = [reporter.stacked(long_way(n * 1000)) for n in range(100)]
    short = reporter.stacked(long_way()[:1])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(SOL_UDP, UDP_SEGMENT, len(reports[0]))
        for first in (0, 50):
            sender.sendto(b"".join([*reports[first : first + 50], short[:40]]), ("127.0.0.1", receiver.udp_port))
        sender.setsockopt(SOL_UDP, UDP_SEGMENT, 0)
        sender.sendto(short, ("127.0.0.1", receiver.udp_port))
        port = sender.getsockname()[1]
    drain(receiver, taking, 103)
    status = taking.status()
    assert (status.counters["reports"], status.counters["records"], status.counters["malformed"]) == (103, 301, 2)
    assert status.last_problem is not None
    assert status.last_problem.startswith(f"report from ('127.0.0.1', {port}): ")
    receiver.close()


@every_core
def test_what_finds_the_sockets_buffer_full_is_counted(core: Core) -> None:
    taking = collector(core)
    receiver = ReportReceiver(taking, ReceiverSettings(address="::1", udp_port=0, socket_buffer_bytes=1))
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        for _ in range(100):
            sender.sendto(bytes(1000), ("::1", receiver.udp_port))
    drain(receiver, taking, 1)
    counted = taking.counters
    assert counted[Count.KERNEL_QUEUE_FULL] > 0
    assert counted[Count.REPORTS] + counted[Count.KERNEL_QUEUE_FULL] == 100
    receiver.close()
    assert taking.status().last_problem is not None
    assert "('::1', " in str(taking.status().last_problem)


@pytest.mark.parametrize(("address", "target"), [("127.0.0.1", "127.0.0.1"), ("::", "127.0.0.1"), ("::", "::1")])
@every_core
def test_reports_count_by_the_address_that_they_came_from(core: Core, address: str, target: str) -> None:
    """Also where IPv4 comes in an IPv6 socket; nothing that is IPv6 is a switch's, or a relay's."""
    for relays, taken in (((), 0), (("127.0.0.1",), 3 if target == "127.0.0.1" else 0), (None, 3)):
        taking = Collector(build_topology(), VirtualClock(), CollectorSettings(core=core, relays=relays))
        receiver = ReportReceiver(taking, ReceiverSettings(address=address, udp_port=0))
        family = socket.AF_INET6 if ":" in target else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            sender.sendto(Reporter().stacked(long_way()), (target, receiver.udp_port))
        drain(receiver, taking, 1)
        receiver.close()
        assert (taking.counters[Count.REPORTS], taking.counters[Count.RECORDS]) == (1, taken), relays
        assert taking.counters[Count.WRONG_SOURCE] == (taken == 0)


def test_wrapping_count_adds_differences_over_the_wrap() -> None:
    count = WrappingCount()
    for low_bits in (2**32 - 2, 2**32 - 1, 3, 3):
        count.note(low_bits)
    assert count.total == 2**32 + 3


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


def test_failure_in_the_receiving_thread_is_raised_where_it_runs() -> None:
    taking = collector()
    receiver = ReportReceiver(taking, LOOPBACK)

    def sink(_: tuple[HopRecord, ...]) -> None:
        raise OSError("no room for records")

    taking.subscribe(sink)

    async def scenario() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(Reporter().stacked(long_way()), ("127.0.0.1", receiver.udp_port))
        await receiver.run()

    with pytest.raises(OSError, match="no room for records"):
        asyncio.run(asyncio.wait_for(scenario(), 30))


@every_core
def test_receiver_counts_while_it_runs_and_ends_when_cancelled(core: Core) -> None:
    taking = collector(core)
    receiver = ReportReceiver(taking, LOOPBACK)
    port, reporter = receiver.udp_port, Reporter()

    async def scenario() -> None:
        running = asyncio.create_task(receiver.run())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for count in range(1, 4):
                sender.sendto(reporter.stacked(long_way()), ("127.0.0.1", port))
                await asyncio.to_thread(
                    wait_until,
                    lambda expected=count: taking.counters[Count.REPORTS] == expected,  # type: ignore[misc]
                )
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(asyncio.wait_for(scenario(), 60))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", port))
