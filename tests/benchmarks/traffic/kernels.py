"""The two loops of the traffic generator: frames out at a rate, stamped, and in again, with the time on the wire.

Both run without the GIL and sleep whenever there is nothing to do, so that on a machine of two cores the switch under
test has most of both. A frame carries a magic number and the time at which it was handed to the kernel; the time of
its arrival is the kernel's own stamp in the receive ring, so that it does not matter when the sink looks.
"""

from __future__ import annotations

from dataplane.native import (
    Array,
    Struct,
    address,
    as_u32,
    as_u64,
    copy,
    external,
    i32,
    kernel,
    load_acquire,
    load_be64,
    offset,
    pause,
    stack_array,
    store_be64,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.nic.layouts import TP_KERNEL, TP_USER, PacketV2Header
from dataplane.nic.ports.kernels import commit, flush, reserve
from dataplane.nic.ports.kernels.system import real_time_ns
from dataplane.nic.ports.queue import PortQueue

MAGIC = 0x6D696C6C72616365
STAMP_BYTES = 16
"""Magic number and time in ns, big-endian."""

_NS_PER_S = 1_000_000_000
_BURST = 64
_NAP_NS = 30_000


@external
def nanosleep(duration: Array[u64], left: u64) -> i32:
    """Sleep for seconds and nanoseconds."""
    raise NotImplementedError


class Source(Struct):
    """Frames to send, in turn, and the rate; `stop` ends it early."""

    queue: PortQueue
    frames: Array[u8]  # `count` frames of `length` bytes, one after the other
    count: u64
    length: u64
    stamp_offset: u64
    rate_pps: u64
    duration_ns: u64
    began_ns: u64
    sent: u64


class Sink(Struct):
    """A TPACKET_V2 receive ring, and the latencies in ns of its frames that carry the magic number."""

    ring: Array[u8]
    slots: u64
    slot_bytes: u64
    position: u64
    stamp_offset: u64
    latencies: Array[u32]
    capacity: u64
    received: u64
    deadline_ns: u64  # frames that arrived until then are counted in `in_time`
    in_time: u64


@kernel
def generate(source: Source) -> None:
    """Send frames at `rate_pps` for `duration_ns`; at most at the device's own rate."""
    began = real_time_ns()
    source.began_ns = began
    elapsed: u64 = 0
    nap = stack_array(u64, 2)
    while elapsed < source.duration_ns:
        due = elapsed * source.rate_pps // _NS_PER_S + 1
        if due > source.sent:
            _send(source, min(due - source.sent, _BURST))
        elif (source.sent * _NS_PER_S) // source.rate_pps > elapsed + 2 * _NAP_NS:
            nap[0] = 0
            nap[1] = _NAP_NS
            nanosleep(nap, 0)
        else:
            pause()
        elapsed = real_time_ns() - began


@kernel
def _send(source: Source, burst: u64) -> None:
    for _ in range(burst):
        slot = reserve(source.queue, as_u32(source.length))
        if address(slot) == 0:
            break
        frame = offset(source.frames, (source.sent % source.count) * source.length)
        copy(slot, frame, source.length)
        store_be64(slot, source.stamp_offset, MAGIC)
        store_be64(slot, source.stamp_offset + 8, real_time_ns())
        if commit(source.queue, as_u32(source.length)):
            source.sent += 1
    flush(source.queue)


@kernel
def drain(sink: Sink) -> u64:
    """Read all frames that are in the ring; return how many carried the magic number."""
    before = sink.received
    while True:
        slot = offset(sink.ring, (sink.position % sink.slots) * sink.slot_bytes)
        header = view(PacketV2Header, address(slot))
        if load_acquire(header.status) & TP_USER == 0:
            break
        _read(sink, slot, header)
        store_release(header.status, TP_KERNEL)
        sink.position += 1
    return sink.received - before


@kernel
def _read(sink: Sink, slot: Array[u8], header: PacketV2Header) -> None:
    if as_u64(header.captured) < sink.stamp_offset + STAMP_BYTES:
        return
    stamp = offset(slot, as_u64(header.mac) + sink.stamp_offset)
    if load_be64(stamp, 0) != MAGIC:
        return
    arrived = as_u64(header.seconds) * _NS_PER_S + as_u64(header.nanoseconds)
    if arrived <= sink.deadline_ns:
        sink.in_time += 1
    if sink.received < sink.capacity:
        sink.latencies[sink.received] = as_u32(arrived - load_be64(stamp, 8))
    sink.received += 1
