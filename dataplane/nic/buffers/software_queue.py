"""Software queues, each joining a driver thread to a consumer or a producer, and the tables that list them.

Each field is written by one side only; the two sides write to different cache lines. Positions run through all of u64.
"""

from __future__ import annotations

from typing import Literal

from dataplane.native import Array, Inline, Struct, u32, u64
from dataplane.native.doorbell import Bell
from dataplane.nic.structures import Bucket, Ring

NO_MEMBER = 0xFFFF_FFFF


class Reserve(Struct):
    """Buffers of one size: those available, which one thread takes from, and those that another thread gave back."""

    stack: Array[u64]  # addresses; the most recently used buffer is on top, as it may still be in the cache
    count: u64  # buffers on the stack
    capacity: u32  # bytes of each buffer
    buffers: u32
    returned: Inline[Ring, Literal[1]]


class Memory(Struct):
    """Location of a software queue's buffers."""

    start: u64  # address
    nbytes: u64
    classes: u32  # number of `reserves` in use, capacities ascending
    reserved: u32
    reserves: Inline[Reserve, Literal[4]]  # SIZE_CLASSES


class ReceiveQueue(Struct):
    """Packets from one driver thread to one consumer."""

    memory: Inline[Memory, Literal[1]]
    packets: Inline[Ring, Literal[1]]
    bell: Bell  # the consumer's
    limit: u64  # maximum waiting packets
    # Written by the driver thread:
    put: u64  # packets handed out, including those of an unpublished burst
    touched: u64  # 1: it holds packets of this burst
    handed_out_bytes: u64
    segments: u64
    reserve_spent: u64
    queue_full: u64
    loose: u64  # packets handed out without a bucket
    _gap0: Inline[u64, Literal[8]]
    # Written by the consumer:
    given_back: u64
    loose_done: u64
    refused: u64  # releases of packets that were not lent
    cut: u64  # packets longer than the row they were copied into
    _gap1: Inline[u64, Literal[8]]
    # Written by the closing thread:
    consumer_left: u64


class Member(Struct):
    """A consumer of a group, as seen by one driver thread."""

    queue: u64  # address
    serial: u64


class GroupState(Struct):
    """A driver thread's state of a group, kept while its members come and go."""

    buckets: Array[Bucket]
    turn: u64
    no_consumer: u64


class Group(Struct):
    """The members of a group; immutable, replaced as a whole."""

    members: Array[Member]
    count: u32
    balance: u32
    anchor: u32  # index of the former sole member, which may still hold packets without a bucket, or NO_MEMBER
    reserved: u32
    state: GroupState


class SendElement(Struct):
    """An element of a software transmit queue: one packet, whatever its number of segments."""

    complete: u64  # position + 1 once the packet is complete
    first: u64  # address of its first segment
    last: u64
    length: u32
    segments: u32


class SendQueue(Struct):
    """Packets from one producer to one driver thread."""

    memory: Inline[Memory, Literal[1]]
    elements: Array[SendElement]
    mask: u64
    bell: Bell  # the producer's, rung when a packet it waits for has left
    driver_bell: Bell
    # Written by the producer:
    tail: u64  # position of the next packet
    tail_bytes: u64
    head_seen: u64
    claimed: u64  # address of the packet being written, 0: none
    queue_full: u64
    reserve_spent: u64
    _gap0: Inline[u64, Literal[8]]
    # Written by the driver thread:
    head: u64  # packets taken off the queue
    settled: u64  # packets that the device took or that were dropped, in order
    sent: u64
    sent_bytes: u64
    too_long: u64
    refused: u64  # too short for the device
    down: u64
    _gap1: Inline[u64, Literal[8]]
    # Written by the closing thread:
    producer_left: u64


class ManagerTable(Struct):
    """Everything that a driver thread may hand out to and send from; immutable, replaced as a whole."""

    groups: Array[Group]
    senders: Array[u64]  # addresses of SendQueues
    group_count: u32
    sender_count: u32


class ManagerThread(Struct):
    """The packet manager as one driver thread sees it."""

    table: u64  # address of a ManagerTable, read once for each packet
    touched: Array[u64]  # addresses of software queues that got packets in this burst
    touched_count: u64
    no_consumer: u64
    # Transmission:
    turn: u64  # the next sender
    unsettled: Array[u64]  # SendQueue addresses of packets that the device has not taken yet, in order
    unsettled_mask: u64
    unsettled_head: u64
    unsettled_tail: u64
    on_device: u64  # those of them not dropped on the way to it
    frames_seen: u64  # the device queue's tx_frames when last read
    bell: Bell  # the driver thread sleeps on it; producers ring it
