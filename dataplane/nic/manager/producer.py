"""Producers: senders, each through its own software queue."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType

from dataplane.errors import PortError
from dataplane.nic.buffers.buffer_pools import MappedSendQueue
from dataplane.nic.buffers.kernel_calls import queue_kernels
from dataplane.nic.buffers.kernels.transmitting import NOT_SENT
from dataplane.nic.buffers.sleeper import Sleeper
from dataplane.nic.buffers.software_queue import SendQueue

QUEUE_FULL = "queue_full"
RESERVE_SPENT = "reserve_spent"
TOO_LONG = "too_long"
REFUSED = "refused"
DOWN = "down"
PRODUCER_LEFT = "producer_left"


@dataclass(frozen=True, slots=True)
class ProducerReading:
    """Counters of a producer, in packets: queued = waiting + on_device + sent + dropped later.

    `waiting` are in the software queue, `on_device` in the device's queue and not yet reported sent. Packets for which
    the software queue (`queue_full`) or its buffers (`reserve_spent`) had no room were never queued. Dropped later are
    those `too_long` for the device, `refused` as too short, lost as it went `down`, or still queued as the producer
    left.
    """

    name: str
    thread: int
    queued: int
    queued_bytes: int
    waiting: int
    on_device: int
    sent: int
    drops: dict[str, int]


class Producer:
    """Sends packets in order, from any thread, one packet at a time.

    Native code may be the producer instead: it calls `claim` and `complete`, or `send_copy`, of
    dataplane/nic/buffers/kernels/transmitting.py with `queue`; then Python must not send.
    """

    def __init__(self, name: str, sleeper: Sleeper, queue: MappedSendQueue) -> None:
        self.name = name
        self._sleeper = sleeper
        self._queue = queue
        self._leave: Callable[[], None] | None = None
        # A signal handler may close the producer in the middle of a call of the same thread.
        self._lock = threading.RLock()
        self.is_drained = False

    @property
    def queue(self) -> SendQueue:
        """The software queue, for native code."""
        return self._queue.native

    @property
    def thread(self) -> int:
        """The number of the driver thread that sends."""
        return self._queue.thread

    @property
    def is_closed(self) -> bool:
        """True once the producer has left."""
        return self._leave is None

    def send(self, frame: bytes) -> int | None:
        """Queue a packet and return its position; None if there is no room, which is counted.

        Raises PortError if the producer has left.
        """
        with self._lock:
            if self.is_closed:
                raise PortError(f"producer {self.name} has left")
            queue = self._queue
            position = queue_kernels().send_copy(queue.address, frame, len(frame))
        return None if position == NOT_SENT else position

    def sent(self, position: int) -> bool:
        """Return whether the packet has left: the device took it, or it was dropped and counted."""
        return bool(self._queue.native.settled > position)

    def wait_sent(self, position: int, timeout_s: float) -> bool:
        """Return whether the packet has left, as soon as it has or on timeout.

        Raises PortError if the producer leaves first.
        """
        self._sleeper.wait(lambda: self.sent(position) or self.is_closed, timeout_s)
        if not self.sent(position) and self.is_closed:
            raise PortError(f"producer {self.name} has left")
        return self.sent(position)

    def close(self) -> None:
        """Leave; packets still queued are dropped and counted as `producer_left`. A second call does nothing."""
        with self._lock:
            leave, self._leave = self._leave, None
        if leave is not None:
            leave()
            self._sleeper.wake()

    def read(self) -> ProducerReading:
        """Return the current counters; from any thread, also once closed."""
        queue = self._queue.native
        sent, too_long, refused, down = queue.sent, queue.too_long, queue.refused, queue.down
        settled, left = queue.settled, queue.producer_left
        head = queue.head
        tail = queue.tail
        return ProducerReading(
            name=self.name,
            thread=self.thread,
            queued=tail,
            queued_bytes=queue.tail_bytes,
            waiting=tail - head,
            on_device=head - left - settled,
            sent=sent,
            drops={
                QUEUE_FULL: queue.queue_full,
                RESERVE_SPENT: queue.reserve_spent,
                TOO_LONG: too_long,
                REFUSED: refused,
                DOWN: down,
                PRODUCER_LEFT: left,
            },
        )

    def joined(self, leave: Callable[[], None]) -> None:
        """Record how to leave (for the packet manager)."""
        self._leave = leave

    def abandon(self) -> None:
        """Drop queued packets, once no driver thread sends for this producer any more (for the packet manager)."""
        with self._lock:
            queue_kernels().abandon(self._queue.native)
        self.is_drained = True

    def free(self) -> ProducerReading:
        """Free the memory, once the device holds none of it; return the last reading (for the packet manager)."""
        self._queue = replace(self._queue, view=memoryview(b""))
        return self.read()

    def fall_silent(self) -> None:
        """Close the bell, once no driver thread rings it any more (for the packet manager)."""
        self._sleeper.close()

    @property
    def is_on_device(self) -> bool:
        """True while the device holds packets that it has not reported."""
        return self.read().on_device > 0

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
