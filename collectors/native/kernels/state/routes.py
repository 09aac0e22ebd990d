"""Paths over the switches, each with a window, and the path that a flow takes."""

from __future__ import annotations

from collectors.native.kernels.decode.flow_key import hash_key
from collectors.native.kernels.decode.hops import egress_of, name_of
from collectors.native.kernels.state.flows import is_passing, touch_flow
from collectors.native.kernels.state.stamps import runs_ahead
from collectors.native.kernels.state.switches import link_of_pair
from collectors.native.kernels.state.windows import add_to_window, calm_slot, clear_window, count_delay, settle_counts
from collectors.native.structures import (
    MOST_SWITCHES,
    NONE32,
    NONE64,
    WINDOW_SLOTS,
    FlowCell,
    Hop,
    RouteCell,
    RouteHop,
)
from collectors.native.tables import TelemetryTables
from dataplane.native import Array, as_u32, as_u64, kernel, offset, u32, u64
from dataplane.native.hashing import finish_high, part
from dataplane.native.open_addressing import LOW32, home_of, next_alike, put_entry

SWEEP_NS = 100_000_000
"""`collectors.state.accumulator.SWEEP_NS`."""
STAMPS = 4
"""The best place in `collectors.statistics.window.SOURCES`."""
_FIRST = 0x9E37_79B9_7F4A_7C15
_SECOND = 0xD6E8_FEB8_6659_FD93


@kernel(inline=False)
def find_host(tables: TelemetryTables, version: u64, high: u64, low: u64) -> u32:
    """Return the number of the host that has an address, or NONE32."""
    topology = tables.topology
    mixed: u64 = (low ^ (high * _SECOND)) * _FIRST
    index: u64 = home_of(mixed, topology.address_mask)
    while True:
        index = next_alike(topology.address_index, topology.address_mask, index, mixed)
        number: u64 = topology.address_index[index] & LOW32
        if number == 0:
            return NONE32
        entry = topology.addresses[number - 1]
        if entry.version == version and entry.high == high and entry.low == low:
            return as_u32(entry.host)
        index = (index + 1) & topology.address_mask


@kernel(inline=True)
def same_path(route: RouteCell, nodes: Array[u32], switches: Array[u32], count: u64) -> bool:
    """Return whether a route leads over these switches."""
    if as_u64(route.length) != count:
        return False
    i: u64 = 0
    while i < count:
        if nodes[i] != switches[i]:
            return False
        i += 1
    return True


@kernel(inline=True)
def nodes_of(tables: TelemetryTables, route: u64) -> Array[u32]:
    """Return the switches of a route."""
    return offset(tables.routes.nodes, route * MOST_SWITCHES)


@kernel(inline=True)
def hops_of(tables: TelemetryTables, route: u32) -> Array[RouteHop]:
    """Return the hops by which a route's packets are recognised quickly."""
    return offset(tables.routes.hops, as_u64(route) * MOST_SWITCHES)


@kernel(inline=True)
def same_hops(tables: TelemetryTables, route: u32, hops: Array[Hop], count: u32) -> bool:
    """Return whether a packet's hops are a route's reference hops."""
    route_hops = hops_of(tables, route)
    if tables.routes.cells[as_u64(route)].length != count or route_hops[0].link == NONE32:
        return False
    i: u64 = 0
    while i < as_u64(count):
        if route_hops[i].name != name_of(hops[i]):
            return False
        i += 1
    return True


@kernel(inline=False)
def recall_hops(tables: TelemetryTables, route: u32, hops: Array[Hop], count: u64) -> None:
    """Note the switches and links of a route's hops."""
    route_hops = hops_of(tables, route)
    i: u64 = 0
    while i < count:
        hops[i].switch = route_hops[i].switch
        hops[i].link = route_hops[i].link
        i += 1


@kernel(inline=False)
def learn_hops(tables: TelemetryTables, route: u32, hops: Array[Hop], count: u64) -> None:
    """Make a packet's hops the route's reference hops, if each one's egress link leads to the next.

    Egress ports of more than 16 bits are stored, too, but never match.
    """
    tables.routes.lessons += 1
    route_hops = hops_of(tables, route)
    route_hops[0].link = NONE32
    i: u64 = 0
    while i < count:
        if hops[i].link == NONE32:
            return
        if i + 1 < count and tables.topology.links[as_u64(hops[i].link)].head_switch != hops[i + 1].switch:
            return
        i += 1
    i = 0
    while i < count:
        route_hops[i].name = as_u64(egress_of(hops[i])) << 32 | as_u64(hops[i].node_id)
        route_hops[i].switch = hops[i].switch
        route_hops[i].link = hops[i].link
        i += 1


@kernel(inline=False)
def find_route(tables: TelemetryTables, switches: Array[u32], count: u64) -> u32:
    """Return the route over these switches, a new one if needed; NONE32 (counted) if there is no room."""
    state: u64 = 0
    i: u64 = 0
    while i < count:
        state += part(as_u64(switches[i]), i)
        i += 1
    mixed: u64 = finish_high(state)
    routes = tables.routes
    index: u64 = home_of(mixed, routes.mask)
    while True:
        index = next_alike(routes.index, routes.mask, index, mixed)
        number: u64 = routes.index[index] & LOW32
        if number == 0:
            return add_route(tables, switches, count, mixed)
        if same_path(routes.cells[number - 1], nodes_of(tables, number - 1), switches, count):
            return as_u32(number) - 1
        index = (index + 1) & routes.mask


@kernel(inline=False)
def add_route(tables: TelemetryTables, switches: Array[u32], count: u64, mixed: u64) -> u32:
    """Make a route; if there is no room, free some first."""
    if count > MOST_SWITCHES:
        tables.counts.routes_full += 1
        return NONE32
    if (
        tables.routes.count == tables.routes.most
        and tables.routes.free_count == 0
        and tables.batch.now_ns >= tables.routes.next_sweep_ns
    ):
        tables.routes.next_sweep_ns = tables.batch.now_ns + SWEEP_NS
        sweep(tables)
    number: u64 = tables.routes.count
    if tables.routes.free_count > 0:
        tables.routes.free_count -= 1
        number = as_u64(tables.routes.free[tables.routes.free_count])
    elif number == tables.routes.most:
        tables.counts.routes_full += 1
        return NONE32
    else:
        tables.routes.count += 1
    route = tables.routes.cells[number]
    route.hash = mixed
    route.length = as_u32(count)
    nodes = nodes_of(tables, number)
    i: u64 = 0
    while i < count:
        nodes[i] = switches[i]
        i += 1
    tables.routes.lessons += 1
    hops_of(tables, as_u32(number))[0].link = NONE32
    clear_window(tables, tables.topology.link_count + number)
    enter(tables, number)
    return as_u32(number)


@kernel
def enter(tables: TelemetryTables, number: u64) -> None:
    """Put a route into the index."""
    put_entry(tables.routes.index, tables.routes.mask, tables.routes.cells[number].hash, number + 1)


@kernel(inline=False)
def sweep(tables: TelemetryTables) -> None:
    """Free the routes that no flow uses any more."""
    number: u64 = 0
    while number < tables.routes.count:
        tables.routes.cells[number].used = 0
        number += 1
    i: u64 = 0
    while i < tables.flows.count:
        if tables.flows.cells[i].route != NONE32:
            tables.routes.cells[as_u64(tables.flows.cells[i].route)].used = 1
        i += 1
    index: u64 = 0
    while index <= tables.routes.mask:
        tables.routes.index[index] = 0
        index += 1
    number = 0
    while number < tables.routes.count:
        if tables.routes.cells[number].used != 0:
            enter(tables, number)
        else:
            tables.routes.free[tables.routes.free_count] = as_u32(number)
            tables.routes.free_count += 1
        number += 1


@kernel(inline=True)
def take_flow_path(  # noqa: PLR0917 - kernels have no keywords
    tables: TelemetryTables, cell: FlowCell, switches: Array[u32], count: u64, source_ns: u64, delay_ns: u64
) -> None:
    """Take the whole path of one packet of a flow, with all switches known; count it if that is impossible."""
    if is_passing(tables, cell):
        return
    number: u32 = cell.route
    if number == NONE32 or not same_path(
        tables.routes.cells[as_u64(number)], nodes_of(tables, as_u64(number)), switches, count
    ):
        if not is_possible(tables, cell, switches, count):
            tables.counts.not_adjacent += 1
            return
        number = find_route(tables, switches, count)
        if number == NONE32:
            return
    take_route(tables, cell, number, switches[0], source_ns, delay_ns)


@kernel(inline=True)
def take_route(  # noqa: PLR0917 - kernels have no keywords
    tables: TelemetryTables, cell: FlowCell, number: u32, first: u32, source_ns: u64, delay_ns: u64
) -> None:
    """Take one packet of a flow that went a route, which is the flow's path unless the packet is an old one."""
    if delay_ns != NONE64:
        row: u64 = tables.topology.link_count + as_u64(number)
        slot = calm_slot(tables, row)
        if (
            slot.number == tables.batch.slot_number + 1
            and slot.source == STAMPS
            and tables.batch.now_ns >= tables.batch.slot_begins_ns
        ):
            slot.newest_ns = max(slot.newest_ns, tables.batch.now_ns)
            count_delay(tables, row, slot, tables.batch.slot_number & (WINDOW_SLOTS - 1), delay_ns)
        else:
            add_path_delay(tables, row, delay_ns)
    if cell.route != NONE32 and is_older(tables, cell, first, source_ns):
        return
    cell.route = number
    cell.path_ns = tables.batch.now_ns
    # An untrusted stamp must not make later packets look older.
    cell.source_ns = NONE64 if is_ahead(tables, first, source_ns) else source_ns


@kernel(inline=True)
def is_ahead(tables: TelemetryTables, switch: u32, stamp_ns: u64) -> bool:
    """Return whether a stamp of now is further ahead than possible; unspecified without a stamp."""
    clock = tables.clocks.switches[switch]
    return clock.agreeing != 0 and runs_ahead(tables, clock, stamp_ns, tables.batch.now_ns)


@kernel(inline=False)
def add_path_delay(tables: TelemetryTables, row: u64, delay_ns: u64) -> None:
    """Add a delay of now to the window of a path, whatever the window holds."""
    add_to_window(tables, row, tables.batch.now_ns, delay_ns, STAMPS, NONE32, NONE32, NONE32)


@kernel(inline=False)
def is_possible(tables: TelemetryTables, cell: FlowCell, switches: Array[u32], count: u64) -> bool:
    """Return whether a packet of a flow can have gone over these switches; note the flow's hosts then."""
    version: u64 = cell.key[4] & 0xF
    source: u32 = find_host(tables, version, cell.key[0], cell.key[1])
    target: u32 = find_host(tables, version, cell.key[2], cell.key[3])
    if not is_path(tables, source, target, switches, count):
        return False
    cell.source_host = source
    cell.target_host = target
    return True


@kernel(inline=False)
def is_path(tables: TelemetryTables, source: u32, target: u32, switches: Array[u32], count: u64) -> bool:
    """Return whether links lead from the source host, where known, over the switches to the destination host."""
    if source != NONE32 and tables.topology.host_switches[as_u64(source)] != switches[0]:
        return False
    if target != NONE32 and tables.topology.host_switches[as_u64(target)] != switches[count - 1]:
        return False
    i: u64 = 1
    while i < count:
        if link_of_pair(tables, switches[i - 1], switches[i]) == NONE32:
            return False
        i += 1
    return True


@kernel(inline=True)
def is_older(tables: TelemetryTables, cell: FlowCell, first: u32, source_ns: u64) -> bool:
    """Return whether a packet left its source's switch before the packet that showed the flow's path."""
    if cell.source_ns == NONE64 or source_ns >= cell.source_ns:  # as NONE64 itself is
        return False
    known_first: u32 = nodes_of(tables, as_u64(cell.route))[0]
    return known_first == first and cell.source_ns - source_ns <= tables.limits.stale_ns


@kernel
def take_path(  # noqa: PLR0917 - kernels have no keywords
    tables: TelemetryTables, key: Array[u64], switches: Array[u32], count: u64, source_ns: u64, delay_ns: u64
) -> None:
    """Take the whole path of one packet that others have put together."""
    take_flow_path(
        tables, touch_flow(tables, key, hash_key(key), tables.batch.now_ns, 0), switches, count, source_ns, delay_ns
    )
    settle_counts(tables)
