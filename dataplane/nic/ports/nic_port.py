"""A port with its queues: opened, used from Python or lent to a native loop, counted, closed."""

from __future__ import annotations

import ctypes
import functools
import select
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from dataplane.native import kernel_library, pointer_to
from dataplane.nic.devices.device import DeviceWatch, request_for
from dataplane.nic.port import LinkStatus, PortInformation, PortReading
from dataplane.nic.ports.drops import missed, not_sent
from dataplane.nic.ports.kernels import receive, release
from dataplane.nic.ports.kernels.memory import arm
from dataplane.nic.ports.kernels.send_frames import send_copies
from dataplane.nic.ports.kernels.waiting import take_error
from dataplane.nic.ports.queue import JoinGate, PortKind, PortQueue

BURST_FRAMES = 256


class Channel(Protocol):
    """The backing of one queue: a socket with its rings, or memory."""

    @property
    def queue(self) -> PortQueue:
        """The queue."""
        ...

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        ...

    def read_drops(self) -> None:
        """Update the queue's `rx_dropped`."""
        ...

    def close(self) -> None:
        """Free what the queue uses."""
        ...


_ERRING = (PortKind.PACKET_V2, PortKind.PACKET_V3, PortKind.XDP)


@dataclass(frozen=True, slots=True)
class _Kernels:
    """The compiled kernels that Python calls."""

    receive: Callable[..., int]
    release: Callable[..., None]
    send_copies: Callable[..., None]
    arm: Callable[..., bool]
    take_error: Callable[..., bool]


@functools.cache
def _kernels() -> _Kernels:
    library = kernel_library(receive, release, send_copies, arm, take_error)
    bind = library.bind
    return _Kernels(bind(receive), bind(release), bind(send_copies), bind(arm), bind(take_error))


class NicPort:
    """A port of one or several queues; implements `Port`.

    While a native loop uses a queue, Python may only read counters; the loop must have stopped before `close`.
    """

    def __init__(
        self,
        name: str,
        channels: Sequence[Channel],
        device: DeviceWatch | None = None,
        information: PortInformation | None = None,
        gate: JoinGate | None = None,
    ) -> None:
        self._name = name
        self.gate = gate
        """Gate that its queues check before they join TCP segments; None: they join none."""
        self.information = information or PortInformation(len(channels))
        """Its binding to its device."""
        self._channels = tuple(channels)
        self._device = device
        for channel in channels if device is not None else ():
            channel.queue.device = pointer_to(bytearray(request_for(name)))
            channel.queue.device_fd = device.fileno() if device is not None else -1
        self._closed = False
        self._counting = threading.RLock()  # a signal handler may close it in the middle of a reading
        self._addresses = (ctypes.c_uint64 * BURST_FRAMES)()
        self._lengths = (ctypes.c_uint32 * BURST_FRAMES)()
        self._poll: select.epoll | None = None
        self._next = 0

    @property
    def name(self) -> str:
        """The name for users: the device's name."""
        return self._name

    @property
    def device_index(self) -> int | None:
        """The index of its device, if it is on one."""
        return None if self._device is None else self._device.index

    @property
    def queues(self) -> list[PortQueue]:
        """The queues, in order; they must not be used once the port is closed."""
        return [channel.queue for channel in self._channels]

    @property
    def is_down(self) -> bool:
        """True if the device is down or gone, or the other end has closed."""
        if self._closed:
            return True
        if self._device is not None:
            return not self._device.is_up
        return any(channel.queue.down for channel in self._channels)

    @property
    def has_link(self) -> bool:
        """True if frames would reach the other end: it exists and is up, too. The kernel takes them either way."""
        if self._device is None or self._closed:
            return not self.is_down
        return self._device.has_link

    @property
    def link_status(self) -> LinkStatus:
        """The current state of the device, whether it is in use or not."""
        if self._device is None or self._closed:
            return LinkStatus.DOWN if self.is_down else LinkStatus.UP
        return self._device.link_status

    @property
    def speed_bps(self) -> int | None:
        """The speed that the device reports; None if it reports none, or is no device."""
        return None if self._device is None or self._closed else self._device.speed_bps

    def receive(self, max_frames: int) -> list[bytes]:
        """Return up to `max_frames` frames, VLAN tags in place, taking the queues in turn."""
        frames: list[bytes] = []
        for _ in self._channels if not self._closed else ():
            channel = self._channels[self._next]
            self._next = (self._next + 1) % len(self._channels)
            frames += self._receive(channel.queue, max_frames - len(frames))
        return frames

    def _receive(self, queue: PortQueue, max_frames: int) -> list[bytes]:
        frames: list[bytes] = []
        while len(frames) < max_frames:
            limit = min(max_frames - len(frames), BURST_FRAMES)
            count = _kernels().receive(queue, self._addresses, self._lengths, limit)
            addresses, lengths = self._addresses[:count], self._lengths[:count]
            frames += map(ctypes.string_at, addresses, lengths)
            _kernels().release(queue)
            # A ring in memory wakes its descriptor only for a reader that found nothing and asked.
            if count == 0 and (queue.kind != PortKind.MEMORY or _kernels().arm(queue)):
                break
        if not frames and queue.kind in _ERRING:
            _kernels().take_error(queue)  # else its descriptor stays readable
        return frames

    def send(self, frames: Sequence[bytes]) -> int:
        """Send frames in order through the first queue; return how many were taken; the others are counted as drops.

        Frames that the device has no room for stay queued and go with the next call, which may have no frames.
        """
        if self._closed or not (frames or self.has_waiting):
            return 0
        queue = self._channels[0].queue
        before = queue.tx_frames + queue.tx_pending
        lengths = (ctypes.c_uint32 * len(frames))(*map(len, frames))
        _kernels().send_copies(queue, b"".join(frames), lengths, len(frames))
        return queue.tx_frames + queue.tx_pending - before

    @property
    def has_waiting(self) -> bool:
        """True if frames wait for the next `send`."""
        return bool(self._channels[0].queue.tx_pending)

    def fileno(self) -> int:
        """Return a descriptor that is readable when frames have arrived."""
        if len(self._channels) == 1 or self._closed:
            return self._channels[0].fileno()
        if self._poll is None:
            self._poll = select.epoll()
            for channel in self._channels:
                self._poll.register(channel.fileno(), select.EPOLLIN)
        return self._poll.fileno()

    def read_counters(self) -> PortReading:
        """Return the counters of all queues together; at any time, from any thread, also once closed."""
        # Each reading resets the kernel's count of drops, so only one runs at a time.
        with self._counting:
            for channel in () if self._closed else self._channels:
                channel.read_drops()
        total = functools.partial(_total, self.queues)
        drops = Counter[str]()
        for queue in self.queues:
            drops.update(missed(queue))
            drops.update(not_sent(queue))
        return PortReading(
            total("rx_frames"),
            total("rx_bytes"),
            total("tx_frames"),
            total("tx_bytes"),
            total("checksum_not_ready"),
            {name: count for name, count in drops.items() if count},
        )

    def close(self) -> None:
        """Release the device; a second call does nothing."""
        with self._counting:
            if self._closed:
                return
            self._closed = True
        if self._poll is not None:
            self._poll.close()
        for channel in self._channels:
            channel.close()
        if self._device is not None:
            self._device.close()

    def __enter__(self) -> NicPort:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _total(queues: Sequence[PortQueue], counter: str) -> int:
    return sum(getattr(queue, counter) for queue in queues)
