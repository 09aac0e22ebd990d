"""Copies chosen frames for a tracer: the packet itself continues, and waits for nothing."""

from __future__ import annotations

from dataplane.native import Array, as_u32, as_u64, atomic_add, copy, kernel, load_relaxed, u8, u32, u64, view
from dataplane.switch.abi import Packet
from dataplane.switch.compiled.memory.pool import give, take
from dataplane.switch.compiled.memory.rings import put
from dataplane.switch.compiled.memory.taps import fits
from dataplane.switch.compiled.memory.worker import Worker


@kernel(inline=False)
def tap_frame(worker: Worker, port: u64, data: Array[u8], length: u32) -> None:
    """Copy a frame to the tap if it is wanted there and there is room."""
    tap = worker.tap
    if not fits(tap, port, data, as_u64(length)):
        return
    if load_relaxed(tap.taken) >= load_relaxed(tap.allowed):
        atomic_add(tap.passed_over, 1)
        return
    block = take(worker.core[0].frames[0])
    if block == 0:
        atomic_add(tap.passed_over, 1)
        return
    frame = view(Packet, block)
    copy(frame.data, data, as_u64(length))
    frame.length = length
    frame.port = as_u32(port)
    frame.enqueued_ns = worker.core[0].machine.now_us * 1000
    if put(tap.ring, frame):
        atomic_add(tap.taken, 1)
    else:
        atomic_add(tap.passed_over, 1)
        give(worker.core[0].frames[0], frame)
