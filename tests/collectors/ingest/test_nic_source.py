"""Reports over a device's polled queues: reports arrive, other frames are ignored, malformed ones counted."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest
from pyroute2 import IPRoute

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError
from collectors.ingest.receiver import ReceiverSettings, ReportReceiver
from collectors.ingest.report_sources import NicSource
from collectors.settings import CollectorSettings
from dataplane.clock import MonotonicClock, VirtualClock
from dataplane.fabric.kernel import namespaces
from dataplane.nic import NicPort, open_port
from dataplane.topology.addressing import switch_ipv4
from dataplane.wire.packet import udp_frame
from tests.benchmarks.traffic.cables import Cables, cables
from tests.collectors.reports import Reporter, build_topology, long_way
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

PORT = 32_766


@pytest.fixture(scope="module")
def net() -> Iterator[Cables]:
    with cables() as made:
        namespaces.call(made.hosts, lambda: add_address(made.sink))
        yield made


def add_address(interface: str) -> None:
    with IPRoute() as netlink:
        netlink.addr("add", index=socket.if_nametoindex(interface), address="10.9.9.9", prefixlen=24)


@pytest.fixture
def sender(net: Cables) -> Iterator[NicPort]:
    with namespaces.call(net.switch, lambda: open_port("sw2")) as port:
        yield port


def frame(payload: bytes, udp_port: int = PORT, dst: str = "10.9.9.9", src: str = "10.0.0.1") -> bytes:
    return udp_frame(
        src_mac=0x02_00_00_00_02_01,
        dst_mac=0x02_00_00_00_01_01,
        src=IPv4Address(src),
        dst=IPv4Address(dst),
        src_port=4_000,
        dst_port=udp_port,
        payload=payload,
    )


def read_some(source: NicSource, count: int) -> list[bytes]:
    """Return datagrams; wait for at least this many."""
    datagrams: list[bytes] = []

    def are_all_read() -> bool:
        for payloads in source.read(64):
            datagrams.extend(payloads.payload(number) for number in range(len(payloads)))
        return len(datagrams) >= count

    wait_until(are_all_read, lambda: f"{len(datagrams)} of {count}, {source.malformed} malformed")
    return datagrams


def test_only_whole_reports_to_the_port_come_out(net: Cables, sender: NicPort) -> None:
    wrong = bytearray(frame(b"wrong sum"))
    wrong[-1] ^= 1
    cut = frame(b"cut off")[:-3]
    source = namespaces.call(net.hosts, lambda: NicSource(net.sink, "10.9.9.9", PORT, MonotonicClock()))
    try:
        others = [frame(b"other port", PORT + 1), frame(b"other host", dst="10.9.9.8"), bytes(60)]
        sent = [bytes([number]) * 40 for number in range(200)]
        sender.send([*others, bytes(wrong), cut, *map(frame, sent)])
        assert read_some(source, 200) == sent
        assert source.malformed == 2
        assert source.lost == 0
    finally:
        source.close()
    assert source.lost == 0


def test_a_receiver_works_on_what_a_device_brings(net: Cables, sender: NicPort) -> None:
    core = Collector(build_topology(), VirtualClock(), CollectorSettings(relays=("127.0.0.1",)))
    settings = ReceiverSettings(udp_port=PORT, interface=net.sink)
    receiver = namespaces.call(net.hosts, lambda: ReportReceiver(core, settings))
    reporter = Reporter()
    reports = [reporter.stacked(long_way()) for _ in range(5)]
    forged = [frame(reports[0], src=src) for src in ("127.0.0.1", "10.0.0.1", "10.0.12.254")]
    sender.send([*forged, *(frame(report, src=str(switch_ipv4(13))) for report in reports)])

    def are_all_counted() -> bool:
        receiver.drain()
        return core.counters[Count.REPORTS] >= 8

    wait_until(are_all_counted)
    assert receiver.nic_statistics is not None
    statistics = receiver.nic_statistics()
    assert (statistics.interface, sum(queue.received for queue in statistics.queues) >= 5) == (net.sink, True)
    receiver.close()
    assert (core.counters[Count.WRONG_SOURCE], core.counters[Count.RECORDS]) == (3, 15)
    assert core.counters[Count.RECEIVE_MALFORMED] == core.counters[Count.KERNEL_QUEUE_FULL] == 0


def test_a_missing_device_and_a_port_in_use_are_clear_errors(net: Cables) -> None:
    def open_source(interface: str) -> NicSource:
        return NicSource(interface, "0.0.0.0", PORT, MonotonicClock())

    with pytest.raises(CollectorError, match="cannot receive reports: interface nosuch: no such device"):
        namespaces.call(net.hosts, lambda: open_source("nosuch"))

    def taken() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.bind(("0.0.0.0", PORT))
            open_source(net.sink)

    with pytest.raises(CollectorError, match=f"cannot receive reports on UDP 0.0.0.0 port {PORT}: "):
        namespaces.call(net.hosts, taken)
