"""A native sender: frames out of memory, each once, at an even pace."""

from __future__ import annotations

from dataplane.native import Array, Struct, address, as_u32, copy, kernel, offset, pause, u8, u64
from dataplane.nic.ports.kernels import commit, flush, reserve
from dataplane.nic.ports.kernels.system import monotonic_ns
from dataplane.nic.ports.queue import PortQueue

_NS_PER_S = 1_000_000_000
_BURST = 64
_TRIES = 1_000_000


class Sending(Struct):
    """Reports to send, and the rate."""

    queue: PortQueue
    frames: Array[u8]  # `count` frames of `length` bytes, one after the other
    count: u64
    length: u64
    rate_pps: u64
    sent: u64  # taken by the kernel
    took_ns: u64


@kernel
def send_once(sending: Sending) -> None:
    """Send every frame; wait, but not for ever, for a ring that is full."""
    begun_ns: u64 = monotonic_ns()
    number: u64 = 0
    tries: u64 = 0
    while number < sending.count and tries < _TRIES:
        due: u64 = (monotonic_ns() - begun_ns) * sending.rate_pps // _NS_PER_S + 1
        end: u64 = min(sending.count, due)
        end = min(end, number + _BURST)
        before: u64 = number
        while number < end:
            slot = reserve(sending.queue, as_u32(sending.length))
            if address(slot) == 0:
                break
            copy(slot, offset(sending.frames, number * sending.length), sending.length)
            commit(sending.queue, as_u32(sending.length))
            number += 1
        flush(sending.queue)
        tries = tries + 1 if number == before and end != before else 0
        if number == before:
            pause()
    sending.sent = number
    sending.took_ns = monotonic_ns() - begun_ns
