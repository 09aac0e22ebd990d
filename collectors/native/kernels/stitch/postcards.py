"""Hops ordered only by adjacency, as in `collectors.reference.postcards`: of one packet, else of one flow."""

from __future__ import annotations

from collectors.native.kernels.state.routes import find_host
from collectors.native.kernels.stitch.hop_samples import (
    egress_link,
    end_packet,
    expects_stamp,
    give_up,
    ingress_link,
    is_known,
    next_switch,
    sample_delay,
    sample_figures,
    sample_hop,
    take_fates_of_path,
    take_joined_path,
)
from collectors.native.kernels.stitch.pending import (
    add_cell,
    cell_of,
    find_cell,
    find_hop,
    forget_hops,
    has_too_many,
    hop_of,
    put_hop,
    remove_cell,
    renew_cell,
)
from collectors.native.structures import MX, NONE32, XD, PendingCell, PendingHop
from collectors.native.tables import PendingTable, TelemetryTables
from dataplane.native import Array, address, as_u64, kernel, u32, u64, view


@kernel(inline=False)
def join_part(tables: TelemetryTables, key: Array[u64], flow_hash: u64, mixed: u64, count: u32) -> None:
    """Join successive hops of one report, which `part` holds, with those of their packet that have come."""
    pending = tables.pending
    stranger: bool = False
    i: u64 = 0
    while i < as_u64(count):
        hop = pending.part[i]
        hop.came_by = ingress_link(tables, hop)
        hop.position = hop.switch
        hop.waiting = 0
        stranger = stranger or hop.switch == NONE32
        if i + 1 < as_u64(count):
            sample_hop(tables, key, hop, pending.part[i + 1])
        i += 1
    if stranger:
        # No path leads over an unknown switch, and the number of such names is unbounded.
        sample_hop(tables, key, pending.part[as_u64(count) - 1], view(PendingHop, 0))
        return
    table = pending.parts
    number: u32 = packet_of(tables, key, mixed, count)
    cell = cell_of(table, number)
    first = put_hop(table, cell, pending.part[0])
    last = first
    i = 1
    while i < as_u64(count):
        last = put_hop(table, cell, pending.part[i])
        i += 1
    sample_end(tables, table, cell, key, last)
    before = view(PendingHop, 0)
    if not comes_again(tables, count):
        before = hop_before(tables, table, cell, key, first)
    if is_known(before) and before.waiting != 0:
        before.waiting = 0
        sample_delay(tables, key, before, first)
    whole: bool = walk(tables, table, cell, key)
    if whole:
        take_joined_path(tables, key, flow_hash)
        take_fates_of_path(tables)
        remove_cell(table, number)
    give_up(tables, table)
    kind: u32 = pending.part[0].kind
    if not whole and (kind == MX or kind == XD):  # noqa: PLR1714, SIM109 - kernels have no `in`
        take_of_flow(tables, key, flow_hash)


@kernel(inline=True)
def comes_again(tables: TelemetryTables, count: u32) -> bool:
    """Return whether a part's first switch repeats in it; its last report is then the one that counts."""
    i: u64 = 1
    while i < as_u64(count):
        if tables.pending.part[i].switch == tables.pending.part[0].switch:
            return True
        i += 1
    return False


@kernel(inline=True)
def packet_of(tables: TelemetryTables, key: Array[u64], mixed: u64, count: u32) -> u32:
    """Return the number of the packet of a part, a new one if none of it has come yet."""
    table = tables.pending.parts
    part = tables.pending.part
    number: u32 = find_cell(table, key, part[0].identity, mixed)
    if number != 0:
        i: u64 = 0
        while i < as_u64(count):
            if is_known(find_hop(table, cell_of(table, number), part[i].switch)):
                # The same node twice: another packet that looks the same.
                end_packet(tables, table, cell_of(table, number))
                remove_cell(table, number)
                number = 0
                break
            i += 1
    if number == 0:
        number = add_cell(table, key, part[0].identity, mixed, part[0].received_ns)
    return number


@kernel(inline=True)
def sample_end(
    tables: TelemetryTables, table: PendingTable, cell: PendingCell, key: Array[u64], last: PendingHop
) -> None:
    """Sample the last hop of a part, whose next hop may have reported already, may do so later, or never."""
    after = hop_after(tables, table, cell, key, last)
    if is_known(after) or not expects_stamp(tables, key, last):
        sample_hop(tables, key, last, after)
    else:
        last.waiting = 1
        sample_figures(tables, key, last)


@kernel(inline=True)
def hop_after(
    tables: TelemetryTables, table: PendingTable, cell: PendingCell, key: Array[u64], hop: PendingHop
) -> PendingHop:
    """Return the hop that another one's egress link leads to, or null."""
    link: u32 = egress_link(tables, key, hop, view(PendingHop, 0))
    if link == NONE32 or tables.topology.links[as_u64(link)].head_switch == NONE32:
        return view(PendingHop, 0)
    next_hop = find_hop(table, cell, tables.topology.links[as_u64(link)].head_switch)
    if (
        is_known(next_hop)
        and next_hop.ingress != NONE32
        and next_hop.ingress != tables.topology.link_ends[as_u64(link)].head_port
    ):
        return view(PendingHop, 0)
    return next_hop


@kernel(inline=True)
def hop_before(
    tables: TelemetryTables, table: PendingTable, cell: PendingCell, key: Array[u64], hop: PendingHop
) -> PendingHop:
    """Return the hop whose egress link leads here: the one behind the ingress port if that is reported; or null."""
    if hop.ingress != NONE32:
        if hop.came_by == NONE32 or tables.topology.links[as_u64(hop.came_by)].head_switch == NONE32:
            return view(PendingHop, 0)
        previous = find_hop(table, cell, tables.topology.links[as_u64(hop.came_by)].head_switch)
        if is_known(previous) and address(hop_after(tables, table, cell, key, previous)) == address(hop):
            return previous
        return view(PendingHop, 0)
    number: u32 = cell.first
    while number != 0:
        candidate = hop_of(table, number)
        if next_switch(tables, key, candidate) == hop.switch:
            return candidate
        number = candidate.following
    return view(PendingHop, 0)


@kernel(inline=True)
def is_first(tables: TelemetryTables, key: Array[u64], hop: PendingHop) -> bool:
    """Return whether a hop's packet came to it from a host."""
    if hop.ingress != NONE32:
        return hop.came_by == NONE32 or tables.topology.links[as_u64(hop.came_by)].head_switch == NONE32
    host: u32 = find_host(tables, key[4] & 0xF, key[0], key[1])
    return host != NONE32 and tables.topology.host_switches[as_u64(host)] == hop.switch


@kernel(inline=False)
def walk(tables: TelemetryTables, table: PendingTable, cell: PendingCell, key: Array[u64]) -> bool:
    """Put the hops from a host's link to a host's link on `path`; False while any between is missing."""
    pending = tables.pending
    pending.path_hops = 0
    number: u32 = cell.first
    while number != 0 and not is_first(tables, key, hop_of(table, number)):
        number = hop_of(table, number).following
    if number == 0:
        return False
    hop = hop_of(table, number)
    while is_known(hop) and pending.path_hops < as_u64(cell.hops):
        pending.path[pending.path_hops] = address(hop)
        pending.path_hops += 1
        link: u32 = egress_link(tables, key, hop, view(PendingHop, 0))
        if link != NONE32 and tables.topology.links[as_u64(link)].head_switch == NONE32:
            return True
        hop = hop_after(tables, table, cell, key, hop)
    return False


@kernel(inline=False)
def take_of_flow(tables: TelemetryTables, key: Array[u64], flow_hash: u64) -> None:
    """Take the flow's path as its nodes reported it last, if they form one."""
    table = tables.pending.flows
    pending_hop = tables.pending.part[0]
    number: u32 = find_cell(table, key, 0, flow_hash)
    if number != 0:
        renew_cell(table, number)
    else:
        number = add_cell(table, key, 0, flow_hash, pending_hop.received_ns)
    cell = cell_of(table, number)
    put_hop(table, cell, pending_hop)
    if pending_hop.received_ns > tables.limits.forget_ns:
        forget_hops(table, cell, pending_hop.received_ns - tables.limits.forget_ns)
    if walk(tables, table, cell, key):
        take_joined_path(tables, key, flow_hash)
    while has_too_many(table):
        tables.counts.flows_forgotten += 1
        remove_cell(table, table.oldest)
