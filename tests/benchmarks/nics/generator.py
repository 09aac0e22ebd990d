"""The traffic generator: native, on a processor of its own, over a TPACKET_V2 transmit ring."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address

from dataplane.fabric.kernel import namespaces
from dataplane.native import kernel_library
from dataplane.nic import NicPort, PortKind, RingSettings, open_port
from dataplane.wire.packet import udp_frame
from tests.benchmarks.nics.cable import SINK_MAC, SOURCE_MAC, Cable
from tests.benchmarks.nics.kernels import Source, generate

FLOWS = 256
STAMP_OFFSET = 14 + 20 + 8
STAMP_EVERY = 8
DESTINATION_PORT = 32_766
GENERATOR_CPU = 0
SATURATED_PPS = 10_000_000
"""More than any generator reaches: cable and receiver then set the rate."""
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Sent:
    """Frames that the kernel took from the generator, and the time spent."""

    frames: int
    took_s: float

    @property
    def pps(self) -> float:
        """Frames a second."""
        return self.frames / self.took_s


class Generator:
    """Sends frames of one length and `FLOWS` flows in turn."""

    def __init__(self, port: NicPort, frame_bytes: int) -> None:
        self._port = port
        frames = [_frame(number, frame_bytes) for number in range(FLOWS)]
        self._data = ctypes.create_string_buffer(b"".join(frames))
        self._frame_bytes = frame_bytes
        self._generate = kernel_library(generate).bind(generate)

    def run(self, rate_pps: float, duration_s: float) -> Sent:
        """Send for this long."""
        source = Source(
            queue=self._port.queues[0],
            frames=self._data,
            count=FLOWS,
            length=self._frame_bytes,
            stamp_offset=STAMP_OFFSET,
            stamp_every=STAMP_EVERY,
            rate_pps=max(1, int(rate_pps)),
            duration_ns=int(duration_s * _NS_PER_S),
        )

        def send() -> None:
            os.sched_setaffinity(0, {GENERATOR_CPU})
            self._generate(source)

        sender = threading.Thread(target=send, name="generator")
        sender.start()
        sender.join()
        return Sent(source.sent, source.took_ns / _NS_PER_S)


@contextmanager
def generator(cable: Cable, frame_bytes: int) -> Iterator[Generator]:
    """Open the generator's end of the cable while the `with` block lasts."""
    settings = RingSettings(rx_frames=64, tx_frames=4_096, qdisc_bypass=True)
    with namespaces.call(
        cable.generator, lambda: open_port(cable.source, PortKind.PACKET_V2, settings=settings)
    ) as port:
        yield Generator(port, frame_bytes)


def _frame(number: int, nbytes: int) -> bytes:
    """Return a UDP frame of a flow; lengths are without FCS."""
    return udp_frame(
        src_mac=SOURCE_MAC,
        dst_mac=SINK_MAC,
        src=IPv4Address("10.0.0.1") + number % 50,
        dst=IPv4Address("10.1.0.1"),
        src_port=1_000 + number,
        dst_port=DESTINATION_PORT,
        payload=bytes(nbytes - STAMP_OFFSET),
    )
