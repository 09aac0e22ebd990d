"""Memory shared by driver threads, flow classifier, packet manager and consumers.

A software queue joins one driver thread and one consumer (or producer): each of its rings has one writer and one
reader, so there is no contention. Positions run through all of u64; a ring's size is a power of two.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

from dataplane.native import Array, Inline, Struct, signature, u32, u64

SIZE_CLASSES = 4
"""Maximum number of buffer sizes in a reserve."""
FLOW_BUCKETS = 4_096


class StampKind(IntEnum):
    """Source of a timestamp."""

    NONE = 0
    SOFTWARE = 1
    """The kernel's clock when it received the frame (CLOCK_REALTIME)."""
    HARDWARE = 2
    """The device's own clock."""


class ActionKind(IntEnum):
    """Final outcome of a frame."""

    HAND_OUT = 0
    DROP = 1
    CALL = 2


class Stamp(Struct):
    """Arrival time and place of a frame."""

    time_ns: u64
    kind: u32  # a StampKind
    queue: u32  # of the device


class Verdict(Struct):
    """The flow classifier's verdict on a frame."""

    action: u32  # an ActionKind
    group: u32  # of consumers, for HAND_OUT
    mark: u32
    rule: u32  # number of the rule, from 1; 0: none matched
    flow_hash: u64  # over addresses, protocol and ports, the same in both directions; else over the MAC addresses
    function: u64  # address of a `FrameFunction`, for CALL
    context: u64  # its first argument


class Buffer(Struct):
    """The head of a buffer, and of a packet if it is the first; the bytes follow at `data`."""

    next: u64  # address of the packet's next segment, 0: last one
    data: u64  # address
    capacity: u32
    length: u32  # bytes in this segment
    total: u32  # bytes of the whole packet
    segments: u32
    owner: u64  # address of its ReceiveQueue
    size_class: u32
    state: u32  # BUFFERS': free, queued, lent
    flow_hash: u64
    bucket: u64  # address of the flow's Bucket, 0: none
    time_ns: u64
    stamp_kind: u32
    queue: u32
    mark: u32
    rule: u32
    element: u64  # position in the software queue of a packet to send, the same in each of its segments


class Ring(Struct):
    """Addresses passing from one thread to another; the cache lines that the two write are separate."""

    slots: Array[u64]
    mask: u64
    _gap0: Inline[u64, Literal[6]]
    tail: u64  # put in; written by the writer
    head_seen: u64  # the writer's copy of head
    _gap1: Inline[u64, Literal[6]]
    head: u64  # taken out; written by the reader
    _gap2: Inline[u64, Literal[7]]


class Bucket(Struct):
    """Flows of one hash, which may change their consumer only while no packet of them is outstanding."""

    sent: u64  # handed out; written by the driver thread
    done: u64  # given back or dropped; added to atomically
    member: u64  # serial number of their consumer, 0: none yet


@signature
def FrameFunction(context: u64, frame: u64, length: u32, verdict: u64) -> None:  # noqa: N802 - a type
    """Take a frame for a rule whose action is CALL; `context` is the rule's, `frame` and `verdict` are addresses."""
    raise NotImplementedError
