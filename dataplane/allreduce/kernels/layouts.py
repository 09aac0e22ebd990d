"""State of the packet engine, as shared by kernels and Python."""

from __future__ import annotations

from enum import IntEnum

from dataplane.native import Array, Struct, i32, u8, u16, u32, u64
from dataplane.nic.ports.queue import PortQueue
from dataplane.wire.aggregation import SIZE

HEADER_BYTES = SIZE
VALUE_BYTES = 1024
PACKET_BYTES = HEADER_BYTES + VALUE_BYTES
LINK_BYTES = 42
"""Ethernet, IPv4 without options, UDP."""
STRIDE = 1088
"""Distance between packets in memory: PACKET_BYTES in whole cache lines."""
BURST = 32
"""Packets per system call."""
AGREED_GROUPS = 4
"""Groups whose exponents are kept: the one whose blocks are sent, and the two requested ahead."""
KNOWN_EPOCHS = 16
"""Recent epochs whose number of contributors is known."""
NOBODY = 0xFFFFFFFF


class Status(IntEnum):
    """Reason for the engine's return."""

    RUNNING = 0
    """It has not returned."""
    DONE = 1
    STOPPED = 2
    """`stop` was set."""
    EPOCH = 3
    """Membership has changed; `new_epoch` is the new one. Continue with `adopt_epoch`."""
    SATURATED = 4
    """Done, but a sum overflowed int32; `bad_item`."""
    DEADLINE = 5
    """No result arrived for `patience_ns`; `bad_item` is the oldest without one."""
    REFUSED = 6
    """`bad_item` was refused for `bad_reason`."""
    SOCKET = 7
    """The socket or the queue has failed permanently; `error`."""
    HELD = 8
    """The job was not released in time; `bad_item` is the oldest item without a result."""
    PAUSED = 9
    """`pause_at_ns` was reached; continue where it was."""
    CORRUPT = 10
    """All received results of `bad_item` failed their check."""


class State(IntEnum):
    """State of a slot's item."""

    DONE = 0
    READY = 1
    """Ready to be sent: its number is in `pending`."""
    SENT = 2
    LISTENING = 3
    """Reader only: nothing was sent, but the result may arrive anyway."""


class Reading(IntEnum):
    """Mode of the engine: contributing or reading."""

    NO = 0
    """It contributes."""
    LISTENING = 1
    PULLING = 2


class Slot(Struct):
    """Slot of the items whose numbers are equal modulo the window."""

    item: u32
    state: u32
    what: u32
    at: u32  # the group, or the block
    shift: i32  # a block's lanes are its values times 2^shift
    covered: u32  # 1: classes came before the sum and stand in the target
    partner: u32  # of classes: the item with the block's sum, NOBODY if it is not sent
    repeats: u32
    is_probe: u32  # 1: the last repetition was because nothing came, not because this one seemed lost
    is_deferred: u32  # 1: the item `window` later is a block that waits for this one's result
    next_at: u32  # its block
    next_shift: i32
    epoch: u32  # in which it was begun
    corrupt: u32  # results that did not fit their check
    sent_ns: u64
    stamp: u64  # which packet of all that were sent it was, the last time
    results: u64  # how many there were when it was sent


class Sent(Struct):
    """A packet in send order; stale if the item's slot has another stamp."""

    item: u32
    stamp: u64


class EngineState(Struct):
    """One worker's engine."""

    # The job, as configured by the controller.
    job: u32
    epoch: u32
    nonce: u64
    contributors: Array[u32]  # of the KNOWN_EPOCHS, each with the epoch above; 0: not known
    window: u32  # slots; a power of two
    headroom: u32
    capacity: u32  # no result has values of more workers
    stop: u32  # set by other threads, as are wanted_epoch and held_until_ns
    wanted_epoch: u32  # to be adopted if it is newer
    hears_refusals: u32  # a newer epoch in a refusal is to be adopted, too
    held_until_ns: u64  # while it is not 0, patience does not run out
    pause_at_ns: u64  # the caller wants to look at something else
    # The all-reduce.
    reading: u32  # a `Reading`
    is_final: u32
    is_integer: u32
    mean: u32
    values: u64
    source: Array[u32]
    target: Array[u32]  # may be the source
    blocks: u32
    groups: u32
    # Progress of the schedule.
    next_item: u32
    asked: u32  # groups whose exponents were asked for to begin with
    group: u32
    stage: u32
    cursor: u32
    unfinished: u32  # items begun that have no result
    agreed: Array[u16]  # exponents and marks of AGREED_GROUPS groups
    settled: Array[u32]  # which they are, plus 1
    saved_classes: Array[u8]  # of the group's blocks: the target may overwrite the source before they are sent
    # Transport: a UDP socket, or a queue of one of our ports.
    fd: i32  # the socket
    own_clock: u32  # 1: time is what the caller writes to `now_ns`
    queue: PortQueue  # null where there is a socket
    link: Array[u8]  # the LINK_BYTES before each packet in a frame
    frames: Array[u64]
    lengths: Array[u32]
    # Packets.
    slots: Array[Slot]
    packets: Array[u8]  # what was sent, by item modulo 2 window
    pending: Array[u32]  # a ring of `window` items to be sent
    pending_first: u32
    pending_count: u32
    recent: Array[u8]  # the packets of the last results, by item modulo 2 window
    rx_vector: Array[u8]
    rx_buffers: Array[u8]
    tx_vector: Array[u8]
    tx_items: Array[u32]
    scratch: Array[u32]
    # Pacing. Congestion windows are in 1/256 packets.
    in_flight: u32
    blocked: u32  # 1: the socket takes no more now
    congestion_window: u64
    slow_start_until: u64
    last_cut_ns: u64
    lost_since_cut: u64  # packets that seem to be, less those that were not
    window_before: u64  # the cut for a loss, and slow start's end
    start_before: u64
    round_trip_ns: u64  # smoothed; 0 before the first
    variation_ns: u64
    shortest_ns: u64
    shortest_at_ns: u64
    rate: u64  # results a nanosecond times 2^24, the greatest of late
    rate_before: u64
    rate_since_ns: u64
    # Loss detection.
    order: Array[Sent]  # a ring of packets in the order of sending
    order_mask: u64
    order_first: u64
    order_last: u64
    newest_stamp: u64  # of all packets whose results came, that which was sent last
    newest_took_ns: u64
    doubt_until_ns: u64  # nothing is lost before; 0: there is no doubt
    reordering: u32  # how late a packet may be, in quarters of the shortest round trip
    was_late: u32  # 1: the last probe was for nothing
    calm: u32  # losses since one that was none
    probes: u32  # since the last result
    revived: u32  # which packet of a result that is here was sent again last, counted back from the oldest item without
    revived_after: u32  # so many probes
    may_probe: u32  # 1: one packet may go although the window is full of what may be lost
    loss_at_ns: u64
    probe_at_ns: u64
    probed_ns: u64
    timeout_ns: u64
    floor_ns: u64  # between the next two
    least_timeout_ns: u64
    longest_timeout_ns: u64
    last_result_ns: u64
    patience_ns: u64
    patient_from_ns: u64  # patience runs from here or the last result on
    now_ns: u64
    # Reason for the return.
    status: u32
    bad_item: u32
    bad_reason: u32
    new_epoch: u32
    error: i32  # errno of the last system call that failed
    saturated: u32
    # Statistics.
    sent: u64
    repeated: u64
    received: u64
    results: u64
    useless: u64  # results that were here already
    malformed: u64
    forged: u64  # of another nonce
    corrupt: u64  # results that did not fit their check
    congested: u64
    cuts: u64
    undone: u64  # cuts
    spurious: u64  # packets that were not lost
    stalls: u64
