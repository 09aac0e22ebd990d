"""Consumers: receivers of a group's packets, or of a share of them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dataplane.errors import PortError
from dataplane.native.doorbell import Bell
from dataplane.nic.buffers.buffer_pools import BufferReading, MappedReceiveQueue
from dataplane.nic.buffers.kernel_calls import queue_kernels
from dataplane.nic.buffers.packets import Packet
from dataplane.nic.buffers.sleeper import Sleeper
from dataplane.nic.buffers.software_queue import ReceiveQueue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RESERVE_SPENT = "reserve_spent"
QUEUE_FULL = "queue_full"
CONSUMER_LEFT = "consumer_left"
BURST_PACKETS = 256


@dataclass(frozen=True, slots=True)
class SoftwareQueueReading:
    """Counters of packets from one driver thread to one consumer.

    handed_out = waiting + taken + dropped as `consumer_left`; taken = lent + given_back. `reserve_spent` and
    `queue_full` were never handed out. `refused_releases` counts releases of packets that were not lent, `cut` packets
    longer than the row they were copied into.
    """

    thread: int
    handed_out: int
    handed_out_bytes: int
    segments: int
    waiting: int
    taken: int
    lent: int
    given_back: int
    refused_releases: int
    cut: int
    drops: dict[str, int]
    buffers: tuple[BufferReading, ...]


@dataclass(frozen=True, slots=True)
class ConsumerReading:
    """A consumer's software queues, one for each driver thread."""

    name: str
    group: str
    queues: tuple[SoftwareQueueReading, ...]

    def total(self, counter: str) -> int:
        """Return the sum of a counter over the software queues."""
        return sum(getattr(queue, counter) for queue in self.queues)

    def dropped(self, reason: str) -> int:
        """Return how many packets were dropped for a reason."""
        return sum(queue.drops[reason] for queue in self.queues)


class Consumer:
    """Receives packets in buffers that are lent to it. One thread receives; any may release.

    Native code may be the consumer instead: it calls `acquire` and `give_back` of
    dataplane/nic/buffers/kernels/software_queues.py with `queues`, and `await_packets` with `bell`; then Python must
    not receive or release.
    """

    def __init__(
        self, name: str, group: str, serial: int, sleeper: Sleeper, queues: Sequence[MappedReceiveQueue]
    ) -> None:
        self.name, self.group, self.serial = name, group, serial
        self._sleeper = sleeper
        self._queues = tuple(queues)
        self._leave: Callable[[], None] | None = None
        # Garbage collection may release a packet in the middle of another call of the same thread.
        self._lock = threading.RLock()
        self._packets = (ctypes.c_uint64 * BURST_PACKETS)()
        # Twice, so that they are contiguous from any starting queue.
        self._addresses = (ctypes.c_uint64 * (2 * len(queues)))(*(2 * [queue.address for queue in queues]))
        self._packets_at, self._addresses_at = ctypes.addressof(self._packets), ctypes.addressof(self._addresses)
        self._next = 0
        self._is_polled = False
        self._last_reading: ConsumerReading | None = None
        self.is_drained = False

    @property
    def queues(self) -> list[ReceiveQueue]:
        """The software queues, one for each driver thread, for native code."""
        return [queue.native for queue in self._queues]

    @property
    def bell(self) -> Bell:
        """The bell to sleep on, for native code."""
        return self._sleeper.bell

    @property
    def is_closed(self) -> bool:
        """True once the consumer has left."""
        return self._leave is None

    def receive(self, max_packets: int, timeout_s: float = 0.0) -> list[Packet]:
        """Return up to `max_packets` waiting packets; if there is none, wait for some until the timeout.

        Raises PortError if the consumer has left.
        """
        packets = self._take(max_packets)
        if not packets and timeout_s > 0 and max_packets > 0:
            self._sleeper.wait(self._has_packets, timeout_s)
            packets = self._take(max_packets)
        return packets

    def _take(self, max_packets: int) -> list[Packet]:
        packets: list[Packet] = []
        with self._lock:
            queues = self._open_queues()
            for _ in queues:
                queue = queues[self._next]
                self._next = (self._next + 1) % len(queues)
                packets += self._take_from(queue, max_packets - len(packets))
                if len(packets) >= max_packets:
                    break
            self._watch(len(packets) < max_packets)
        return packets

    def _take_from(self, queue: MappedReceiveQueue, limit: int) -> list[Packet]:
        packets: list[Packet] = []
        while len(packets) < limit:
            asked = min(limit - len(packets), BURST_PACKETS)
            count = queue_kernels().acquire(queue.address, self._packets_at, asked)
            packets += [Packet(self, queue, address) for address in self._packets[:count]]
            if count < asked:
                break
        return packets

    def receive_into(
        self,
        rows: NDArray[np.uint8],
        lengths: NDArray[np.uint32],
        times_ns: NDArray[np.uint64] | None = None,
        timeout_s: float = 0.0,
    ) -> int:
        """Copy waiting packets into rows, one each, and give their buffers back; return how many.

        `rows` is two-dimensional and contiguous. A packet longer than a row is truncated and counted; `lengths` holds
        its whole length, `times_ns` its timestamp. If none waits, wait for some until the timeout. Raises PortError if
        the consumer has left, ValueError for arrays that do not match.
        """
        limit, row_bytes = rows.shape
        check_array("rows", rows, "uint8", limit)
        check_array("lengths", lengths, "uint32", limit)
        if times_ns is not None:
            check_array("times_ns", times_ns, "uint64", limit)
        times_at = 0 if times_ns is None else times_ns.ctypes.data
        places = (rows.ctypes.data, row_bytes, lengths.ctypes.data, times_at, limit)
        filled = self._copy(*places)
        if not filled and timeout_s > 0 and limit > 0:
            self._sleeper.wait(self._has_packets, timeout_s)
            filled = self._copy(*places)
        return filled

    def _copy(self, rows: int, row_bytes: int, lengths: int, times: int, limit: int) -> int:
        with self._lock:
            queues = self._open_queues()
            first = self._addresses_at + self._next * ctypes.sizeof(ctypes.c_uint64)
            self._next = (self._next + 1) % len(queues)
            count = queue_kernels().copy_out_all(first, len(queues), rows, row_bytes, lengths, times, limit)
            self._watch(count < limit)
        return count

    def wait(self, timeout_s: float) -> bool:
        """Return whether packets wait, as soon as some do or on timeout."""
        with self._lock:
            self._open_queues()
        is_ready = self._sleeper.wait(self._has_packets, timeout_s)
        with self._lock:
            if self.is_closed:
                return False
            self._watch(found_all=True)
        return is_ready

    def fileno(self) -> int:
        """Return a descriptor that is readable while packets wait; wake-ups may be spurious."""
        with self._lock:
            self._open_queues()
            self._is_polled = True
            self._watch(found_all=True)
            return self._sleeper.fileno()

    def take_back(self, queue: MappedReceiveQueue, address: int) -> bool:
        """Return a packet's buffers to the reserve; False, and counted, if it was not lent."""
        with self._lock:
            return queue_kernels().give_back(queue.address, address)

    def close(self) -> None:
        """Leave the group: others get its packets from now on; waiting packets are dropped, counted as `consumer_left`.

        Received packets stay valid until they are released. A second call does nothing.
        """
        with self._lock:
            leave, self._leave = self._leave, None
        if leave is not None:
            leave()
            self._sleeper.wake()

    def read(self) -> ConsumerReading:
        """Return the current counters; from any thread, also once closed."""
        with self._lock:
            if self._last_reading is not None:
                return self._last_reading
            return ConsumerReading(self.name, self.group, tuple(map(read_queue, self._queues)))

    def joined(self, leave: Callable[[], None]) -> None:
        """Record how to leave (for the packet manager)."""
        self._leave = leave

    def discard(self) -> None:
        """Drop waiting packets, once no driver thread hands out to this consumer any more (for the packet manager)."""
        with self._lock:
            for queue in self._queues:
                queue_kernels().discard(queue.native)
        self.is_drained = True
        self._sleeper.close()

    def free(self) -> ConsumerReading:
        """Free the queues, once nothing of them is lent; return their last reading (for the packet manager)."""
        with self._lock:
            self._last_reading = self.read()
            self._queues = ()
            return self._last_reading

    @property
    def holds_buffers(self) -> bool:
        """True while packets are lent or waiting."""
        reading = self.read()
        return reading.total("lent") + reading.total("waiting") > 0

    def _has_packets(self) -> bool:
        with self._lock:
            return self.is_closed or queue_kernels().any_waits(self._addresses_at, len(self._queues))

    def _watch(self, found_all: bool) -> None:
        # Pollers find the descriptor readable while anything waits; it stays so until everything was found. A thread
        # that slept on the bell has left it disarmed.
        if self._is_polled and found_all:
            queue_kernels().watch(self._sleeper.bell, self._addresses, len(self._queues))

    def _open_queues(self) -> tuple[MappedReceiveQueue, ...]:
        """Return the queues; a holder may keep using them even if a signal handler closes the consumer meanwhile."""
        if self.is_closed:
            raise PortError(f"consumer {self.name} has left")
        return self._queues

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_array(name: str, array: NDArray[Any], kind: str, count: int) -> None:
    """Raise ValueError for an array that kernels cannot write `count` entries into."""
    if array.dtype != kind or len(array) < count or not array.flags.c_contiguous:
        raise ValueError(f"{name}: needs {count} entries of {kind}, contiguous")


def read_queue(queue: MappedReceiveQueue) -> SoftwareQueueReading:
    """Return a software queue's counters, which add up even while packets move."""
    struct = queue.native
    ring = struct.packets[0]
    given_back, left = struct.given_back, struct.consumer_left
    head = ring.head
    put = struct.put
    return SoftwareQueueReading(
        thread=queue.thread,
        handed_out=put,
        handed_out_bytes=struct.handed_out_bytes,
        segments=struct.segments,
        waiting=put - head,
        taken=head - left,
        lent=head - left - given_back,
        given_back=given_back,
        refused_releases=struct.refused,
        cut=struct.cut,
        drops={RESERVE_SPENT: struct.reserve_spent, QUEUE_FULL: struct.queue_full, CONSUMER_LEFT: left},
        buffers=tuple(read_buffers(struct)),
    )


def read_buffers(queue: ReceiveQueue) -> list[BufferReading]:
    """Return how many buffers of each size there are, and how many are free."""
    memory = queue.memory[0]
    return [
        BufferReading(
            memory.reserves[number].capacity,
            memory.reserves[number].buffers,
            queue_kernels().free_buffers(queue.memory[0], number),
        )
        for number in range(memory.classes)
    ]
