"""Samples of the egress link of a hop that reported individually, and of a packet's hops together.

`collectors.decode.samples.Sampler` and the end of `collectors.decode.stitch` in native memory. An unknown following hop
is the null pointer.
"""

from __future__ import annotations

from collectors.native.kernels.decode.hops import egress_of, ingress_of
from collectors.native.kernels.state.clocks import corrected_delay, corrected_flight
from collectors.native.kernels.state.flows import find_flow, touch_flow
from collectors.native.kernels.state.routes import STAMPS, find_host, is_path, nodes_of, same_path, take_flow_path
from collectors.native.kernels.state.samples import CORRECTED_STAMPS, HOP_LATENCY, PROBES, add_sample
from collectors.native.kernels.state.switches import find_switch, link_by_port, link_of_pair
from collectors.native.kernels.state.windows import begin_batch
from collectors.native.kernels.stitch.pending import cell_of, has_too_many, hop_of, remove_cell
from collectors.native.structures import HOP_BY_HOP, MX, NONE32, NONE64, Hop, Packet, PendingCell, PendingHop
from collectors.native.tables import PendingTable, TelemetryTables
from dataplane.native import (
    Array,
    address,
    array_at,
    as_u32,
    as_u64,
    copy,
    kernel,
    reference,
    sizeof,
    u8,
    u32,
    u64,
    view,
)

PASSED = 0
MISSING = 1
UNANNOUNCED = 2
DROPPED = 3
UNMARKED = 4
"""Outcomes of packets; greater values stand for packets without telemetry."""


@kernel(inline=True)
def is_known(hop: PendingHop) -> bool:
    """Return whether there is a hop."""
    return address(hop) != 0


# ---- links


@kernel(inline=False)
def link_without_port(tables: TelemetryTables, key: Array[u64], hop: PendingHop, following: PendingHop) -> u32:
    """Return the link to the next hop, or to the destination host at the path's end; or NONE32."""
    if is_known(following):
        return NONE32 if following.switch == NONE32 else link_of_pair(tables, hop.switch, following.switch)
    if hop.ends == 0:
        return NONE32
    host: u32 = find_host(tables, key[4] & 0xF, key[2], key[3])
    if host == NONE32 or tables.topology.host_switches[as_u64(host)] != hop.switch:
        return NONE32
    return tables.topology.host_links[as_u64(host)]


@kernel(inline=True)
def egress_link(tables: TelemetryTables, key: Array[u64], hop: PendingHop, following: PendingHop) -> u32:
    """Return the link that a packet left by: by the egress port, else by the next hop; NONE32 if unknown."""
    if hop.switch == NONE32:
        return NONE32
    if hop.egress != NONE32:
        return hop.link
    return link_without_port(tables, key, hop, following)


@kernel(inline=True)
def ingress_link(tables: TelemetryTables, hop: PendingHop) -> u32:
    """Return the reverse of the link that a packet came by, NONE32 where port or node are unknown."""
    if hop.switch == NONE32 or hop.ingress == NONE32:  # noqa: PLR1714 - kernels have no `in`
        return NONE32
    return link_by_port(tables, hop.switch, hop.ingress)


@kernel(inline=False)
def find_ends(tables: TelemetryTables, count: u32) -> None:
    """Find switches and egress links of the hops that `part` holds."""
    i: u64 = 0
    while i < as_u64(count):
        hop = tables.pending.part[i]
        hop.switch = find_switch(tables, hop.node_id)
        hop.link = NONE32
        if hop.switch != NONE32 and hop.egress != NONE32:  # noqa: PLR1714
            hop.link = link_by_port(tables, hop.switch, hop.egress)
        i += 1


@kernel(inline=True)
def put_into_part(tables: TelemetryTables, packet: Packet, hop: Hop, index: u64) -> PendingHop:
    """Put one hop of a packet into `part`; return it there."""
    pending_hop = tables.pending.part[index]
    copy(array_at(u8, address(pending_hop)), array_at(u8, address(hop)), sizeof(Hop))
    pending_hop.ingress = ingress_of(hop)
    pending_hop.egress = egress_of(hop)
    pending_hop.received_ns = tables.batch.now_ns
    pending_hop.identity = packet.identity
    pending_hop.kind = packet.kind
    pending_hop.count = NONE32
    pending_hop.ends = 0
    return pending_hop


@kernel(inline=True)
def next_switch(tables: TelemetryTables, key: Array[u64], hop: PendingHop) -> u32:
    """Return the switch that a hop's egress link leads to, or NONE32."""
    link: u32 = egress_link(tables, key, hop, view(PendingHop, 0))
    return NONE32 if link == NONE32 else tables.topology.links[as_u64(link)].head_switch


@kernel(inline=True)
def expects_stamp(tables: TelemetryTables, key: Array[u64], hop: PendingHop) -> bool:
    """Return whether the next hop's ingress stamp would give the delay of this hop's egress link."""
    if hop.arrived_ns == NONE64 or hop.count != NONE32:
        return False
    return next_switch(tables, key, hop) != NONE32


# ---- delays and samples


@kernel(inline=True)
def is_probe(tables: TelemetryTables, key: Array[u64]) -> bool:
    """Return whether a flow is one of probes."""
    return key[4] >> 8 & 0xFF_FFFF == tables.limits.probe


@kernel(inline=True)
def delay_by_stamps(tables: TelemetryTables, hop: PendingHop, following: PendingHop, link: u32, counting: bool) -> u64:
    """Return the difference of the ingress stamps of a link's ends, or NONE64."""
    if hop.arrived_ns == NONE64 or following.arrived_ns == NONE64:  # noqa: PLR1714 - kernels have no `in`
        return NONE64
    if following.switch == NONE32 or following.switch != tables.topology.links[as_u64(link)].head_switch:
        tables.counts.not_adjacent += as_u64(counting)
        return NONE64
    if following.arrived_ns < hop.arrived_ns or following.arrived_ns - hop.arrived_ns > tables.limits.longest_ns:
        tables.counts.implausible_stamps += as_u64(counting)
        return NONE64
    return following.arrived_ns - hop.arrived_ns


@kernel(inline=True)
def delay_without_clock(
    tables: TelemetryTables, hop: PendingHop, following: PendingHop, link: u32, counting: bool
) -> u64:
    """Return a link's delay by stamps of two clocks, or NONE64; the flight is noted where it counts."""
    if not is_known(following) or following.switch != tables.topology.links[as_u64(link)].head_switch:
        return NONE64
    if following.switch == NONE32:
        return NONE64
    if counting:
        return corrected_delay(tables, link, hop, following.arrived_ns)
    return corrected_flight(tables, link, hop, following.arrived_ns, False)


@kernel(inline=True)
def whole_link_delay(tables: TelemetryTables, hop: PendingHop, following: PendingHop, link: u32) -> u64:
    """Return the delay of a hop's egress link without counting anything; NONE64 if it is unknown."""
    delay_ns: u64 = NONE64
    if tables.topology.synchronised == 0:
        delay_ns = delay_without_clock(tables, hop, following, link, False)
    elif is_known(following):
        delay_ns = delay_by_stamps(tables, hop, following, link, False)
    if delay_ns == NONE64 and hop.latency_ns != NONE32:
        delay_ns = as_u64(hop.latency_ns) + tables.topology.links[as_u64(link)].delay_ns
    return delay_ns


@kernel(inline=False)
def take_delay(  # noqa: PLR0917 - kernels have no keywords
    tables: TelemetryTables, key: Array[u64], hop: PendingHop, following: PendingHop, link: u32, figures: bool
) -> None:
    """Make a sample of a link with its delay, if that is known, and with the hop's figures if they are asked for."""
    delay_ns: u64 = NONE64
    source: u32 = HOP_LATENCY
    if tables.topology.synchronised != 0:
        if is_known(following):
            delay_ns = delay_by_stamps(tables, hop, following, link, True)
            source = STAMPS if delay_ns != NONE64 else HOP_LATENCY
    elif figures or hop.latency_ns != NONE32:
        delay_ns = delay_without_clock(tables, hop, following, link, True)
        source = CORRECTED_STAMPS if delay_ns != NONE64 else HOP_LATENCY
    if source != HOP_LATENCY and is_probe(tables, key):
        source = PROBES
    if delay_ns == NONE64 and hop.latency_ns != NONE32:
        delay_ns = as_u64(hop.latency_ns) + tables.topology.links[as_u64(link)].delay_ns
    received_ns: u64 = max(hop.received_ns, following.received_ns) if is_known(following) else hop.received_ns
    if figures:
        add_hop(tables, hop, link, received_ns, delay_ns, source)
    elif delay_ns != NONE64:
        time_ns: u64 = hop.arrived_ns if hop.left_ns == NONE64 else hop.left_ns
        add_sample(tables, link, hop.switch, time_ns, received_ns, delay_ns, source, NONE32, NONE32, NONE32)


@kernel(inline=True)
def add_hop(  # noqa: PLR0917 - kernels have no keywords
    tables: TelemetryTables, hop: PendingHop, link: u32, received_ns: u64, delay_ns: u64, source: u32
) -> None:
    """Make a sample of a hop's figures."""
    time_ns: u64 = hop.arrived_ns if hop.left_ns == NONE64 else hop.left_ns
    add_sample(tables, link, hop.switch, time_ns, received_ns, delay_ns, source, hop.queue, hop.tx_bytes, hop.buffer)


@kernel(inline=True)
def counted_link(tables: TelemetryTables, key: Array[u64], hop: PendingHop, following: PendingHop) -> u32:
    """Return a hop's egress link, or NONE32, which is counted."""
    link: u32 = egress_link(tables, key, hop, following)
    if link == NONE32:
        tables.counts.unknown_node += as_u64(hop.switch == NONE32)
        tables.counts.unknown_port += as_u64(hop.switch != NONE32)
    return link


@kernel(inline=True)
def sample_hop(tables: TelemetryTables, key: Array[u64], hop: PendingHop, following: PendingHop) -> None:
    """Take all figures of a hop's egress link, given the next hop or that none will be known."""
    link: u32 = counted_link(tables, key, hop, following)
    if link != NONE32:
        take_delay(tables, key, hop, following, link, True)


@kernel(inline=True)
def sample_figures(tables: TelemetryTables, key: Array[u64], hop: PendingHop) -> None:
    """Take the figures of a hop's egress link except the delay, which is not known yet."""
    link: u32 = counted_link(tables, key, hop, view(PendingHop, 0))
    if link != NONE32:
        add_hop(tables, hop, link, hop.received_ns, NONE64, HOP_LATENCY)


@kernel(inline=True)
def sample_delay(tables: TelemetryTables, key: Array[u64], hop: PendingHop, following: PendingHop) -> None:
    """Take only the delay of a hop whose figures have been taken."""
    link: u32 = egress_link(tables, key, hop, following)
    if link != NONE32:
        take_delay(tables, key, hop, following, link, False)


# ---- abandoned packets


@kernel(inline=False)
def end_packet(tables: TelemetryTables, table: PendingTable, cell: PendingCell) -> None:
    """Take the delays for which no stamp has come, of an abandoned packet."""
    tables.pending.incomplete += 1
    number: u32 = cell.first
    while number != 0:
        hop = hop_of(table, number)
        if hop.waiting != 0:
            sample_delay(tables, reference(cell.key[0]), hop, view(PendingHop, 0))
        number = hop.following


# ---- fates of packets


@kernel(inline=False)
def count_fate(tables: TelemetryTables, link: u32, outcome: u32, at_ns: u64) -> None:
    """Count a packet's fate on a link; if it is older than the ring, only a loss."""
    losses = tables.losses
    slot: u64 = at_ns // losses.slot_ns + 1
    index: u64 = as_u64(link) * losses.ring + (slot & (losses.ring - 1))
    cell = losses.fates[index]
    if cell.slot != slot:
        if slot < cell.slot:
            if outcome == MISSING or outcome == DROPPED or outcome == UNMARKED:  # noqa: PLR1714, SIM109 - no `in` here
                losses.lost_early[link] += 1
            return
        losses.lost_early[link] += cell.missing + cell.dropped + cell.unmarked
        cell.slot = slot
        cell.passed = 0
        cell.missing = 0
        cell.unannounced = 0
        cell.dropped = 0
        cell.unmarked = 0
        cell.others = 0
    if cell.noted == 0:
        cell.noted = 1
        losses.noted[losses.noted_count] = as_u32(index)
        losses.noted_count += 1
    if outcome == PASSED:
        cell.passed += 1
    elif outcome == MISSING:
        cell.missing += 1
    elif outcome == UNANNOUNCED:
        cell.unannounced += 1
    elif outcome == DROPPED:
        cell.dropped += 1
    elif outcome == UNMARKED:
        cell.unmarked += 1
    else:
        cell.others += 1


@kernel(inline=True)
def is_counted(hop: PendingHop) -> bool:
    """Return whether each hop reports each packet of this kind."""
    return hop.kind == HOP_BY_HOP or hop.kind == MX  # noqa: PLR1714 - kernels have no `in`


@kernel(inline=True)
def is_heard(table: PendingTable, first: u32, switch: u32) -> bool:
    """Return whether a switch is among the hops of a list."""
    number: u32 = first
    while number != 0:
        hop = hop_of(table, number)
        if hop.switch == switch:
            return True
        number = hop.following
    return False


@kernel(inline=False)
def take_fates(tables: TelemetryTables, table: PendingTable, cell: PendingCell) -> None:
    """Count the fates on links between switches that all of a packet's hops show."""
    at_ns: u64 = NONE64
    number: u32 = cell.first
    while number != 0:
        hop = hop_of(table, number)
        if not is_counted(hop):
            return
        at_ns = min(at_ns, hop.received_ns)
        number = hop.following
    number = cell.first
    while number != 0:
        hop = hop_of(table, number)
        link: u32 = egress_link(tables, reference(cell.key[0]), hop, view(PendingHop, 0))
        head: u32 = NONE32 if link == NONE32 else tables.topology.links[as_u64(link)].head_switch
        if head != NONE32:
            count_fate(tables, link, PASSED if is_heard(table, cell.first, head) else MISSING, at_ns)
        if hop.came_by != NONE32:
            tail: u32 = tables.topology.links[as_u64(hop.came_by)].head_switch
            if tail != NONE32 and not is_heard(table, cell.first, tail):
                count_fate(tables, tables.topology.link_ends[as_u64(hop.came_by)].back, UNANNOUNCED, at_ns)
        number = hop.following


@kernel(inline=False)
def take_fates_of_path(tables: TelemetryTables) -> None:
    """Count a packet on all links between the switches of its path."""
    pending = tables.pending
    at_ns: u64 = NONE64
    i: u64 = 0
    while i < pending.path_hops:
        hop = view(PendingHop, pending.path[i])
        if not is_counted(hop):
            return
        at_ns = min(at_ns, hop.received_ns)
        i += 1
    i = 0
    while i + 1 < pending.path_hops:
        hop = view(PendingHop, pending.path[i])
        count_fate(tables, hop.link, PASSED, at_ns)
        i += 1


@kernel(inline=False)
def give_up(tables: TelemetryTables, table: PendingTable) -> None:
    """Abandon the packets that are too many or have waited too long."""
    while table.count != 0:
        cell = cell_of(table, table.oldest)
        if not has_too_many(table) and cell.begun_ns + tables.pending.wait_ns >= table.newest_ns:
            return
        take_fates(tables, table, cell)
        end_packet(tables, table, cell)
        remove_cell(table, table.oldest)


# ---- paths


@kernel(inline=True)
def path_hop(tables: TelemetryTables, position: u64) -> PendingHop:
    """Return a hop of the path, null behind its end."""
    return view(PendingHop, tables.pending.path[position] if position < tables.pending.path_hops else 0)


@kernel(inline=True)
def path_delay(tables: TelemetryTables, key: Array[u64]) -> u64:
    """Return the sum of the delays of the path's egress links, NONE64 if it is unknown."""
    total_ns: u64 = 0
    i: u64 = 0
    while i < tables.pending.path_hops:
        hop = path_hop(tables, i)
        following = path_hop(tables, i + 1)
        link: u32 = egress_link(tables, key, hop, following)
        if link == NONE32 or hop.identity != path_hop(tables, 0).identity:
            return NONE64
        delay_ns: u64 = whole_link_delay(tables, hop, following, link)
        if delay_ns == NONE64:
            return NONE64
        total_ns += delay_ns
        i += 1
    return total_ns


@kernel(inline=True)
def is_taken_path(tables: TelemetryTables, key: Array[u64], flow_hash: u64) -> bool:
    """Return whether the path over `switches` of `pending` is the flow's, which was looked up once."""
    pending = tables.pending
    cell = find_flow(tables, key, flow_hash)
    if address(cell) == 0 or cell.route == NONE32:
        return False
    route: u64 = as_u64(cell.route)
    return same_path(tables.routes.cells[route], nodes_of(tables, route), pending.switches, pending.path_hops)


@kernel(inline=False)
def is_path_of(tables: TelemetryTables, key: Array[u64]) -> bool:
    """Return whether a flow's packet can have gone over `switches` of `pending`."""
    source: u32 = find_host(tables, key[4] & 0xF, key[0], key[1])
    target: u32 = find_host(tables, key[4] & 0xF, key[2], key[3])
    return is_path(tables, source, target, tables.pending.switches, tables.pending.path_hops)


@kernel(inline=False)
def take_joined_path(tables: TelemetryTables, key: Array[u64], flow_hash: u64) -> None:
    """Take the hops in `path` of `pending` as a path: of one packet, or of a flow as several packets show it."""
    pending = tables.pending
    received_ns: u64 = 0
    i: u64 = 0
    while i < pending.path_hops:
        hop = path_hop(tables, i)
        if hop.switch == NONE32:
            return
        pending.switches[i] = hop.switch
        received_ns = max(received_ns, hop.received_ns)
        i += 1
    if not is_taken_path(tables, key, flow_hash) and not is_path_of(tables, key):
        tables.counts.not_adjacent += 1
        return
    delay_ns: u64 = path_delay(tables, key)
    now_ns: u64 = tables.batch.now_ns
    if received_ns != now_ns:
        # The last hop is not among these: look up their slot rather than use the current one.
        begin_batch(tables, received_ns)
        tables.batch.slot_number += 1
        tables.batch.slot_begins_ns = NONE64
    cell = touch_flow(tables, key, flow_hash, received_ns, 0)
    take_flow_path(tables, cell, pending.switches, pending.path_hops, path_hop(tables, 0).arrived_ns, delay_ns)
    if received_ns != now_ns:
        begin_batch(tables, now_ns)
