"""Reports over a veth pair: how many a second a collector takes without losing one, by source and by packet."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address

import numpy as np
from numpy.typing import NDArray
from pyroute2 import IPRoute

from collectors.collector import Collector
from collectors.ingest.receiver import ReceiverSettings, ReportReceiver
from collectors.ingest.report_sources import SOL_UDP
from collectors.settings import CollectorSettings
from dataplane.clock import MonotonicClock
from dataplane.fabric.kernel import namespaces
from dataplane.native import kernel_library
from dataplane.nic import NicPort, PortKind, RingSettings, open_port
from dataplane.topology.addressing import format_mac
from dataplane.wire.packet import udp_frame
from tests.benchmarks.collecting.kernels import Sending, send_once
from tests.benchmarks.collecting.workload import reports, stage_topology
from tests.benchmarks.nics.cable import SINK_MAC, SOURCE_MAC, Cable, cable

HOPS, FLOWS = 4, 1000
PORT = 32_766
SOURCE, SINK = "10.9.9.1", "10.9.9.9"
UDP_SEGMENT = 103
JOINED_BYTES = 60_000
QUIET_S = 0.2
GROUP_BYTES = 8


@dataclass(frozen=True, slots=True)
class Side:
    """Source of reports, reports per packet, and whether packets travel joined (UDP GSO)."""

    name: str
    polled: bool = False
    reports_a_packet: int = 1
    joined: bool = False


SIDES = (
    Side("socket"),
    Side("socket, 4 reports a packet", reports_a_packet=4),
    Side("socket, packets joined by the kernel", joined=True),
    Side("polled device", polled=True),
    Side("polled device, 4 reports a packet", polled=True, reports_a_packet=4),
)


@dataclass(frozen=True, slots=True)
class Trial:
    """Reports that the kernel took from the sender, those that the collector took, and the sender's time."""

    sent: int
    taken: int
    took_s: float

    @property
    def lost(self) -> int:
        """Number of lost reports."""
        return self.sent - self.taken

    @property
    def rate(self) -> float:
        """Reports a second, as sent."""
        return self.sent / self.took_s


class Bench:
    """A veth pair with a collector behind one end; one trial after the other."""

    def __init__(self, made: Cable, port: NicPort) -> None:
        self._cable, self._port = made, port
        self._send = kernel_library(send_once).bind(send_once)

    def run(self, side: Side, rate: float, duration_s: float) -> Trial:
        """Send reports at a rate for a duration; each trial has its own collector."""
        count = max(int(rate * duration_s), 1000) // side.reports_a_packet * side.reports_a_packet
        payloads = packets(count, side.reports_a_packet)
        asked = CollectorSettings(report_udp_port=PORT, relays=(SOURCE,))
        collector = Collector(stage_topology(HOPS), MonotonicClock(), asked)
        settings = ReceiverSettings(address=SINK, udp_port=PORT, interface=self._cable.sink if side.polled else None)
        receiver = namespaces.call(self._cable.receiver, lambda: ReportReceiver(collector, settings))
        try:
            send = self._joined(payloads) if side.joined else self._framed(payloads)
            sent, took_s = _exchange(receiver, lambda: send(rate / side.reports_a_packet), collector)
        finally:
            receiver.close()
        return Trial(sent * side.reports_a_packet, collector.counters["records"] // HOPS, took_s)

    def _framed(self, payloads: NDArray[np.uint8]) -> Callable[[float], tuple[int, float]]:
        frames = framed(payloads)

        def send(rate_pps: float) -> tuple[int, float]:
            sending = Sending(
                queue=self._port.queues[0],
                frames=frames.ctypes.data,
                count=len(frames),
                length=frames.shape[1],
                rate_pps=max(1, int(rate_pps)),
            )
            self._send(sending)
            return sending.sent, sending.took_ns / 1e9

        return send

    def _joined(self, payloads: NDArray[np.uint8]) -> Callable[[float], tuple[int, float]]:
        opened = namespaces.call(self._cable.generator, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        opened.setsockopt(SOL_UDP, UDP_SEGMENT, payloads.shape[1])
        opened.connect((SINK, PORT))
        step = min(JOINED_BYTES // payloads.shape[1], 64)

        def send(rate_pps: float) -> tuple[int, float]:
            begun = time.perf_counter()
            with opened:
                for first in range(0, len(payloads), step):
                    # Not spinning: this thread would keep the interpreter's lock from the receiver.
                    time.sleep(max(first / rate_pps - (time.perf_counter() - begun), 0))
                    opened.send(payloads[first : first + step].data)
            return len(payloads), time.perf_counter() - begun

        return send


def packets(count: int, each: int) -> NDArray[np.uint8]:
    """Return report packets, a row each, of `each` individual reports."""
    made = reports(HOPS, FLOWS, count)
    whole = made.rows[:, : made.lengths[0]]
    if each == 1:
        return np.ascontiguousarray(whole)
    # All reports of a packet are of one sink: sort them by sink, and renumber its packets.
    whole = whole[np.argsort(made.sinks, kind="stable")]
    heads = whole[::each, :GROUP_BYTES]
    bodies = whole[:, GROUP_BYTES:].reshape(len(heads), -1)
    rows = np.concatenate([heads, bodies], axis=1)
    nodes = np.ascontiguousarray(rows[:, 4:8]).view(">u4")[:, 0].astype(np.int64)
    for node in np.unique(nodes):
        own = nodes == node
        numbers = (np.arange(np.count_nonzero(own)) | 0x2000_0000).astype(">u4")
        rows[own, :4] = numbers.view(np.uint8).reshape(-1, 4)
    return np.ascontiguousarray(rows)


def framed(payloads: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return payloads as Ethernet frames to the sink, without a UDP checksum."""
    head = bytearray(
        udp_frame(
            src_mac=SOURCE_MAC,
            dst_mac=SINK_MAC,
            src=IPv4Address(SOURCE),
            dst=IPv4Address(SINK),
            src_port=4000,
            dst_port=PORT,
            payload=bytes(payloads.shape[1]),
        )[:42]
    )
    head[40:42] = b"\0\0"
    frames = np.empty((len(payloads), 42 + payloads.shape[1]), np.uint8)
    frames[:, :42] = np.frombuffer(bytes(head), np.uint8)
    frames[:, 42:] = payloads
    return frames


def _exchange(
    receiver: ReportReceiver, send: Callable[[], tuple[int, float]], collector: Collector
) -> tuple[int, float]:
    """Send on another thread while this one receives, until nothing has come for a while after the end."""
    result: list[tuple[int, float]] = []
    sender = threading.Thread(target=lambda: result.append(send()), name="sender")
    receiver.drain()
    sender.start()
    quiet_since = time.monotonic()
    seen = -1
    while sender.is_alive() or time.monotonic() - quiet_since < QUIET_S:
        select.select([receiver.fileno()], [], [], 0.02)
        receiver.drain()
        if collector.counters["reports"] != seen:
            seen, quiet_since = collector.counters["reports"], time.monotonic()
    sender.join()
    return result[0]


@contextmanager
def bench() -> Iterator[Bench]:
    """Make the pair while the `with` block lasts; needs root."""
    with ExitStack() as stack:
        made = stack.enter_context(cable(1))
        _address(made.receiver, made.sink, SINK, SOURCE, SOURCE_MAC)
        _address(made.generator, made.source, SOURCE, SINK, SINK_MAC)
        settings = RingSettings(rx_frames=64, tx_frames=4_096, qdisc_bypass=True)
        port = namespaces.call(made.generator, lambda: open_port(made.source, PortKind.PACKET_V2, settings=settings))
        yield Bench(made, stack.enter_context(port))


def _address(namespace: str, device: str, own: str, other: str, mac: int) -> None:
    def configure() -> None:
        with IPRoute() as netlink:
            index = socket.if_nametoindex(device)
            netlink.addr("add", index=index, address=own, prefixlen=24)
            netlink.neigh("replace", dst=other, lladdr=format_mac(mac), ifindex=index, state=0x80)

    namespaces.call(namespace, configure)
