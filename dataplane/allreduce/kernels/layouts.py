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


class Seeking(IntEnum):
    """The main server's search for the workers' call."""

    NO = 0
    ANYWHERE = 1
    """It has not met the workers."""
    AHEAD = 2
    """Not before `next_item`."""


class Slot(Struct):
    """Slot of the items whose numbers are equal modulo the window."""

    item: u32
    state: u32
    what: u32
    at: u32  # the group, or the block
    shift: i32  # a block's lanes are its values times 2^shift
    covered: u32  # 1: classes arrived before the sum and are in the target
    partner: u32  # classes: the item with the block's sum, NOBODY if it is not sent
    repeats: u32
    is_probe: u32  # 1: the last retransmission was due to silence, not to a presumed loss
    is_deferred: u32  # 1: the block in item + `window` waits for this one's result
    next_at: u32  # its block
    next_shift: i32
    epoch: u32  # in which it began
    corrupt: u32  # results that failed their check
    sent_ns: u64
    stamp: u64  # sequence number of its last transmission
    results: u64  # number of results when it was sent


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
    contributors: Array[u32]  # for the KNOWN_EPOCHS, each with the epoch in the high half; 0: unknown
    window: u32  # slots; a power of two
    headroom: u32
    capacity: u32  # maximum number of workers in a result
    stop: u32  # set by other threads, as are wanted_epoch and held_until_ns
    wanted_epoch: u32  # adopted if it is newer
    hears_refusals: u32  # also adopt a newer epoch from a refusal
    held_until_ns: u64  # suspends the patience while not 0
    pause_at_ns: u64  # the caller wants to do something else
    # The all-reduce.
    reading: u32  # a `Reading`
    is_final: u32
    is_call: u32  # 1: the workers wait for the main server
    distributed: u32  # 1: values of the main server's, not sums
    seeking: u32  # a `Seeking`
    is_integer: u32
    mean: u32
    values: u64
    source: Array[u32]
    target: Array[u32]  # may be the source
    blocks: u32
    groups: u32
    # Progress of the schedule.
    next_item: u32
    asked: u32  # groups whose exponents were requested initially
    group: u32
    stage: u32
    cursor: u32
    unfinished: u32  # items begun without a result
    agreed: Array[u16]  # exponents and marks of AGREED_GROUPS groups
    settled: Array[u32]  # the groups' numbers, plus 1
    saved_classes: Array[u8]  # of the group's blocks: the target may overwrite the source before they are sent
    # Transport: a UDP socket, or a queue of one of our ports.
    fd: i32  # the socket
    own_clock: u32  # 1: the caller sets the time in `now_ns`
    queue: PortQueue  # null with a socket
    link: Array[u8]  # the LINK_BYTES before each packet in a frame
    frames: Array[u64]
    lengths: Array[u32]
    # Packets.
    slots: Array[Slot]
    packets: Array[u8]  # sent packets, by item modulo 2 window
    pending: Array[u32]  # a ring of `window` items to be sent
    pending_first: u32
    pending_count: u32
    recent: Array[u8]  # packets of the last results, by item modulo 2 window
    rx_vector: Array[u8]
    rx_buffers: Array[u8]
    tx_vector: Array[u8]
    tx_items: Array[u32]
    scratch: Array[u32]
    # Pacing. Congestion windows are in 1/256 packets.
    in_flight: u32
    blocked: u32  # 1: the socket is full
    congestion_window: u64
    slow_start_until: u64
    last_cut_ns: u64
    lost_since_cut: u64  # presumed losses, less false ones
    window_before: u64  # before the cut for a loss, as is slow start's end
    start_before: u64
    round_trip_ns: u64  # smoothed; 0 before the first
    variation_ns: u64
    shortest_ns: u64
    shortest_at_ns: u64
    rate: u64  # results per nanosecond times 2^24, the recent maximum
    rate_before: u64
    rate_since_ns: u64
    # Loss detection.
    order: Array[Sent]  # a ring of packets in send order
    order_mask: u64
    order_first: u64
    order_last: u64
    newest_stamp: u64  # latest sent packet whose result has arrived
    newest_took_ns: u64
    doubt_until_ns: u64  # nothing counts as lost before; 0: no doubt
    reordering: u32  # reordering window, in quarters of the shortest round trip
    was_late: u32  # 1: the last probe was unnecessary
    calm: u32  # losses since the last false one
    probes: u32  # since the last result
    revived: u32  # last replayed item with a result, counted back from the oldest item without
    revived_after: u32  # probes at the last replay
    may_probe: u32  # 1: one packet may exceed a window full of possible losses
    loss_at_ns: u64
    probe_at_ns: u64
    probed_ns: u64
    timeout_ns: u64
    floor_ns: u64  # between least_timeout_ns and longest_timeout_ns
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
    useless: u64  # duplicate results
    malformed: u64
    forged: u64  # with another nonce
    corrupt: u64  # results that failed their check
    congested: u64
    cuts: u64
    undone: u64  # cuts
    spurious: u64  # packets that were not lost
    stalls: u64
