"""A port's hellos as workers see them: the frame to send, the last one received, the silence; a struct, its kernels.

With `dataplane.switch.compiled.hellos`, the twin of `dataplane.switch.hellos.port_hello`. A worker compares incoming
frames with what Python has read and accepted: an identical frame counts as life without Python, anything else is left
in the mail for it.
"""

from __future__ import annotations

from dataplane.native import (
    Array,
    Struct,
    address,
    array_at,
    as_u64,
    atomic_add,
    copy,
    exchange,
    kernel,
    load_acquire,
    load_be16,
    load_be64,
    load_relaxed,
    load_u64,
    offset,
    reference,
    store_relaxed,
    store_release,
    u8,
    u32,
    u64,
)
from dataplane.native.locks import lock, unlock
from dataplane.switch.hellos.frames import DESTINATION, ETHER_TYPE, HELLO_BYTES, PACKET_OFFSET
from dataplane.switch.hellos.port_hello import EARLIEST_THOUSANDTHS, LATEST_THOUSANDTHS

SLOT_BYTES = 64
FRAME_SLOTS = 8
"""Frames that Python writes in turn, so that it does not touch the one being sent."""
MAIL_SLOTS = 8
MAIL_HEAD_BYTES = 16
"""Head before a mail's bytes: arrival time and frame length."""
ADDRESS_BITS = 48
TYPE_OFFSET = 12
HEADER_BYTES = 14
SECOND_WORD, THIRD_WORD = 8, 16
JITTER_CHOICES = LATEST_THOUSANDTHS - EARLIEST_THOUSANDTHS + 1
THOUSAND = 1_000
NEVER = (1 << 64) - 1
AGAIN_NS = 1_000_000
"""Delay before a worker retries what cannot be sent now."""
SHIFT_1, SHIFT_2, SHIFT_3 = 13, 7, 17


class Hello(Struct):
    """One port's hellos; comments name the writer of each field, words are written whole."""

    listening: u64  # Python: 1: frames addressed as hellos are ours
    frames: Array[u8]  # Python: FRAME_SLOTS of SLOT_BYTES
    frame: u64  # Python: the slot to send
    interval_ns: u64  # Python: 0: none is sent
    at_once: u64  # Python sets it, the sender clears it: send one now
    accepted: Array[u8]  # Python: FRAME_SLOTS of SLOT_BYTES: what counts as life
    accepted_slot: u64  # Python: its slot, counted from 1; 0: none
    credited: u64  # Python: mails that counted
    expected_ns: u64  # Python: the neighbour's interval
    detection_ns: u64  # Python: 0: no neighbour is expected
    looks: Array[u64]  # per worker: when it last found its queue empty
    queues: u64  # Python: number of workers, the first ones, with a queue of the port

    next_ns: u64  # written by the sender, from here on
    random: u64
    sent: u64
    counted: u64  # frames heard as of its last look
    looked_ns: u64
    silence_ns: u64
    expired: u64  # 1: Python should give the neighbour up; Python clears it

    received: u64  # written by any worker
    heard_ns: u64
    mail: Array[u8]  # MAIL_SLOTS of SLOT_BYTES
    mail_lock: u64
    mail_in: u64
    mail_out: u64  # written by Python
    unread: u64


@kernel(inline=True)
def is_hello(data: Array[u8], length: u32) -> bool:
    """Return whether a frame is addressed as hellos are."""
    if length < HEADER_BYTES:
        return False
    return load_be64(data, 0) >> (64 - ADDRESS_BITS) == DESTINATION and load_be16(data, TYPE_OFFSET) == ETHER_TYPE


@kernel
def hear(hello: Hello, data: Array[u8], length: u32, now_ns: u64) -> bool:
    """Take a frame that is addressed as a hello; return whether Python has to process it."""
    if length >= HELLO_BYTES and _is_accepted(hello, data):
        atomic_add(hello.received, 1)
        store_relaxed(hello.heard_ns, now_ns)
        return False
    lock(reference(hello.mail_lock))
    has_room = hello.mail_in - load_acquire(hello.mail_out) < MAIL_SLOTS
    if has_room:
        slot = offset(hello.mail, hello.mail_in % MAIL_SLOTS * SLOT_BYTES)
        head = array_at(u64, address(slot))
        head[0] = now_ns
        head[1] = as_u64(length)
        copy(offset(slot, MAIL_HEAD_BYTES), data, as_u64(min(length, HELLO_BYTES)))
        store_release(hello.mail_in, hello.mail_in + 1)
    else:
        hello.unread += 1
    unlock(reference(hello.mail_lock))
    return has_room


@kernel(inline=True)
def _is_accepted(hello: Hello, data: Array[u8]) -> bool:
    slot = load_acquire(hello.accepted_slot)
    if slot == 0:
        return False
    accepted = offset(hello.accepted, (slot - 1) * SLOT_BYTES)
    packet = offset(data, PACKET_OFFSET)
    return (
        load_u64(accepted, 0) == load_u64(packet, 0)
        and load_u64(accepted, SECOND_WORD) == load_u64(packet, SECOND_WORD)
        and load_u64(accepted, THIRD_WORD) == load_u64(packet, THIRD_WORD)
    )


@kernel
def look(hello: Hello) -> bool:
    """Count the neighbour's silence up to when every worker had looked; return whether Python should give it up.

    A worker that was stalled for longer than an interval counts it as one: frames that came meanwhile are read first.
    """
    now_ns = load_relaxed(hello.looks[0])
    for worker in range(1, hello.queues):
        now_ns = min(now_ns, load_relaxed(hello.looks[worker]))
    heard = load_relaxed(hello.received) + load_relaxed(hello.credited)
    expected_ns = load_relaxed(hello.expected_ns)
    since_ns = hello.looked_ns
    if heard != hello.counted:
        hello.counted = heard
        hello.silence_ns = 0
        store_release(hello.expired, 0)
        since_ns = load_relaxed(hello.heard_ns)
        hello.looked_ns = since_ns
    if now_ns > since_ns:
        hello.silence_ns += min(now_ns - since_ns, expected_ns)
        hello.looked_ns = now_ns
    detection_ns = load_relaxed(hello.detection_ns)
    if detection_ns == 0 or hello.silence_ns < detection_ns:
        return False
    return exchange(hello.expired, 1) == 0


@kernel
def next_look_ns(hello: Hello, now_ns: u64) -> u64:
    """Return when to check again; not at once, even if another worker is behind."""
    detection_ns = load_relaxed(hello.detection_ns)
    if detection_ns == 0:
        return NEVER
    wait_ns = load_relaxed(hello.expected_ns)
    if hello.silence_ns < detection_ns:
        wait_ns = min(wait_ns, detection_ns - hello.silence_ns)
    return max(hello.looked_ns + wait_ns, now_ns + AGAIN_NS)


@kernel
def is_due(hello: Hello, now_ns: u64) -> bool:
    """Return whether a hello is due now."""
    if load_relaxed(hello.at_once) != 0 and exchange(hello.at_once, 0) != 0:
        hello.next_ns = now_ns
        return True
    interval_ns = load_relaxed(hello.interval_ns)
    hello.next_ns = min(hello.next_ns, now_ns + interval_ns)  # it may have been shortened
    return interval_ns != 0 and now_ns >= hello.next_ns


@kernel
def note_sent(hello: Hello, now_ns: u64) -> None:
    """Count a hello and draw the time of the next one."""
    drawn = hello.random
    drawn ^= drawn << SHIFT_1
    drawn ^= drawn >> SHIFT_2
    drawn ^= drawn << SHIFT_3
    hello.random = drawn
    hello.sent += 1
    thousandths = EARLIEST_THOUSANDTHS + drawn % JITTER_CHOICES
    hello.next_ns = now_ns + load_relaxed(hello.interval_ns) * thousandths // THOUSAND


@kernel(inline=True)
def frame_to_send(hello: Hello) -> Array[u8]:
    """Return the frame that is currently sent."""
    return offset(hello.frames, load_acquire(hello.frame) * SLOT_BYTES)
