"""Tables that the collector's kernels work on, one struct per concern, and all of them: `TelemetryTables`.

Python creates them and fills in the topology and the settings; kernels do the rest. The plain twin of each is named in
its docstring.
"""

from __future__ import annotations

from collectors.native.structures import (
    AddressCell,
    ClockCell,
    FateCell,
    FlowCell,
    GrownCell,
    LinkCell,
    LinkEnd,
    PendingCell,
    PendingHop,
    RecordCell,
    RouteCell,
    RouteHop,
    SwitchClockCell,
    TrackerCell,
    WindowCell,
)
from dataplane.native import Array, InPlace, Struct, u8, u32, u64


class TopologyTable(Struct):
    """Native form of the topology (`dataplane.topology.values.Topology`); written once."""

    switch_index: Array[u64]  # node id, number and 1
    switch_mask: u64
    port_base: Array[u32]  # by switch; one more than there are switches
    port_links: Array[u32]  # by base and port
    links: Array[LinkCell]
    link_count: u64
    link_ends: Array[LinkEnd]
    pair_index: Array[u64]  # links between switches by these: high half of the hash, number and 1
    pair_mask: u64
    addresses: Array[AddressCell]
    address_index: Array[u64]  # high half of the hash, number and 1
    address_mask: u64
    host_switches: Array[u32]  # the switch of each host
    host_links: Array[u32]  # the link to each host
    synchronised: u64
    report_sources: Array[u32]  # by switch: the IPv4 address that its reports come from
    relays: Array[u32]  # addresses from which reports of any switch may come
    relay_count: u64


class ClockTable(Struct):
    """Clocks of links (`collectors.clocks.flights`) and of switches (`collectors.clocks.stamps`)."""

    links: Array[ClockCell]
    switches: Array[SwitchClockCell]


class WindowTable(Struct):
    """Windows of links, then of routes (`collectors.statistics.window`)."""

    cells: Array[WindowCell]
    buckets: Array[u32]  # by window, 16 buckets, slot, bucket: a slot's neighbouring buckets share a line
    touched: Array[u8]  # by window, not 0: it has changed since its figures were read
    noted: Array[u64]  # addresses of counts that delays are still to be added to
    noted_count: u64
    slot_ns: u64
    tx_window_ns: u64
    window_ns: u64


class Limits(Struct):
    """Limits from the settings (`collectors.settings.StateSettings`)."""

    stale_ns: u64
    forget_ns: u64
    lead_ns: u64  # how far a stamp may run ahead
    longest_ns: u64
    probe: u64  # UDP port of probes << 8 | protocol; NONE64: there are none


class FlowTable(Struct):
    """Flows with path and rate (`collectors.reference.accumulator`), found by open addressing."""

    cells: Array[FlowCell]  # one more than the maximum, for packets whose flow was not admitted
    index: Array[u64]  # high half of the hash, number and 1
    mask: u64
    count: u64
    most: u64
    hand: u64
    touches: u64
    rate_slot_ns: u64
    slot: u64  # of a rate, that a time was asked for last
    slot_begins_ns: u64
    rate_lead_ns: u64
    epoch: u32  # of weights, that a time was asked for last
    _gap: u32
    epoch_begins_ns: u64
    credit: u64  # what flows that were not admitted have sent since the last one was, in units of weight


class RouteTable(Struct):
    """Paths over the switches, found by open addressing, and the immediate figures of their packets."""

    cells: Array[RouteCell]
    nodes: Array[u32]  # MOST_SWITCHES a route
    hops: Array[RouteHop]  # as many
    lessons: u64  # how often any of them changed
    index: Array[u64]  # high half of the hash, number and 1
    mask: u64
    count: u64
    most: u64
    next_sweep_ns: u64
    free: Array[u32]
    free_count: u64


class SequenceTable(Struct):
    """Reporters and their numbers (`collectors.reference.sequence`); found by open addressing."""

    trackers: Array[TrackerCell]
    seen: Array[u64]  # `ring` bits a tracker
    before_seen: Array[u64]
    marks: Array[u32]  # `ring` a tracker, of the numbers that were seen
    index: Array[u64]  # high half of the hash, number and 1
    mask: u64
    count: u64
    most: u64
    ring: u64
    window: u64
    largest_gap: u64
    silence_ns: u64
    most_repeats: u64
    touches: u64
    forgotten: u64


class PendingTable(Struct):
    """Packets or flows in the order of their eviction, found by open addressing (`collectors.reference.pending`)."""

    cells: Array[PendingCell]
    hops: Array[PendingHop]
    index: Array[u64]  # high half of the hash, number and 1
    mask: u64
    most: u64
    most_hops: u64
    count: u64
    hop_count: u64
    used: u64  # cells that were ever used, from the first on
    hops_used: u64
    free: u32
    free_hop: u32
    oldest: u32
    newest: u32
    newest_ns: u64


class PendingTables(Struct):
    """Tables that join hops that report separately (`collectors.reference.stitch`)."""

    sources: InPlace[PendingTable]  # flows with their source's remaining hops
    singles: InPlace[PendingTable]  # packets by hop index
    parts: InPlace[PendingTable]  # packets by adjacency
    flows: InPlace[PendingTable]  # the last hop that each node reported of a flow
    splits: InPlace[PendingTable]  # flows whose stacks come in parts
    part: Array[PendingHop]  # of one report
    path: Array[u64]  # addresses of hops
    path_hops: u64
    switches: Array[u32]
    wait_ns: u64
    incomplete: u64


class LossTable(Struct):
    """Outcomes of packets on links (`collectors.state.loss`)."""

    fates: Array[FateCell]  # `ring` a link
    ring: u64
    slot_ns: u64
    noted: Array[u32]
    noted_count: u64
    lost_early: Array[u32]  # by link: packets lost in parts of time that the ring has no cell for any more
    reporting: Array[u32]  # by switch: not 0: it has reported a drop


class SignalTable(Struct):
    """Signs that the network has changed (`collectors.state.signals`)."""

    queue: u32  # frames in the longest queue between switches, and 1; 0: none was reported
    queue_reported: u32  # not 0: a switch has reported a congested one
    queue_full: u32  # not 0: one has refused a packet
    round: u32  # of decisions
    grown: Array[GrownCell]
    grown_count: u32
    most_grown: u32
    unlisted: u64


class RecordTable(Struct):
    """Hops of the reports that subscribers want, and the choice of these reports (`collectors.state.record_log`)."""

    cells: Array[RecordCell]
    count: u32
    room: u32
    per_s: u64  # reports, 0: none wanted
    share: u64  # of 1 << 32: choices below become records
    seen: u64  # in this period
    seen_per_s: u64  # in the last one
    begun_ns: u64
    full_ns: u64  # when the budget is, or was, full
    is_behind: u64
    is_capped: u64  # not 0: subscribers want more than settings allow


class Batch(Struct):
    """The arrival time of the current payloads, and its slots."""

    now_ns: u64
    slot_number: u64
    slot_begins_ns: u64
    clock_slot: u64  # the slot's number and 1, also where it is to be looked for
    tx_number: u64
    tx_begins_ns: u64
    calm_ns: u64  # a sample as far behind is of the slot and of the window of TX readings that now is in
    sources: u64  # address of the payloads' IPv4 addresses, 0: the caller answers for them
    skips_others: u64  # not 0: payloads of uncommon form are accounted by number only
    begun: u64  # batches so far: figures read before the last one are out of date


class Counts(Struct):
    """Counts not yet added to `collectors.counters.Counters`; `collectors.native.accumulator` names them."""

    reports: u64
    repeated: u64
    contested: u64
    records: u64
    unknown_node: u64
    unknown_port: u64
    not_adjacent: u64
    implausible_stamps: u64
    late_samples: u64
    flows_forgotten: u64
    flows_not_admitted: u64
    routes_full: u64
    not_read: u64
    packet_dropped: u64
    drops_capped: u64
    unknown_reporter: u64
    wrong_source: u64
    records_withheld: u64
    records_not_sampled: u64
    records_shed: u64
    refused_row: u32  # the last of these


class TelemetryTables(Struct):
    """The network's state as kernels keep it, all but the numbers of reporters, which need none of it."""

    batch: InPlace[Batch]
    counts: InPlace[Counts]
    limits: InPlace[Limits]
    topology: InPlace[TopologyTable]
    clocks: InPlace[ClockTable]
    windows: InPlace[WindowTable]
    flows: InPlace[FlowTable]
    routes: InPlace[RouteTable]
    pending: InPlace[PendingTables]
    losses: InPlace[LossTable]
    signals: InPlace[SignalTable]
    records: InPlace[RecordTable]
