"""Sends frames from Python, all of them in one call."""

from __future__ import annotations

from dataplane.native import Array, address, as_u64, copy, kernel, offset, u8, u32, u64
from dataplane.nic.ports.kernels.dispatch import commit, flush, reserve
from dataplane.nic.ports.queue import PortQueue


@kernel
def send_copies(queue: PortQueue, data: Array[u8], lengths: Array[u32], count: u32) -> None:
    """Send the frames stored back to back in `data`; the queue counts those that find no room."""
    start: u64 = 0
    i: u32 = 0
    while i < count:
        length: u32 = lengths[i]
        slot: Array[u8] = reserve(queue, length)
        if address(slot) != 0:
            copy(slot, offset(data, start), as_u64(length))
            commit(queue, length)
        start += as_u64(length)
        i += 1
    flush(queue)
