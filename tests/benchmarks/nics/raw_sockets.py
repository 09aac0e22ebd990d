"""The opponent: AF_PACKET raw sockets that block in recv(2) and return one frame a call."""

from __future__ import annotations

import functools
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from dataplane.fabric.kernel import namespaces
from dataplane.linux import SO_RCVBUFFORCE
from dataplane.native import kernel_library
from tests.benchmarks.nics.cable import Cable
from tests.benchmarks.nics.generator import STAMP_OFFSET, Generator
from tests.benchmarks.nics.kernels import MAGIC, MOST_BYTES, STAMP_BYTES, read_socket
from tests.benchmarks.nics.receivers import Consumers, Receiver, TallySheet, Wakes

BUFFER_BYTES = 8 << 20
"""As much as our rings hold, so that no side loses frames because of a small buffer."""
_SOL_PACKET, _FANOUT, _FANOUT_UNIQUE_ID, _ETH_P_ALL = 263, 18, 0x2000, 3
_STAMP = struct.Struct(">QQ")
_STOP_LIMIT_S = 10.0
Read = Callable[[TallySheet, socket.socket], object]


class PlainReceiver:
    """Sockets with a thread each."""

    def __init__(self, sockets: Sequence[socket.socket], read: Read) -> None:
        self.tallies = [TallySheet() for _ in sockets]
        self._consumers = Consumers(
            [functools.partial(read, sheet, opened) for sheet, opened in zip(self.tallies, sockets, strict=True)]
        )
        self.threads = self._consumers.threads

    def read_wakes(self) -> Wakes | None:
        """Return None: sockets keep no such statistics; the kernel's count of context switches tells."""
        return None

    def stop(self, nudge: Callable[[], object]) -> None:
        """End the threads, which return after the next frame: `nudge` sends some."""
        for sheet in self.tallies:
            sheet.tally.stop = 1
        limit_s = time.monotonic() + _STOP_LIMIT_S
        while self._consumers.are_alive:
            if time.monotonic() > limit_s:
                raise TimeoutError("the plain sockets' threads do not end")
            nudge()
            self._consumers.join(0.01)


def native_sockets(cable: Cable, queues: int, generator: Generator) -> AbstractContextManager[Receiver]:
    """Receive through sockets that native code reads."""
    return _receiving(cable, queues, generator, read_native)


def python_sockets(cable: Cable, queues: int, generator: Generator) -> AbstractContextManager[Receiver]:
    """Receive through sockets that Python reads."""
    return _receiving(cable, queues, generator, read_python)


@contextmanager
def _receiving(cable: Cable, queues: int, generator: Generator, read: Read) -> Iterator[PlainReceiver]:
    """Receive through as many sockets as queues, frames shared by flow, while the `with` block lasts."""
    sockets = namespaces.call(cable.receiver, lambda: [_open(cable.sink) for _ in range(queues)])
    try:
        if queues > 1:
            _share(sockets)
        receiver = PlainReceiver(sockets, read)
        try:
            yield receiver
        finally:
            receiver.stop(lambda: generator.run(100_000, 0.01))
    finally:
        for opened in sockets:
            opened.close()


def read_native(sheet: TallySheet, opened: socket.socket) -> None:
    """Read in machine code, without Python's costs."""
    kernel_library(read_socket).bind(read_socket)(sheet.tally, opened.fileno())


def read_python(sheet: TallySheet, opened: socket.socket) -> None:
    """Read as people write it; the same work for each frame as `kernels.note`."""
    tally, latencies = sheet.tally, sheet.memory
    received = timed = 0
    while not tally.stop:
        frame = opened.recv(MOST_BYTES)
        if len(frame) < STAMP_OFFSET + STAMP_BYTES:
            continue
        magic, sent_ns = _STAMP.unpack_from(frame, STAMP_OFFSET)
        if magic != MAGIC:
            continue
        received += 1
        if sent_ns and timed < len(latencies):
            latencies[timed] = time.monotonic_ns() - sent_ns
            timed += 1
        tally.received, tally.timed = received, timed


def _open(device: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    opened.bind((device, _ETH_P_ALL))
    return opened


def _share(sockets: Sequence[socket.socket]) -> None:
    """Make one fanout group: frames go by the hash of their flow."""
    flags, group = _FANOUT_UNIQUE_ID, 0
    for opened in sockets:
        opened.setsockopt(_SOL_PACKET, _FANOUT, group | flags << 16)
        group, flags = opened.getsockopt(_SOL_PACKET, _FANOUT) & 0xFFFF, 0
