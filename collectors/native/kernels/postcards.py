"""Hops whose place only adjacency tells, as in `collectors.decode.postcards`: of one packet, else of one flow."""

from __future__ import annotations

from collectors.native.kernels.hop_samples import (
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
    take_fates_of_way,
    take_joined_way,
)
from collectors.native.kernels.pending import (
    add_cell,
    cell_of,
    find_cell,
    find_hop,
    forget_hops,
    has_too_many,
    hash_packet,
    hop_of,
    put_hop,
    remove_cell,
    renew_cell,
)
from collectors.native.kernels.routes import find_host
from collectors.native.structures import MX, NONE32, XD, Fabric, JoinCell, JoinHop, JoinTable
from dataplane.native import Array, address, as_u64, kernel, u32, u64, view


@kernel(inline=False)
def join_part(fabric: Fabric, key: Array[u64], flow_hash: u64, mixed: u64, count: u32) -> None:
    """Join successive hops of one report, which `part` holds, with those of their packet that have come."""
    joins = fabric.joins
    stranger: bool = False
    i: u64 = 0
    while i < as_u64(count):
        hop = joins.part[i]
        hop.came_by = ingress_link(fabric, hop)
        hop.place = hop.switch
        hop.waiting = 0
        stranger = stranger or hop.switch == NONE32
        if i + 1 < as_u64(count):
            sample_hop(fabric, key, hop, joins.part[i + 1])
        i += 1
    if stranger:
        # No path leads over a stranger, and there is no end to the names that one may have.
        sample_hop(fabric, key, joins.part[as_u64(count) - 1], view(JoinHop, 0))
        return
    table = joins.parts
    number: u32 = packet_of(fabric, key, mixed, count)
    cell = cell_of(table, number)
    first = put_hop(table, cell, joins.part[0])
    last = first
    i = 1
    while i < as_u64(count):
        last = put_hop(table, cell, joins.part[i])
        i += 1
    sample_end(fabric, table, cell, key, last)
    before = view(JoinHop, 0)
    if not comes_again(fabric, count):
        before = hop_before(fabric, table, cell, key, first)
    if is_known(before) and before.waiting != 0:
        before.waiting = 0
        sample_delay(fabric, key, before, first)
    whole: bool = walk(fabric, table, cell, key)
    if whole:
        take_joined_way(fabric, key)
        take_fates_of_way(fabric)
        remove_cell(table, number)
    give_up(fabric, table)
    kind: u32 = joins.part[0].kind
    if not whole and (kind == MX or kind == XD):  # noqa: PLR1714, SIM109 - kernels have no `in`
        take_of_flow(fabric, key, flow_hash)


@kernel(inline=True)
def comes_again(fabric: Fabric, count: u32) -> bool:
    """Return whether the part's first switch comes again in it, whose last words are what is known of it then."""
    i: u64 = 1
    while i < as_u64(count):
        if fabric.joins.part[i].switch == fabric.joins.part[0].switch:
            return True
        i += 1
    return False


@kernel(inline=True)
def packet_of(fabric: Fabric, key: Array[u64], mixed: u64, count: u32) -> u32:
    """Return the number of the packet of a part, a new one if none of it has come yet."""
    table = fabric.joins.parts
    part = fabric.joins.part
    number: u32 = find_cell(table, key, part[0].identity, mixed)
    if number != 0:
        i: u64 = 0
        while i < as_u64(count):
            if is_known(find_hop(table, cell_of(table, number), part[i].switch)):
                # The same node twice: another packet that looks the same.
                end_packet(fabric, table, cell_of(table, number))
                remove_cell(table, number)
                number = 0
                break
            i += 1
    if number == 0:
        number = add_cell(table, key, part[0].identity, mixed, part[0].received_ns)
    return number


@kernel(inline=True)
def sample_end(fabric: Fabric, table: JoinTable, cell: JoinCell, key: Array[u64], last: JoinHop) -> None:
    """Sample the last hop of a part, whose next hop may have reported already, may do so later, or never."""
    after = hop_after(fabric, table, cell, key, last)
    if is_known(after) or not expects_stamp(fabric, key, last):
        sample_hop(fabric, key, last, after)
    else:
        last.waiting = 1
        sample_figures(fabric, key, last)


@kernel(inline=True)
def hop_after(fabric: Fabric, table: JoinTable, cell: JoinCell, key: Array[u64], hop: JoinHop) -> JoinHop:
    """Return the hop that another one's egress link leads to, or null."""
    link: u32 = egress_link(fabric, key, hop, view(JoinHop, 0))
    if link == NONE32 or fabric.links[as_u64(link)].head_switch == NONE32:
        return view(JoinHop, 0)
    found = find_hop(table, cell, fabric.links[as_u64(link)].head_switch)
    if is_known(found) and found.ingress != NONE32 and found.ingress != fabric.joins.ends[as_u64(link)].head_port:
        return view(JoinHop, 0)
    return found


@kernel(inline=True)
def hop_before(fabric: Fabric, table: JoinTable, cell: JoinCell, key: Array[u64], hop: JoinHop) -> JoinHop:
    """Return the hop whose egress link leads here, the one behind the ingress port if that is told; or null."""
    if hop.ingress != NONE32:
        if hop.came_by == NONE32 or fabric.links[as_u64(hop.came_by)].head_switch == NONE32:
            return view(JoinHop, 0)
        known = find_hop(table, cell, fabric.links[as_u64(hop.came_by)].head_switch)
        if is_known(known) and address(hop_after(fabric, table, cell, key, known)) == address(hop):
            return known
        return view(JoinHop, 0)
    number: u32 = cell.first
    while number != 0:
        candidate = hop_of(table, number)
        if next_switch(fabric, key, candidate) == hop.switch:
            return candidate
        number = candidate.following
    return view(JoinHop, 0)


@kernel(inline=True)
def is_first(fabric: Fabric, key: Array[u64], hop: JoinHop) -> bool:
    """Return whether a hop's packet came to it from a host."""
    if hop.ingress != NONE32:
        return hop.came_by == NONE32 or fabric.links[as_u64(hop.came_by)].head_switch == NONE32
    host: u32 = find_host(fabric, key[4] & 0xF, key[0], key[1])
    return host != NONE32 and fabric.host_switches[as_u64(host)] == hop.switch


@kernel(inline=False)
def walk(fabric: Fabric, table: JoinTable, cell: JoinCell, key: Array[u64]) -> bool:
    """Put the hops from a host's link to a host's link on the joins' `way`; False while any between is missing."""
    joins = fabric.joins
    joins.way_hops = 0
    number: u32 = cell.first
    while number != 0 and not is_first(fabric, key, hop_of(table, number)):
        number = hop_of(table, number).following
    if number == 0:
        return False
    hop = hop_of(table, number)
    while is_known(hop) and joins.way_hops < as_u64(cell.hops):
        joins.way[joins.way_hops] = address(hop)
        joins.way_hops += 1
        link: u32 = egress_link(fabric, key, hop, view(JoinHop, 0))
        if link != NONE32 and fabric.links[as_u64(link)].head_switch == NONE32:
            return True
        hop = hop_after(fabric, table, cell, key, hop)
    return False


@kernel(inline=False)
def take_of_flow(fabric: Fabric, key: Array[u64], flow_hash: u64) -> None:
    """Take the flow's path as its nodes said last, if that is one."""
    table = fabric.joins.flows
    said = fabric.joins.part[0]
    mixed: u64 = hash_packet(flow_hash, 0)
    number: u32 = find_cell(table, key, 0, mixed)
    if number != 0:
        renew_cell(table, number)
    else:
        number = add_cell(table, key, 0, mixed, said.received_ns)
    cell = cell_of(table, number)
    put_hop(table, cell, said)
    if said.received_ns > fabric.forget_ns:
        forget_hops(table, cell, said.received_ns - fabric.forget_ns)
    if walk(fabric, table, cell, key):
        take_joined_way(fabric, key)
    while has_too_many(table):
        fabric.flows_forgotten += 1
        remove_cell(table, table.oldest)
