"""Trials: frames sent at a rate for a while, counted and timed where they come out; and the search for the knee."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dataplane.fabric.kernel import namespaces
from dataplane.native import kernel_library
from dataplane.nic import NicPort, PortKind, RingSettings, open_port
from dataplane.nic.ports.kernels.system import real_time_ns
from tests.benchmarks.traffic.cables import Cables
from tests.benchmarks.traffic.kernels import Sink, Source, drain, generate

NS_PER_S = 1_000_000_000
SATURATED_PPS = 10_000_000
"""More than any generator reaches: the cable then sets the rate."""

_SLOT_BYTES = 256
_SLOTS = 1 << 17
_BLOCK_BYTES = 1 << 20
_MAX_LATENCIES = 4_000_000
_LOOK_S = 0.001
_QUIET_S = 0.1
_LIMIT_S = 5.0
_SOL_PACKET, _PACKET_VERSION, _PACKET_RX_RING, _TPACKET_V2, _ETH_P_ALL = 263, 10, 5, 1, 3


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of sending for `duration_s`; `cpu` is the number of CPUs that the switch kept busy meanwhile."""

    sent: int
    received: int
    received_in_time: int
    duration_s: float
    p50_us: float
    p99_us: float
    cpu: float

    @property
    def sent_pps(self) -> float:
        """Frames sent a second."""
        return self.sent / self.duration_s

    @property
    def received_pps(self) -> float:
        """Frames that arrived a second, while frames were sent."""
        return self.received_in_time / self.duration_s


class Tester:
    """Sends out of one device and receives at another; both stay open over many trials."""

    def __init__(self, port: NicPort, ring: mmap.mmap, frames: Sequence[bytes], stamp_offset: int) -> None:
        self._port = port
        self._data = ctypes.create_string_buffer(b"".join(frames))
        self._latencies = np.zeros(_MAX_LATENCIES, np.uint32)
        address = ctypes.addressof(ctypes.c_char.from_buffer(ring))
        self._sink = Sink(
            ring=address,
            slots=_SLOTS,
            slot_bytes=_SLOT_BYTES,
            stamp_offset=stamp_offset,
            latencies=self._latencies.ctypes.data,
            capacity=_MAX_LATENCIES,
        )
        self._frames, self._length, self._stamp_offset = len(frames), len(frames[0]), stamp_offset
        library = kernel_library(generate, drain, real_time_ns)
        self._generate, self._drain, self._now = (
            library.bind(function) for function in (generate, drain, real_time_ns)
        )

    def run(self, rate_pps: float, duration_s: float, switch_pid: int | None = None) -> Trial:
        """Send for `duration_s`; return when nothing more has come for a tenth of a second."""
        source = Source(
            queue=self._port.queues[0],
            frames=self._data,
            count=self._frames,
            length=self._length,
            stamp_offset=self._stamp_offset,
            rate_pps=max(1, int(rate_pps)),
            duration_ns=int(duration_s * NS_PER_S),
        )
        self._drain(self._sink)
        self._sink.received = self._sink.in_time = 0
        self._sink.deadline_ns = self._now() + source.duration_ns
        before_s = _cpu_seconds(switch_pid)
        sender = threading.Thread(target=self._generate, args=(source,))
        sender.start()
        while sender.is_alive():
            self._drain(self._sink)
            time.sleep(_LOOK_S)
        cpu = (_cpu_seconds(switch_pid) - before_s) / duration_s
        self._wait_until_quiet()
        latencies = self._latencies[: min(self._sink.received, _MAX_LATENCIES)]
        p50, p99 = np.percentile(latencies, (50, 99)) / 1000 if len(latencies) else (float("nan"), float("nan"))
        return Trial(source.sent, self._sink.received, self._sink.in_time, duration_s, float(p50), float(p99), cpu)

    def _wait_until_quiet(self) -> None:
        limit_s, last_s = time.monotonic() + _LIMIT_S, time.monotonic()
        while time.monotonic() < min(limit_s, last_s + _QUIET_S):
            if self._drain(self._sink):
                last_s = time.monotonic()
            time.sleep(_LOOK_S)


@contextmanager
def tester(cables: Cables, frames: Sequence[bytes], stamp_offset: int) -> Iterator[Tester]:
    """Open the hosts' devices; all frames are of one length and have room for a stamp at `stamp_offset`."""
    settings = RingSettings(rx_frames=64, tx_frames=4096, frame_bytes=2_048, qdisc_bypass=True)
    port = namespaces.call(cables.hosts, lambda: open_port(cables.source, PortKind.PACKET_V2, settings=settings))
    try:
        with (
            namespaces.call(cables.hosts, lambda: _open_sink(cables.sink)) as sink,
            mmap.mmap(sink.fileno(), _SLOTS * _SLOT_BYTES) as ring,
        ):
            yield Tester(port, ring, frames, stamp_offset)
    finally:
        port.close()


def find_knee(run: Callable[[float], Trial], highest_pps: float, steps: int) -> float:
    """Return the highest rate without a lost frame, by bisection; 0 if there is none.

    Of two trials at a rate one is enough: other work on the machine is not the switch's fault. Where the generator
    falls short of a rate, its actual rate counts.
    """
    low, high, best = 0.0, highest_pps, 0.0
    for _ in range(steps):
        rate = (low + high) / 2
        carried = [trial.sent_pps for trial in (run(rate), run(rate)) if trial.received >= trial.sent]
        best = max(best, *carried, 0.0)
        if any(sent_pps > 0.97 * rate for sent_pps in carried):
            low = rate
        else:
            high = rate
    return best


def _open_sink(device: str) -> socket.socket:
    sink = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sink.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
    blocks = _SLOTS * _SLOT_BYTES // _BLOCK_BYTES
    sink.setsockopt(_SOL_PACKET, _PACKET_RX_RING, struct.pack("4I", _BLOCK_BYTES, blocks, _SLOT_BYTES, _SLOTS))
    sink.bind((device, _ETH_P_ALL))
    return sink


def _cpu_seconds(pid: int | None) -> float:
    """Return user and system time of a process with all its threads."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
