"""The hops of a stack as samples of links, and the path that the packet took."""

from __future__ import annotations

from collectors.native.kernels.state.clocks import corrected_delay
from collectors.native.kernels.state.routes import (
    STAMPS,
    hops_of,
    learn_hops,
    nodes_of,
    recall_hops,
    same_path,
    take_flow_path,
    take_route,
)
from collectors.native.kernels.state.samples import CORRECTED_STAMPS, HOP_LATENCY, PROBES, add_sample
from collectors.native.kernels.state.signals import note_queue
from collectors.native.kernels.state.stamps import runs_ahead
from collectors.native.kernels.state.windows import add_queue, add_tx_reading, beyond, count_delay
from collectors.native.structures import (
    MOST_HOPS,
    NONE32,
    NONE64,
    TX_SLOTS,
    WINDOW_SLOTS,
    Decoder,
    FlowCell,
    Hop,
    Packet,
)
from collectors.native.tables import TelemetryTables
from dataplane.native import Array, address, array_at, as_u64, kernel, stack_array, u32, u64


@kernel(inline=True)
def take_hops(tables: TelemetryTables, decoder: Decoder, packet: Packet, cell: FlowCell) -> None:
    """Make samples of a packet's hops, and its path."""
    hops = array_at(Hop, address(decoder.hops[packet.first_hop]))
    count: u64 = as_u64(packet.hop_count)
    tables.counts.records += count
    total_ns: u64 = 0
    probe: bool = packet.key[4] >> 8 & 0xFF_FFFF == tables.limits.probe
    is_known: bool = packet.route != NONE32
    if is_known and packet.stamped != 0 and not probe and tables.topology.synchronised != 0:
        total_ns = take_stamped(tables, packet.route, hops, count)
    else:
        if is_known:
            recall_hops(tables, packet.route, hops, count)
        total_ns = take_others(tables, hops, count, probe, is_known)
    if packet.missing == 0:
        if is_known and cell.route == packet.route:
            first: u32 = hops_of(tables, packet.route)[0].switch
            take_route(tables, cell, packet.route, first, hops[0].arrived_ns, total_ns)
        else:
            if is_known:
                recall_hops(tables, packet.route, hops, count)
            take_new_path(tables, cell, hops, count, total_ns)


@kernel(inline=True)
def take_stamped(tables: TelemetryTables, route: u32, hops: Array[Hop], count: u64) -> u64:
    """Make samples of the hops of a known route, all with a time of arrival; return the whole delay, as `take_others`.

    An ordinary hop has the same effects as in `take_hop`, without its checks.
    """
    route_hops = hops_of(tables, route)
    number: u64 = tables.batch.slot_number + 1
    column: u64 = tables.batch.slot_number & (WINDOW_SLOTS - 1)
    tx_number: u64 = tables.batch.tx_number + 1
    tx_column: u64 = tables.batch.tx_number & (TX_SLOTS - 1)
    total_ns: u64 = 0
    untold: bool = False
    i: u64 = 0
    while i < count:
        hop = hops[i]
        link: u64 = as_u64(route_hops[i].link)
        switch: u64 = as_u64(route_hops[i].switch)
        delay_ns: u64 = NONE64
        source: u32 = HOP_LATENCY
        if i + 1 < count:
            delay_ns = hops[i + 1].arrived_ns - hop.arrived_ns
            source = STAMPS
        elif hop.latency_ns != NONE32:
            delay_ns = as_u64(hop.latency_ns) + tables.topology.links[link].delay_ns
        clock = tables.clocks.switches[switch]
        behind_ns: u64 = beyond(clock.newest_ns, hop.arrived_ns)
        window = tables.windows.cells[link]
        slot = window.slots[column]
        if (
            behind_ns <= tables.batch.calm_ns
            and delay_ns <= tables.limits.longest_ns
            and slot.number == number
            and slot.source == source
            and clock.slot == number
            and not runs_ahead(tables, clock, hop.arrived_ns, tables.batch.now_ns)
        ):
            clock.newest_ns = hop.arrived_ns + behind_ns
            at_ns: u64 = tables.batch.now_ns - behind_ns
            slot.newest_ns = max(slot.newest_ns, at_ns)
            count_delay(tables, link, slot, column, delay_ns)
            add_queue(slot, hop.queue)
            note_queue(tables, link, hop.queue)
            if hop.tx_bytes != NONE32:
                reading = window.tx[tx_column]
                if reading.number != tx_number:
                    add_tx_reading(tables, window, at_ns, as_u64(hop.tx_bytes))
                elif at_ns >= reading.at_ns:
                    reading.nbytes = as_u64(hop.tx_bytes)
                    reading.at_ns = at_ns
        else:
            delay_ns = take_unusual(tables, route, hops, count, i)
            untold = untold or delay_ns == NONE64
        total_ns += delay_ns
        i += 1
    return NONE64 if untold else total_ns


@kernel(inline=False)
def take_unusual(tables: TelemetryTables, route: u32, hops: Array[Hop], count: u64, i: u64) -> u64:
    """Take one hop of a known route with all checks."""
    recall_hops(tables, route, hops, count)
    if i + 1 == count:
        return take_hop(tables, hops[i], True, NONE32, NONE64, False, True)
    return take_hop(tables, hops[i], False, hops[i + 1].switch, hops[i + 1].arrived_ns, False, True)


@kernel(inline=False)
def take_others(tables: TelemetryTables, hops: Array[Hop], count: u64, probe: bool, is_known: bool) -> u64:
    """Make samples of any hops; return the delay over all links, NONE64 where one has none."""
    total_ns: u64 = 0
    i: u64 = 0
    while i < count:
        following: u32 = NONE32
        arrived_ns: u64 = NONE64
        last: bool = i + 1 == count
        if not last:
            following = hops[i + 1].switch
            arrived_ns = hops[i + 1].arrived_ns
        delay_ns: u64 = take_hop(tables, hops[i], last, following, arrived_ns, probe, is_known)
        if delay_ns == NONE64:
            total_ns = NONE64
        elif total_ns != NONE64:
            total_ns += delay_ns
        i += 1
    return total_ns


@kernel(inline=False)
def take_new_path(tables: TelemetryTables, cell: FlowCell, hops: Array[Hop], count: u64, total_ns: u64) -> None:
    """Take the whole path of a packet that left its flow's path."""
    switches = stack_array(u32, MOST_HOPS)
    i: u64 = 0
    while i < count:
        if hops[i].switch == NONE32:
            return
        switches[i] = hops[i].switch
        i += 1
    take_flow_path(tables, cell, switches, count, hops[0].arrived_ns, total_ns)
    if cell.route != NONE32 and same_path(
        tables.routes.cells[as_u64(cell.route)], nodes_of(tables, as_u64(cell.route)), switches, count
    ):
        learn_hops(tables, cell.route, hops, count)


@kernel(inline=False)
def take_hop(  # noqa: PLR0917 - kernels have no keywords
    tables: TelemetryTables, hop: Hop, last: bool, following: u32, arrived_ns: u64, probe: bool, adjacent: bool
) -> u64:
    """Make a sample of a hop's egress link; return its delay, NONE64 where it has none."""
    if hop.switch == NONE32:
        tables.counts.unknown_node += 1
        return NONE64
    number: u32 = hop.link
    if number == NONE32:
        tables.counts.unknown_port += 1
        return NONE64
    link = tables.topology.links[number]
    delay_ns: u64 = NONE64
    source: u32 = HOP_LATENCY
    stamped: bool = hop.arrived_ns != NONE64 and arrived_ns != NONE64  # noqa: PLR1714 - kernels have no `in`
    if stamped and not last and tables.topology.synchronised != 0:
        if not adjacent and (following == NONE32 or following != link.head_switch):
            tables.counts.not_adjacent += 1
        elif arrived_ns < hop.arrived_ns or arrived_ns - hop.arrived_ns > tables.limits.longest_ns:
            tables.counts.implausible_stamps += 1
        else:
            delay_ns = arrived_ns - hop.arrived_ns
            source = STAMPS
    if tables.topology.synchronised == 0 and not last and following != NONE32 and following == link.head_switch:
        delay_ns = corrected_delay(tables, number, hop, arrived_ns)
        if delay_ns != NONE64:
            source = CORRECTED_STAMPS
    if probe and source != HOP_LATENCY:
        source = PROBES
    if delay_ns == NONE64 and hop.latency_ns != NONE32:
        delay_ns = as_u64(hop.latency_ns) + link.delay_ns
    time_ns: u64 = hop.arrived_ns if hop.left_ns == NONE64 else hop.left_ns
    add_sample(
        tables, number, hop.switch, time_ns, tables.batch.now_ns, delay_ns, source, hop.queue, hop.tx_bytes, hop.buffer
    )
    return delay_ns
