"""Timestamps of received frames: written only if a queue has a place for them."""

from __future__ import annotations

from dataplane.clock import NS_PER_S
from dataplane.native import address, as_u64, kernel, u32, u64
from dataplane.nic.layouts import TP_HARDWARE_STAMP
from dataplane.nic.ports.kernels.system import real_time_ns
from dataplane.nic.ports.queue import PortQueue
from dataplane.nic.structures import StampKind


@kernel(inline=True)
def stamp_packet(queue: PortQueue, position: u32, status: u32, seconds: u32, nanoseconds: u32) -> None:
    """Record the time in the header of a frame in an AF_PACKET ring."""
    if address(queue.stamps) != 0:
        queue.stamps[position] = as_u64(seconds) * NS_PER_S + as_u64(nanoseconds)
        queue.stamp_kinds[position] = StampKind.HARDWARE if (status & TP_HARDWARE_STAMP) != 0 else StampKind.SOFTWARE


@kernel(inline=True)
def stamp_burst(queue: PortQueue, count: u32) -> None:
    """Give the first `count` frames the current time: their queue knows only that they were there."""
    if address(queue.stamps) != 0 and count > 0:
        write_now(queue, count)


@kernel(inline=False)
def write_now(queue: PortQueue, count: u32) -> None:
    """Read the clock once and write its time for all of them."""
    now_ns: u64 = queue.virtual_ns
    if now_ns == 0:
        now_ns = real_time_ns()
    i: u32 = 0
    while i < count:
        queue.stamps[i] = now_ns
        queue.stamp_kinds[i] = StampKind.SOFTWARE
        i += 1
