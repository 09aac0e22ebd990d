"""Frames of every kind between hosts' devices in the kernel: from packet socket to packet socket, byte for byte."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from controller.network.tables.telemetry.int_domain import IntDomain
from dataplane.fabric.kernel import HOST_DEVICE
from tests.payloads import shapes
from tests.payloads.kernel import ACROSS, SAME_LEAF, TOPOLOGY, Bed
from tests.payloads.oracle import Case, Verdict, compare, headers_of, make_cases

FRAME_BYTES = 1514
"""Largest frame of a device with an MTU of 1,500."""
BURST = 64
LATE_S = 10.0
"""A frame not received by then is lost, however busy the machine is."""
_QUIET_S = 0.05
_ALL_PROTOCOLS, _OUTGOING = 0x0003, 4
_SOL_PACKET, _AUXDATA, _VLAN_VALID = 263, 8, 1 << 4
_AUXILIARY = struct.Struct("=IIIHHHH")
_RECEIVE_BYTES = 8 << 20


class Frames:
    """Packet sockets at the devices of hosts that are silent otherwise."""

    def __init__(self, bed: Bed, sockets: dict[str, socket.socket]) -> None:
        self._bed, self._sockets = bed, sockets

    def exchange(self, domain: IntDomain, rng: random.Random, count: int) -> Verdict:
        """Send this many frames, half of them to the same leaf; return the verdict."""
        headers, verdict = headers_of(domain), Verdict()
        for way in (SAME_LEAF, ACROSS):
            payloads = [shapes.draw(rng, headers, shapes.LARGE_BYTES) for _ in range(count // 2)]
            cases = make_cases(rng, domain, way, payloads, topology=TOPOLOGY, frame_bytes=FRAME_BYTES)
            before, arrived, strays = self._bed.drops(), list[bytes](), 0
            for start in range(0, len(cases), BURST):
                received, others = self._send(way, cases[start : start + BURST])
                arrived, strays = arrived + received, strays + others
            verdict.add(compare(cases, arrived, dict(self._bed.drops() - before), strays))
        return verdict

    def send(self, way: tuple[str, str], frames: Sequence[bytes], *, expect: int) -> list[bytes]:
        """Send frames and return what arrives: wait for `expect` of them, and a little longer."""
        cases = [Case(frame, frame, may_be_dropped=number >= expect) for number, frame in enumerate(frames)]
        return self._send(way, cases)[0]

    def _send(self, way: tuple[str, str], cases: Sequence[Case]) -> tuple[list[bytes], int]:
        """Return the arrivals, and how many frames others saw; wait for all that must arrive, and a little longer."""
        src, dst = way
        for case in cases:
            self._sockets[src].send(case.sent)
        certain, arrived = sum(not case.may_be_dropped for case in cases), list[bytes]()
        deadline = time.monotonic() + LATE_S
        while len(arrived) < certain and time.monotonic() < deadline:
            arrived += self._take(dst, _QUIET_S)
        arrived += self._take(dst, _QUIET_S)
        strays = sum(len(self._take(name, 0)) for name in self._sockets if name != dst)
        return arrived, strays

    def _take(self, host: str, quiet_s: float) -> list[bytes]:
        """Return the frames received by a host, once none arrives for a while."""
        return _taken(self._sockets[host], quiet_s)


@contextmanager
def frames_on(bed: Bed) -> Iterator[Frames]:
    """Yield packet sockets at the silent hosts of a fabric."""
    with ExitStack() as stack:
        hosts = {*SAME_LEAF, *ACROSS}
        yield Frames(bed, {host: stack.enter_context(bed.fabric.call_in(host, _open)) for host in hosts})


@contextmanager
def seen_at(bed: Bed, host: str) -> Iterator[list[bytes]]:
    """Yield a list that has, afterwards, the frames that came to a host meanwhile."""
    frames: list[bytes] = []
    with bed.fabric.call_in(host, _open) as opened:
        yield frames
        frames += _taken(opened, 0)


def _open() -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(_SOL_PACKET, _AUXDATA, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    opened.bind((HOST_DEVICE, _ALL_PROTOCOLS))
    return opened


def _taken(opened: socket.socket, quiet_s: float) -> list[bytes]:
    frames: list[bytes] = []
    opened.settimeout(quiet_s)
    while True:
        try:
            data, ancillary, _, address = opened.recvmsg(1 << 16, 64)
        except (TimeoutError, BlockingIOError):
            return frames
        if address[2] != _OUTGOING:
            frames.append(_with_tag(data, ancillary))


def _with_tag(frame: bytes, ancillary: Sequence[tuple[int, int, bytes]]) -> bytes:
    """Return a frame with the tag that the kernel took out before anybody saw it."""
    for level, kind, data in ancillary:
        if (level, kind) == (_SOL_PACKET, _AUXDATA):
            status, _, _, _, _, tci, tpid = _AUXILIARY.unpack(data)
            if status & _VLAN_VALID:
                frame = frame[:12] + struct.pack("!HH", tpid, tci) + frame[12:]
    return frame
