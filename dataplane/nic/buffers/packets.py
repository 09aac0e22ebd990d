"""Packets as Python consumers see them: buffers that are lent, read in place, and given back."""

from __future__ import annotations

import struct
from types import TracebackType
from typing import Protocol

from dataplane.errors import PortError
from dataplane.nic.buffers.buffer_pools import MappedReceiveQueue
from dataplane.nic.structures import StampKind

_HEAD = struct.Struct("=QQIIIIQIIQQQIIIIQ")
"""`Buffer`."""


class Home(Protocol):
    """Owner that takes buffers back."""

    def take_back(self, queue: MappedReceiveQueue, address: int) -> bool:
        """Return whether the packet was lent."""
        ...


class Packet:
    """A packet in its consumer's buffers, valid until `release`, which garbage collection also calls.

    `data` and `segments` are the buffers themselves, and may be changed. After the release they belong to other
    packets. `time_ns` is the kernel's time of arrival (CLOCK_REALTIME), `hardware_time_ns` the device's; None: not
    known.
    """

    __slots__ = (
        "_address",
        "_first",
        "_home",
        "_next",
        "_owner",
        "hardware_time_ns",
        "length",
        "mark",
        "queue",
        "rule",
        "time_ns",
    )

    def __init__(self, home: Home, queue: MappedReceiveQueue, address: int) -> None:
        self._home, self._owner, self._address = home, queue, address
        head = _HEAD.unpack_from(queue.view, address - queue.start)
        self._next: int = head[0]
        self._first: tuple[int, int] = (head[1], head[3])
        self.length: int = head[4]
        time_ns, kind = head[11:13]
        self.queue: int = head[13]
        self.mark: int = head[14]
        self.rule: int = head[15]
        self.time_ns: int | None = time_ns if kind == StampKind.SOFTWARE else None
        self.hardware_time_ns: int | None = time_ns if kind == StampKind.HARDWARE else None

    @property
    def data(self) -> memoryview:
        """The bytes of the first segment, which is the whole packet unless that is longer than a buffer."""
        return self._cut(*self._first)

    @property
    def segments(self) -> tuple[memoryview, ...]:
        """The bytes of all segments, in order."""
        parts = [self.data]
        following = self._next
        while following:
            head = _HEAD.unpack_from(self._owner.view, following - self._owner.start)
            parts.append(self._cut(head[1], head[3]))
            following = head[0]
        return tuple(parts)

    def _cut(self, address: int, length: int) -> memoryview:
        if self.is_released:
            raise PortError("a packet that was given back has no data any more")
        offset = address - self._owner.start
        return self._owner.view[offset : offset + length]

    @property
    def is_released(self) -> bool:
        """True once the packet has been given back."""
        return self._address == 0

    def __len__(self) -> int:
        return self.length

    def __bytes__(self) -> bytes:
        return b"".join(self.segments)

    def release(self) -> bool:
        """Give the buffers back; return False, counted as refused, if they were given back before."""
        address, self._address = self._address, 0
        return self._home.take_back(self._owner, address)

    def __enter__(self) -> Packet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.is_released:
            self.release()

    def __del__(self) -> None:
        if getattr(self, "_address", 0):
            self.release()
