"""Cables in this process's memory: two ends, a ring each way; Python or a native loop may use either end."""

from __future__ import annotations

import os

from dataplane.errors import PortError
from dataplane.nic.ports.kernels.memory import SLOT_HEAD_BYTES
from dataplane.nic.ports.memory_map import MemoryMap, require_memory
from dataplane.nic.ports.nic_port import NicPort
from dataplane.nic.ports.queue import FrameRing, MemoryQueue, PortKind

_LINE_BYTES = 64


class _SharedRing:
    """The ring of one direction; freed when both ends have closed."""

    def __init__(self, slots: int, slot_bytes: int) -> None:
        stride = -(-(SLOT_HEAD_BYTES + slot_bytes) // _LINE_BYTES) * _LINE_BYTES
        self._map = MemoryMap(slots * stride)
        self.event_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.ring = FrameRing(slots=self._map.address, mask=slots - 1, stride=stride, event_fd=self.event_fd, waiting=1)
        self._users = 2

    def leave(self) -> None:
        """Close one side's use of the ring."""
        self.ring.closed = 1
        self._users -= 1
        if self._users == 0:
            os.close(self.event_fd)
            self._map.close()


class MemoryEnd:
    """One end of the cable: receives from one ring and sends into the other."""

    def __init__(self, incoming: _SharedRing, outgoing: _SharedRing, slot_bytes: int) -> None:
        self._rings = [incoming, outgoing]
        self._descriptor = incoming.event_fd
        self.queue = MemoryQueue(
            kind=PortKind.MEMORY,
            fd=incoming.event_fd,
            transmit_room=slot_bytes,
            shortest_frame=1,
            longest_frame=slot_bytes,
            device_fd=-1,
            incoming=incoming.ring,
            outgoing=outgoing.ring,
        )

    def fileno(self) -> int:
        """Return the eventfd that is readable once frames have arrived for a receiver that had found none."""
        return self._descriptor

    def read_drops(self) -> None:
        """Do nothing: the sender counts what finds the ring full."""

    def close(self) -> None:
        """Mark the cable closed for the other end, whose frames are lost from now on."""
        self._descriptor = -1
        while self._rings:
            self._rings.pop().leave()


def memory_pair(
    names: tuple[str, str] = ("a", "b"), *, slots: int = 1024, slot_bytes: int = 1 << 14
) -> tuple[NicPort, NicPort]:
    """Return the two ends of a cable; each way holds `slots` frames (a power of two) of up to `slot_bytes` bytes.

    Raises PortError for sizes that are not possible.
    """
    if slots < 1 or slots & (slots - 1) or slot_bytes < 1:
        raise PortError(f"ports {names[0]} and {names[1]}: {slots} slots of {slot_bytes} bytes are not possible")
    require_memory(f"ports {names[0]} and {names[1]}", 2 * slots * slot_bytes)
    try:
        there, back = _SharedRing(slots, slot_bytes), _SharedRing(slots, slot_bytes)
    except OSError as error:
        problem = f"{2 * slots * slot_bytes >> 10} KiB of rings cannot be allocated: {error.strerror}"
        raise PortError(f"ports {names[0]} and {names[1]}: {problem}") from error
    return (
        NicPort(names[0], [MemoryEnd(back, there, slot_bytes)]),
        NicPort(names[1], [MemoryEnd(there, back, slot_bytes)]),
    )
