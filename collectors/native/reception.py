"""A UDP socket for the native receive loop: its buffers, and Python's view of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collectors.decode.payloads import Payloads
from collectors.native import receive_state
from collectors.native.memory import CellMemory
from collectors.native.receive_state import (
    CONTROL_BYTES,
    MESSAGE_BYTES,
    MESSAGES,
    NAME_BYTES,
    ROWS,
    STRIDE_BYTES,
    ReceiveState,
)
from collectors.native.state_lock import StateLock
from dataplane.clock import Clock, MonotonicClock
from dataplane.native import u8, u32, u64
from dataplane.nic.layouts import InputOutputVector, MessageHeader

_AF_INET6: Final = 10
_VECTOR_BYTES: Final = 16


class Stop(IntEnum):
    """Reason for which the receive loop returned."""

    EMPTY = receive_state.EMPTY
    OUT_OF_TIME = receive_state.OUT_OF_TIME
    FOR_PYTHON = receive_state.FOR_PYTHON
    FAILED = receive_state.FAILED


@dataclass(frozen=True, slots=True)
class Refused:
    """A payload that did not come from its switch's report source: its first bytes, and its sender."""

    head: bytes
    address: int
    source: object


class Reception:
    """Buffers of a bound UDP socket for `collectors.native.kernels.receive`; `wake` ends a wait, from any thread.

    Times are those of `clock`; `wall_ns` is the time by which the kernel stamps datagrams.
    """

    def __init__(self, fd: int, clock: Clock, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._clock, self._wall_ns = clock, wall_ns
        self._is_real = isinstance(clock, MonotonicClock) and wall_ns is time.time_ns
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.state = ReceiveState(fd=fd, wake_fd=self._wake_fd, late_messages=1, read_up_to_ns=clock.now_ns())
        self._put_buffers()
        self._put_rows()

    def _put_buffers(self) -> None:
        data, names = CellMemory(u8, MESSAGES * STRIDE_BYTES), CellMemory(u8, MESSAGES * NAME_BYTES)
        controls = CellMemory(u8, MESSAGES * CONTROL_BYTES)
        pieces, headers = CellMemory(InputOutputVector, MESSAGES), CellMemory(MessageHeader, MESSAGES)
        numbers = np.arange(MESSAGES, dtype=np.uint64)
        vectors = pieces.rows(np.dtype(InputOutputVector))
        vectors["base"] = np.uint64(data.pointer.address) + numbers * np.uint64(STRIDE_BYTES)
        vectors["nbytes"] = MESSAGE_BYTES
        rows = headers.rows(np.dtype(MessageHeader))
        rows["name"] = np.uint64(names.pointer.address) + numbers * np.uint64(NAME_BYTES)
        rows["name_bytes"] = NAME_BYTES
        rows["vector"] = np.uint64(pieces.pointer.address) + numbers * np.uint64(_VECTOR_BYTES)
        rows["vector_count"] = 1
        rows["control"] = np.uint64(controls.pointer.address) + numbers * np.uint64(CONTROL_BYTES)
        rows["control_bytes"] = CONTROL_BYTES
        state = self.state
        state.data, state.names, state.controls = data.pointer, names.pointer, controls.pointer
        state.headers = headers.pointer
        self._pieces = pieces  # what the headers point to
        self._data: NDArray[np.uint8] = data.rows(np.uint8)
        self._names: NDArray[np.uint8] = names.rows(np.uint8).reshape(MESSAGES, NAME_BYTES)

    def _put_rows(self) -> None:
        places, state = CellMemory(u64, ROWS), self.state
        lengths, sources, numbers = (CellMemory(u32, ROWS) for _ in range(3))
        state.places, state.lengths = places.pointer, lengths.pointer
        state.sources, state.message_of = sources.pointer, numbers.pointer
        self._places: NDArray[np.uint64] = places.rows(np.uint64)
        self._lengths, self._sources, self._message_of = (
            memory.rows(np.uint32) for memory in (lengths, sources, numbers)
        )

    def share(self, lock: StateLock, *, checks_sources: bool) -> None:
        """Set the state's lock, and whether the payloads' sources are checked."""
        self.state.lock, self.state.checks_sources = lock.native, checks_sources

    def set_clocks(self) -> None:
        """Make native code use the clock's time, if it is not the machine's."""
        if not self._is_real:
            self.state.virtual_ns = max(self._clock.now_ns(), 1)
            self.state.wall_ahead_ns = (self._wall_ns() - time.time_ns()) & 0xFFFF_FFFF_FFFF_FFFF

    def wake(self) -> None:
        """Make the loop return soon."""
        os.eventfd_write(self._wake_fd, 1)

    @property
    def payloads(self) -> Payloads:
        """The payloads that messages were split into, valid until the loop continues; `row` is the next."""
        count = self.state.row_count
        sources = self._sources[:count]
        return Payloads(self._data, self._places[:count], self._lengths[:count], self._source_of, addresses=sources)

    def pass_row(self) -> None:
        """Skip the payload at `row`, which Python has read."""
        self.state.row += 1

    def take_refused(self) -> Refused | None:
        """Return the last payload that was refused since the last call, if there is one."""
        state = self.state
        if not state.refused:
            return None
        state.refused = 0
        head = bytes(state.refused_head[index] for index in range(state.refused_bytes))
        name = bytes(state.refused_name[index] for index in range(NAME_BYTES))
        return Refused(head, state.refused_source, sender(name))

    def close(self) -> None:
        """Close the bell; the socket is the caller's."""
        if self._wake_fd >= 0:
            os.close(self._wake_fd)
            self._wake_fd = -1

    def _source_of(self, row: int) -> object:
        return sender(self._names[int(self._message_of[row])].tobytes())


def sender(name: bytes) -> tuple[str, int]:
    """Return address and port of a struct sockaddr_in or sockaddr_in6."""
    port = int.from_bytes(name[2:4], "big")
    if int.from_bytes(name[:2], "little") == _AF_INET6:
        return str(IPv6Address(name[8:24])), port
    return str(IPv4Address(name[4:8])), port
