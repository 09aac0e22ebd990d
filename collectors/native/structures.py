"""Cells that the collector's kernels and Python share in memory; `collectors.native.tables` has the tables of them.

All ones mark an absent value.
"""

from __future__ import annotations

from typing import Literal

from dataplane.native import Array, Inline, Struct, i64, u8, u32, u64

NONE32 = 0xFFFF_FFFF
NONE64 = 0xFFFF_FFFF_FFFF_FFFF
NONE24 = 0xFF_FFFF

WINDOW_SLOTS = 8
"""`collectors.statistics.window.SLOTS`."""
TX_SLOTS = 16
"""`collectors.statistics.window.TX_READINGS`."""
RATE_SLOTS = 8
"""`collectors.statistics.rate.SLOTS`."""
KEY_WORDS = 5
STACK = 0
HOP_BY_HOP = 1
INTERMEDIATE = 2
MX = 3
XD = 4
QUEUE = 5
"""Kinds of individual reports, as `collectors.values.RecordKind` has them."""
NO_HOPS = 6
"""A report of no hop, only of a drop."""
COMPLETION = 7
"""A report of an item that a switch has added up."""
CAPPED = 1
"""`Packet.dropped` of a drop beyond those of one report packet that count."""
MOST_SWITCHES = 64
"""`collectors.state.accumulator.MOST_SWITCHES`."""
MOST_HOPS = 256
"""Bound on hops: more than any stack has, whose words the shim counts in eight bits, plus the reporter's own hop."""
PATTERN_BYTES = 128
"""Maximum length of the headers that patterns cover."""


class SlotCell(Struct):
    """One slot of a window; 64 bytes."""

    number: u64  # and 1; 0: nothing came yet
    newest_ns: u64
    total: u64
    least: u64
    greatest: u64
    queue_total: u64
    delays: u32
    queues: u32
    source: u32
    _gap: u32


class TxCell(Struct):
    """The newest reading of one of the switch's own windows."""

    number: u64  # the window's and 1; 0: none
    at_ns: u64
    nbytes: u64


class WindowCell(Struct):
    """A window of a link or of a route; each slot is a line of the cache."""

    newest_slot: u64
    known: u64  # 0: nothing came yet
    tx_newest: u64
    _gap: Inline[u64, Literal[5]]
    slots: Inline[SlotCell, Literal[8]]
    tx: Inline[TxCell, Literal[16]]
    buffer_totals: Inline[u64, Literal[8]]  # by slot
    buffers: Inline[u32, Literal[8]]
    _gap2: Inline[u64, Literal[4]]


class FiguresCell(Struct):
    """The fields of `collectors.statistics.window.WindowFigures`."""

    known: u64
    mean: u64
    p50: u64
    p99: u64
    weighted: u64
    greatest: u64
    source: u64
    samples: u64
    queue_total: u64
    queues: u64
    tx_mean: u64
    newest_ns: u64
    buffer_total: u64
    buffers: u64
    newest_delay_ns: u64
    newest_queue_total: u64
    newest_queues: u64
    newest_tx: u64


class FlowCell(Struct):
    """A flow, 192 bytes: addresses (IPv4 in the low words), protocol, ports, version, path, rate, weight and gaps."""

    key: Inline[u64, Literal[5]]
    heard_ns: u64
    path_ns: u64
    source_ns: u64
    route: u32  # NONE32: no path yet
    source_host: u32
    target_host: u32
    touched: u32  # rises with every touch of any flow
    first_ns: u64  # NONE64: no packet counted
    rate_ns: u64  # when the newest packet was sent that was counted
    rate_bytes: Inline[u32, Literal[8]]
    weight: u32  # `collectors.state.admission`, as of its epoch
    weight_epoch: u32
    stamp_ns: u64  # of the newest packet at its first switch, NONE64: none yet; gaps are as `collectors.state.gaps`
    gap_mean: u64
    gap_variation: u64
    known_mean: u64
    gap_count: u32
    round: u32
    _gap: Inline[u64, Literal[2]]


class GrownCell(Struct):
    """A flow that sends more than in the last round: its mean gap now and then, 0 if unknown."""

    key: Inline[u64, Literal[5]]
    mean: u64
    known: u64


class RecordCell(Struct):
    """A hop record (`collectors.values.HopRecord`), 128 bytes."""

    key: Inline[u64, Literal[5]]
    received_ns: u64
    packet_id: u64
    ingress_timestamp_ns: u64
    egress_timestamp_ns: u64
    reporter_id: u32
    sequence: u32
    hop_index: u32
    hop_count: u32
    node_id: u32
    ingress_port: u32
    egress_port: u32
    hop_latency_ns: u32
    queue: u32  # as a hop has it
    tx_bytes_per_window: u32
    buffer: u32
    kind: u32
    choice: u32  # `collectors.state.record_log.choice_of`
    _gap: u32


class RouteCell(Struct):
    """A path over the switches; its nodes are in `nodes` of the table of routes."""

    hash: u64
    length: u32
    used: u32


class RouteHop(Struct):
    """A hop of the newest packet that took a route, resolved."""

    name: u64  # node id and egress port
    switch: u32
    link: u32  # of the route's first hop, NONE32: nothing is known


class LinkCell(Struct):
    """A directed link."""

    delay_ns: u64
    head_switch: u32  # NONE32: a host
    tail_switch: u32


class AddressCell(Struct):
    """An address of a host; IPv4 in the low word."""

    version: u64
    high: u64
    low: u64
    host: u64


class ClockCell(Struct):
    """State of a directed link's two clocks: the correction in force, and the least flight since the last query."""

    at_ns: u64
    offset_ns: i64
    drift_ppb: i64
    uncertainty_ns: i64
    is_corrected: u64
    left_ns: u64
    flight_ns: i64
    received_ns: u64
    samples: u64  # 0: no flight


class TrackerCell(Struct):
    """A reporter's account (`collectors.reference.sequence.SequenceTracker`); `first` and `newest` wrap in 64 bits."""

    key: u64
    first: u64
    newest: u64
    heard_ns: u64
    received: u64
    lost: u64
    late: u64
    duplicate: u64
    restarts: u32
    source: u32  # the address that its reports come from, NONE32: not known yet
    last_repeat: u32
    repeats: u32
    touched: u64
    contested: u64
    before_first: u64
    before_newest: u64
    has_before: u32
    before_mark: u32
    jump: u32  # a number far ahead, which nothing has followed yet; NONE32: none
    jump_mark: u32
    has_ended: u64  # the next number begins the count anew


class Hop(Struct):
    """One hop of a decoded packet; the first twelve words are laid out as in INT, as `read_hop` spreads them."""

    node_id: u32
    ports: u32  # ingress << 16 | egress, as far as they have 16 bits
    latency_ns: u32
    queue: u32  # NONE24 in the low bits: none
    arrived_ns: u64
    left_ns: u64
    ingress: u32  # of more bits; `ingress_of` says which holds
    egress: u32
    tx_bytes: u32
    buffer: u32  # as the queue
    switch: u32
    link: u32
    _gap: u64


class Packet(Struct):
    """One decoded individual report."""

    key: Inline[u64, Literal[5]]
    hash: u64
    ip_bytes: u32
    first_hop: u32
    hop_count: u32
    missing: u32  # not 0: some hops on the way added nothing
    row: u32
    leads: u32  # not 0: the first of its report packet
    node_id: u32
    sequence: u32  # hardware id and number, as the group header has them; of the first, as `mark`
    fresh: u32  # not 0: to be accounted
    route: u32  # whose hops these are, NONE32: not known
    kind: u32
    dropped: u32  # not 0: the reporter dropped it, CAPPED: which does not count; hops are those before
    identity: u64  # distinguishes a flow's packets; of others than stacks
    inner: u64  # address of the packet as the report has it
    cell: u64  # address of its flow's cell; of others than stacks the hash of flow and identity
    stamped: u32  # not 0: every hop of the stack reports when the packet arrived, none when it left, nor of buffers
    mark: u32  # of the report packet that it leads: `collectors.decode.sequence.content_mark`
    # Everything needed for a plain stack is above: two cache lines.
    shim_at: u32  # offset of the INT shim in the payload
    last: u32  # not 0: the last hop of those that report hop by hop
    remaining: u32  # how many hops may follow those that report hop by hop
    tracked: u32  # not 0: telemetry was asked for the flow of a packet that was dropped
    drop_ingress: u32
    drop_egress: u32
    drop_reason: u32  # NONE32: the report does not say
    _gap: Inline[u32, Literal[9]]


class Layout(Struct):
    """Layout of a hop that a bitmap describes."""

    known: u32
    nbytes: u32
    words: u32  # which words of a `Hop` are there
    _gap: u32


class Pattern(Struct):
    """A payload that others resemble, and the offsets of its parts."""

    known: Inline[u8, Literal[128]]
    mask: Inline[u8, Literal[128]]  # of bits that have to be the same
    length: u32  # and 1; 0: there is none yet
    misses: u32  # payloads of this length that did not fit since
    inner_at: u32
    ports_at: u32
    target_at: u32  # of the port that the packet goes to
    stack_end: u32
    stack_hops: u32
    hop_bytes: u32
    int_bytes: u32
    words: u32  # as the layouts of the stack and of the reporter's own hop
    own_words: u32
    arrived_at: u32  # of the time of arrival in a hop of the stack
    own_arrived_at: u32  # of the time of arrival in the reporter's own hop
    missing: u32
    is_ipv4: u32
    is_udp: u32
    timed: u32  # not 0: all hops report when the packet arrived, none when it left, nor of buffers
    _gap: u32
    about: u64  # low bits of the key's last word: protocol and version


class ItemCell(Struct):
    """Report of an item that a switch has added up: `dataplane.wire.completion`, word by word."""

    node_id: u32
    child: u32  # IPv4 address
    about: u32  # job, last child, leaf
    item: u32
    wait_us: u32
    counts: u32  # repeated, ahead


class Decoder(Struct):
    """Configuration of decoding, and the results of decoding a few reports."""

    layouts: Array[Layout]  # one a bitmap
    patterns: Array[Pattern]  # by the payload's length in words
    pattern_mask: u64
    packets: Array[Packet]
    hops: Array[Hop]
    packet_room: u32
    hop_room: u32
    packet_count: u32
    hop_count: u32
    udp_port: u32  # that marks INT, NONE32: none
    dscp: u32
    dscp_mask: u32
    report_port: u32
    by_port_only: u32  # not 0: a probe marker may follow other headers
    tunnel_port: u32  # where INT may be in a tunnel, NONE32: nowhere
    tunnel_port2: u32
    leaves_drops: u32  # not 0: a subscriber wants their records
    items: Array[ItemCell]  # that Python has not taken yet
    item_count: u32
    most_items: u32  # with more, nothing is decoded until Python has taken them
    most_drops: u32  # that count of one report packet


class LinkEnd(Struct):
    """The far end of a directed link: its port, and the link back."""

    head_port: u32
    back: u32


class PendingHop(Hop):
    """A hop that waits for the others of its packet, or a known hop of a flow."""

    received_ns: u64
    identity: u64
    came_by: u32  # the link back over its ingress port, NONE32: no port or no link
    position: u32  # its index on the path, or its switch where only adjacency shows that
    count: u32  # of the whole path's hops, NONE32 where it is not known
    ends: u32  # not 0: the path's last hop
    kind: u32
    waiting: u32  # not 0: the next hop's stamp may still give its link's delay
    following: u32  # the packet's next in this order, its number and 1, 0: the last; or the next that is free


class PendingCell(Struct):
    """A packet of which some hops have reported, or a flow; numbers of cells and hops are kept with 1 added."""

    key: Inline[u64, Literal[5]]
    identity: u64
    hash: u64
    begun_ns: u64
    older: u32
    newer: u32  # or the next that is free
    first: u32  # hops
    last: u32
    hops: u32
    number: u32  # of the flow's entry


class FateCell(Struct):
    """Outcomes of packets on one link in one part of time."""

    slot: u64  # and 1; 0: nothing yet
    passed: u32
    missing: u32
    unannounced: u32
    dropped: u32
    unmarked: u32
    others: u32  # drops of packets without telemetry
    noted: u32  # not 0: among those to be read
    _gap: u32


class SwitchClockCell(Struct):
    """A switch's clock (`collectors.clocks.stamps.SwitchClock`), 64 bytes; its offsets wrap in 64 bits."""

    newest_ns: u64
    offset_ns: u64
    slot: u64  # in which the offset was followed last, and 1; 0: the next stamp that is believed has it followed
    strayed_ns: u64  # since when nothing came that is believed; NONE64: it did
    followed_ns: u64
    other_offset_ns: u64  # that stamps agree on which stray
    other_slot: u64
    agreeing: u32  # 0: nothing came yet
    other_agreeing: u32
