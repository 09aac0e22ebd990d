"""Native loops of the NIC benchmark: frames out at an even pace, and the plain socket that reads them one by one.

A frame carries a magic number and, one in `stamp_every`, the CLOCK_MONOTONIC time just before it was handed to the
kernel; its consumer reads both, and the clock only where there is a time, so that reading clocks costs no side
much. The generator spins between frames: a sleep on a virtual machine is far longer than the gap between two of them.
"""

from __future__ import annotations

from dataplane.native import (
    Array,
    Struct,
    address,
    as_u32,
    as_u64,
    copy,
    i32,
    kernel,
    load_acquire,
    load_be64,
    offset,
    pause,
    stack_array,
    store_be64,
    u8,
    u32,
    u64,
)
from dataplane.nic.ports.kernels import commit, flush, reserve
from dataplane.nic.ports.kernels.system import monotonic_ns, recv
from dataplane.nic.ports.queue import PortQueue

MAGIC = 0x6D696C6C6E696373
STAMP_BYTES = 16
"""Magic number and time in ns, big-endian; a time of 0 is none."""
MOST_BYTES = 2_048
"""Maximum size of a frame read by the plain socket."""

_NS_PER_S = 1_000_000_000
_BURST = 64


class Source(Struct):
    """Frames to send, in turn, and the rate."""

    queue: PortQueue
    frames: Array[u8]  # `count` frames of `length` bytes, one after the other
    count: u64
    length: u64
    stamp_offset: u64
    stamp_every: u64
    rate_pps: u64
    duration_ns: u64
    sent: u64
    took_ns: u64


class Tally(Struct):
    """Frames seen by one consumer; only its thread writes here, except for `stop`."""

    stop: u64  # 1: return after the next frame
    received: u64
    foreign: u64  # frames without the magic number
    stamp_offset: u64
    latencies: Array[u32]  # ns
    capacity: u64
    timed: u64


@kernel
def generate(source: Source) -> None:
    """Send frames one by one at `rate_pps` for `duration_ns`; several at once only when late."""
    began = monotonic_ns()
    elapsed: u64 = 0
    while elapsed < source.duration_ns:
        due = elapsed * source.rate_pps // _NS_PER_S + 1
        if due > source.sent:
            _send(source, min(due - source.sent, _BURST))
        else:
            pause()
        elapsed = monotonic_ns() - began
    source.took_ns = elapsed


@kernel
def _send(source: Source, burst: u64) -> None:
    for _ in range(burst):
        slot = reserve(source.queue, as_u32(source.length))
        if address(slot) == 0:
            break
        copy(slot, offset(source.frames, (source.sent % source.count) * source.length), source.length)
        store_be64(slot, source.stamp_offset, MAGIC)
        time_ns: u64 = 0
        if source.sent % source.stamp_every == 0:
            time_ns = monotonic_ns()
        store_be64(slot, source.stamp_offset + 8, time_ns)
        if not commit(source.queue, as_u32(source.length)):
            break
        source.sent += 1
    flush(source.queue)


@kernel(inline=True)
def note(tally: Tally, frame: Array[u8], length: u32) -> None:
    """Count a frame and, if it carries a time, how long it took to come here."""
    if as_u64(length) < tally.stamp_offset + STAMP_BYTES or load_be64(frame, tally.stamp_offset) != MAGIC:
        tally.foreign += 1
        return
    tally.received += 1
    sent_ns = load_be64(frame, tally.stamp_offset + 8)
    if sent_ns != 0 and tally.timed < tally.capacity:
        tally.latencies[tally.timed] = as_u32(monotonic_ns() - sent_ns)
        tally.timed += 1


@kernel
def read_socket(tally: Tally, fd: i32) -> None:
    """Read a blocking socket one frame a call, until a frame comes after `stop` was set, or the socket fails."""
    frame = stack_array(u8, MOST_BYTES)
    while load_acquire(tally.stop) == 0:
        length = recv(fd, frame, MOST_BYTES, 0)
        if length < 0:
            return
        note(tally, frame, as_u32(length))
