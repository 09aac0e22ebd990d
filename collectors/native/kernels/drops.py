"""Packets that switches report as dropped, counted like in `collectors.state.loss.LossMeter.dropped`."""

from __future__ import annotations

from collectors.native.kernels.state.gaps import note_gap_of
from collectors.native.kernels.state.signals import is_inner
from collectors.native.kernels.state.stacks import take_hops
from collectors.native.kernels.state.switches import find_switch, link_by_port
from collectors.native.kernels.stitch.hop_samples import DROPPED, UNANNOUNCED, UNMARKED, count_fate
from collectors.native.structures import CAPPED, NONE32, STACK, Decoder, FlowCell, Packet
from collectors.native.tables import TelemetryTables
from dataplane.native import as_u64, kernel, reference, u32, view
from dataplane.wire.drop_reasons import DropReason

OTHERS = 5
QUEUE_FULL = DropReason.QUEUE_FULL.value


@kernel(inline=False)
def take_drop(tables: TelemetryTables, packet: Packet) -> None:
    """Count a drop on the link that the packet was to leave by."""
    tables.counts.packet_dropped += 1
    if packet.dropped == CAPPED:
        tables.counts.drops_capped += 1
        return
    switch: u32 = find_switch(tables, packet.node_id)
    if switch == NONE32:
        return
    tables.losses.reporting[as_u64(switch)] = 1
    came_by: u32 = NONE32
    if packet.drop_ingress != NONE32:
        came_by = link_by_port(tables, switch, packet.drop_ingress)
    left_by: u32 = NONE32
    if packet.drop_egress != NONE32:
        left_by = link_by_port(tables, switch, packet.drop_egress)
    if left_by != NONE32:
        outcome: u32 = OTHERS
        if packet.tracked != 0:
            outcome = DROPPED
        elif came_by != NONE32 and tables.topology.links[as_u64(came_by)].head_switch == NONE32:
            outcome = UNMARKED
        count_fate(tables, left_by, outcome, tables.batch.now_ns)
        if packet.drop_reason == QUEUE_FULL and is_inner(tables, as_u64(left_by)):
            tables.signals.queue_full = 1
    if came_by != NONE32 and packet.tracked != 0:
        # It has arrived, though the hop that dropped it does not report itself as part of its path.
        count_fate(tables, tables.topology.link_ends[as_u64(came_by)].back, UNANNOUNCED, tables.batch.now_ns)


@kernel(inline=False)
def note_gap_before(tables: TelemetryTables, decoder: Decoder, packet: Packet) -> None:
    """Note when a packet that was dropped later came to its first switch, if that has reported."""
    hop = decoder.hops[as_u64(packet.first_hop)]
    if packet.kind == STACK and hop.switch != NONE32:
        note_gap_of(tables, reference(packet.key[0]), packet.hash, hop.arrived_ns)


@kernel(inline=False)
def take_hops_before(tables: TelemetryTables, decoder: Decoder, packet: Packet) -> None:
    """Take the hops before a drop, which are not a whole path: the flow is not needed."""
    take_hops(tables, decoder, packet, view(FlowCell, 0))
