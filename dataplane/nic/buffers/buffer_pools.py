"""Core control: memory for buffers of any size, in a reserve for each user, and their software queues.

Each software queue has its own memory, mapped when its consumer or producer joins, so that users never contend and none
can take what another needs.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import mmap
import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dataplane.errors import PortError
from dataplane.native import array_at, kernel_library, sizeof, u64
from dataplane.native.doorbell import Bell
from dataplane.nic.buffers.kernels.buffers import lay_out
from dataplane.nic.buffers.software_queue import GroupState, Memory, ReceiveQueue, SendElement, SendQueue
from dataplane.nic.structures import SIZE_CLASSES, Buffer, Ring

SMALL_BYTES, LARGE_BYTES = 256, 2048
_LINE_BYTES = 64
HEAD_BYTES = -(-sizeof(Buffer) // _LINE_BYTES) * _LINE_BYTES
"""From a buffer's head to its bytes."""
LONGEST_BUFFER_BYTES = 1 << 24
MOST_BUFFERS = 1 << 24


@functools.cache
def _lay_out() -> Callable[..., None]:
    return kernel_library(lay_out).bind(lay_out)


@dataclass(frozen=True, slots=True)
class MappedReceiveQueue:
    """A software queue to a consumer, and its memory, which stays mapped while `view`, or a part of it, is in use."""

    native: ReceiveQueue
    view: memoryview
    start: int  # address of the view's first byte
    thread: int  # number of the driver thread
    address: int  # of the software queue
    state: GroupState  # counts returned packets in its buckets


@dataclass(frozen=True, slots=True)
class MappedSendQueue:
    """A software queue from a producer, and its memory."""

    native: SendQueue
    view: memoryview
    thread: int
    address: int


@dataclass(frozen=True, slots=True)
class BufferReading:
    """The buffers of one size, in bytes: how many there are, and how many are free."""

    size_bytes: int
    buffers: int
    free: int


def default_sizes(buffers: int, longest_frame: int) -> dict[int, int]:
    """Return how many buffers of each size, in bytes, to make from a total number of buffers.

    Half are small. Of the rest, an eighth hold the device's longest frame if it exceeds a large buffer.
    """
    if longest_frame <= SMALL_BYTES:
        return {longest_frame: buffers}
    small = buffers // 2
    rest = buffers - small
    if longest_frame <= LARGE_BYTES:
        sizes = {SMALL_BYTES: small, max(longest_frame, LARGE_BYTES): rest}
    else:
        longest = max(1, rest // 8)
        sizes = {SMALL_BYTES: small, LARGE_BYTES: rest - longest, longest_frame: longest}
    return {size: count for size, count in sizes.items() if count}


class BufferPools:
    """Makes software queues; `memory_bytes` bounds their total memory, None: an eighth of the machine's memory."""

    def __init__(self, name: str, memory_bytes: int | None = None) -> None:
        self._name = name
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._limit = total // 8 if memory_bytes is None else memory_bytes
        self._sizes: dict[int, int] = {}
        self._numbers = itertools.count()

    @property
    def memory_bytes(self) -> int:
        """Return how much memory the software queues currently take."""
        return sum(list(self._sizes.values()))

    def make_receive_queue(
        self,
        user: str,
        thread: int,
        sizes: Mapping[int, int],
        queue_packets: int | None,
        *,
        bell: Bell,
        state: GroupState,
    ) -> MappedReceiveQueue:
        """Return a software queue to a consumer, with `sizes` (bytes: number) of buffers.

        Raises PortError naming the user if the sizes are not possible or do not fit.
        """
        buffers = self._check(user, sizes)
        limit = buffers if queue_packets is None else queue_packets
        if not 1 <= limit <= MOST_BUFFERS:
            raise PortError(f"{user}: a queue of {limit} packets is not possible")
        queue = ReceiveQueue(limit=limit)
        queue.bell = bell
        memory = self._map(user, sizes, ring_slots(limit) * 8)
        set_ring(queue.packets[0], memory.take(ring_slots(limit) * 8), ring_slots(limit))
        memory.furnish(queue.address, queue.memory[0], sizes)
        return MappedReceiveQueue(queue, memory.view(), memory.start, thread, queue.address, state)

    def make_send_queue(
        self, user: str, thread: int, sizes: Mapping[int, int], queue_packets: int, *, bell: Bell, driver_bell: Bell
    ) -> MappedSendQueue:
        """Return a software queue from a producer; `queue_packets` is rounded up to a power of two.

        Raises PortError naming the user if the sizes are not possible or do not fit.
        """
        self._check(user, sizes)
        if not 1 <= queue_packets <= MOST_BUFFERS:
            raise PortError(f"{user}: a queue of {queue_packets} packets is not possible")
        slots = ring_slots(queue_packets)
        queue = SendQueue(mask=slots - 1)
        queue.bell, queue.driver_bell = bell, driver_bell
        memory = self._map(user, sizes, slots * sizeof(SendElement))
        queue.elements = array_at(SendElement, memory.take(slots * sizeof(SendElement)))
        memory.furnish(queue.address, queue.memory[0], sizes)
        return MappedSendQueue(queue, memory.view(), thread, queue.address)

    def _check(self, user: str, sizes: Mapping[int, int]) -> int:
        if not 1 <= len(sizes) <= SIZE_CLASSES:
            raise PortError(f"{user}: buffers come in 1 to {SIZE_CLASSES} sizes, not {len(sizes)}")
        for size, count in sizes.items():
            if not (1 <= size <= LONGEST_BUFFER_BYTES and 1 <= count <= MOST_BUFFERS):
                raise PortError(f"{user}: {count} buffers of {size} bytes are not possible")
        return sum(sizes.values())

    def _map(self, user: str, sizes: Mapping[int, int], extra_bytes: int) -> QueueMemory:
        nbytes = _round_up(extra_bytes) + sum(map(class_bytes, sizes, sizes.values()))
        left = self._limit - self.memory_bytes
        if nbytes > left:
            problem = f"{_mebibytes(nbytes)} of buffers do not fit"
            raise PortError(f"{user}: {problem}: {_mebibytes(left)} of {_mebibytes(self._limit)} are left")
        try:
            memory = QueueMemory(nbytes)
        except OSError as error:
            raise PortError(f"{user}: {_mebibytes(nbytes)} of buffers cannot be allocated: {error.strerror}") from error
        number = next(self._numbers)
        self._sizes[number] = nbytes
        weakref.finalize(memory.area, self._sizes.pop, number)
        return memory


class QueueMemory:
    """A mapping that is handed out from its beginning; raises OSError.

    Python unmaps it once nothing refers to it. A finalizer of ours would do so too early: finalizers of packets
    collected in the same garbage cycle may run later and still give buffers back.
    """

    def __init__(self, nbytes: int) -> None:
        self.area = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
        self.start = self._next = ctypes.addressof(ctypes.c_char.from_buffer(self.area))
        self._nbytes = nbytes

    def take(self, nbytes: int) -> int:
        """Return the address of that many bytes, aligned to a cache line."""
        start = self._next
        self._next += _round_up(nbytes)
        return start

    def furnish(self, queue: int, memory: Memory, sizes: Mapping[int, int]) -> None:
        """Create the buffers of the software queue at an address, sizes ascending, all free."""
        memory.classes = len(sizes)
        memory.start, memory.nbytes = self.start, self._nbytes
        for number, (size, count) in enumerate(sorted(sizes.items())):
            reserve = memory.reserves[number]
            reserve.capacity, reserve.buffers = size, count
            set_ring(reserve.returned[0], self.take(ring_slots(count) * 8), ring_slots(count))
            reserve.stack = array_at(u64, self.take(count * 8))
            stride = stride_bytes(size)
            _lay_out()(reserve, self.take(count * stride), stride, HEAD_BYTES, queue, number)

    def view(self) -> memoryview:
        """Return all of the memory; slices of it keep it mapped, too."""
        return memoryview(self.area)


def set_ring(ring: Ring, address: int, slots: int) -> None:
    """Give a ring its slots, a power of two."""
    ring.slots = array_at(u64, address)
    ring.mask = slots - 1


def ring_slots(count: int) -> int:
    """Return the smallest power of two that holds that many."""
    return 1 << max(count - 1, 1).bit_length()


def stride_bytes(size: int) -> int:
    """Return the distance between buffers of a size, in bytes."""
    return HEAD_BYTES + _round_up(size)


def class_bytes(size: int, count: int) -> int:
    """Return the memory that buffers of one size take, including the slots that store them."""
    return count * stride_bytes(size) + _round_up(ring_slots(count) * 8) + _round_up(count * 8)


def _round_up(nbytes: int) -> int:
    return -(-nbytes // _LINE_BYTES) * _LINE_BYTES


def _mebibytes(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f} MiB"
