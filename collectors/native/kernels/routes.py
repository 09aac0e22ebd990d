"""Ways through the switches, each with a window, and the way that a flow takes."""

from __future__ import annotations

from collectors.native.kernels.flows import hash_key, touch_flow
from collectors.native.kernels.hops import egress_of, name_of
from collectors.native.kernels.stamps import runs_ahead
from collectors.native.kernels.switches import link_of_pair
from collectors.native.kernels.windows import add_to_window, calm_slot, clear_window, count_delay, settle_counts
from collectors.native.structures import (
    MOST_SWITCHES,
    NONE32,
    NONE64,
    WINDOW_SLOTS,
    Fabric,
    FlowCell,
    Hop,
    RouteCell,
    RouteHop,
)
from dataplane.native import Array, as_u32, as_u64, kernel, offset, u32, u64

SWEEP_NS = 1_000_000_000
"""`collectors.state.accumulator.SWEEP_NS`."""
STAMPS = 4
"""The best place in `collectors.statistics.window.SOURCES`."""
_FIRST = 0x9E37_79B9_7F4A_7C15
_SECOND = 0xD6E8_FEB8_6659_FD93


@kernel(inline=False)
def find_host(fabric: Fabric, version: u64, high: u64, low: u64) -> u32:
    """Return the number of the host that has an address, or NONE32."""
    place: u64 = ((low ^ (high * _SECOND)) * _FIRST) >> 32 & fabric.host_mask
    while fabric.host_numbers[place] != NONE32:
        at: u64 = place * 3
        if fabric.host_keys[at] == version and fabric.host_keys[at + 1] == high and fabric.host_keys[at + 2] == low:
            return fabric.host_numbers[place]
        place = (place + 1) & fabric.host_mask
    return NONE32


@kernel(inline=True)
def same_way(route: RouteCell, nodes: Array[u32], switches: Array[u32], count: u64) -> bool:
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
def nodes_of(fabric: Fabric, route: u64) -> Array[u32]:
    """Return the switches of a route."""
    return offset(fabric.route_nodes, route * MOST_SWITCHES)


@kernel(inline=True)
def hops_of(fabric: Fabric, route: u32) -> Array[RouteHop]:
    """Return the hops by which a route's packets are told at once."""
    return offset(fabric.route_hops, as_u64(route) * MOST_SWITCHES)


@kernel(inline=True)
def same_hops(fabric: Fabric, route: u32, hops: Array[Hop], count: u32) -> bool:
    """Return whether a packet's hops are those that a route is known by."""
    known = hops_of(fabric, route)
    if fabric.routes[as_u64(route)].length != count or known[0].link == NONE32:
        return False
    i: u64 = 0
    while i < as_u64(count):
        if known[i].name != name_of(hops[i]):
            return False
        i += 1
    return True


@kernel(inline=False)
def recall_hops(fabric: Fabric, route: u32, hops: Array[Hop], count: u64) -> None:
    """Note the switches and links of a route's hops."""
    known = hops_of(fabric, route)
    i: u64 = 0
    while i < count:
        hops[i].switch = known[i].switch
        hops[i].link = known[i].link
        i += 1


@kernel(inline=False)
def learn_hops(fabric: Fabric, route: u32, hops: Array[Hop], count: u64) -> None:
    """Know a route by a packet's hops from now on, if each one's egress link leads to the next.

    Egress ports of more than 16 bits are known, too, but never found the same.
    """
    fabric.lessons += 1
    known = hops_of(fabric, route)
    known[0].link = NONE32
    i: u64 = 0
    while i < count:
        if hops[i].link == NONE32:
            return
        if i + 1 < count and fabric.links[as_u64(hops[i].link)].head_switch != hops[i + 1].switch:
            return
        i += 1
    i = 0
    while i < count:
        known[i].name = as_u64(egress_of(hops[i])) << 32 | as_u64(hops[i].node_id)
        known[i].switch = hops[i].switch
        known[i].link = hops[i].link
        i += 1


@kernel(inline=False)
def find_route(fabric: Fabric, switches: Array[u32], count: u64) -> u32:
    """Return the route over these switches, a new one if there is none yet; NONE32 (counted) where there is no room."""
    mixed: u64 = count
    i: u64 = 0
    while i < count:
        mixed = (mixed ^ as_u64(switches[i])) * _FIRST
        mixed ^= mixed >> 31
        i += 1
    place: u64 = mixed & fabric.route_mask
    while fabric.route_index[place] != 0:
        number: u64 = as_u64(fabric.route_index[place]) - 1
        if fabric.routes[number].hash == mixed and same_way(
            fabric.routes[number], nodes_of(fabric, number), switches, count
        ):
            return as_u32(number)
        place = (place + 1) & fabric.route_mask
    return add_route(fabric, switches, count, mixed)


@kernel(inline=False)
def add_route(fabric: Fabric, switches: Array[u32], count: u64, mixed: u64) -> u32:
    """Make a route; where there is no room, look for some first."""
    if count > MOST_SWITCHES:
        fabric.routes_full += 1
        return NONE32
    if fabric.route_count == fabric.route_most and fabric.free_count == 0 and fabric.now_ns >= fabric.next_sweep_ns:
        fabric.next_sweep_ns = fabric.now_ns + SWEEP_NS
        sweep(fabric)
    number: u64 = fabric.route_count
    if fabric.free_count > 0:
        fabric.free_count -= 1
        number = as_u64(fabric.free_routes[fabric.free_count])
    elif number == fabric.route_most:
        fabric.routes_full += 1
        return NONE32
    else:
        fabric.route_count += 1
    route = fabric.routes[number]
    route.hash = mixed
    route.length = as_u32(count)
    nodes = nodes_of(fabric, number)
    i: u64 = 0
    while i < count:
        nodes[i] = switches[i]
        i += 1
    fabric.lessons += 1
    hops_of(fabric, as_u32(number))[0].link = NONE32
    clear_window(fabric, fabric.link_count + number)
    enter(fabric, number)
    return as_u32(number)


@kernel
def enter(fabric: Fabric, number: u64) -> None:
    """Put a route into the index."""
    place: u64 = fabric.routes[number].hash & fabric.route_mask
    while fabric.route_index[place] != 0:
        place = (place + 1) & fabric.route_mask
    fabric.route_index[place] = as_u32(number) + 1


@kernel(inline=False)
def sweep(fabric: Fabric) -> None:
    """Free the routes that no flow takes any more."""
    number: u64 = 0
    while number < fabric.route_count:
        fabric.routes[number].used = 0
        number += 1
    i: u64 = 0
    while i < fabric.flow_count:
        if fabric.flows[i].route != NONE32:
            fabric.routes[as_u64(fabric.flows[i].route)].used = 1
        i += 1
    place: u64 = 0
    while place <= fabric.route_mask:
        fabric.route_index[place] = 0
        place += 1
    number = 0
    while number < fabric.route_count:
        if fabric.routes[number].used != 0:
            enter(fabric, number)
        else:
            fabric.free_routes[fabric.free_count] = as_u32(number)
            fabric.free_count += 1
        number += 1


@kernel(inline=True)
def take_way(  # noqa: PLR0917 - kernels have no keywords
    fabric: Fabric, cell: FlowCell, switches: Array[u32], count: u64, source_ns: u64, delay_ns: u64
) -> None:
    """Take the whole way of one packet of a flow, all of its switches known; one that cannot be is counted."""
    number: u32 = cell.route
    if number == NONE32 or not same_way(
        fabric.routes[as_u64(number)], nodes_of(fabric, as_u64(number)), switches, count
    ):
        if not is_possible(fabric, cell, switches, count):
            fabric.not_adjacent += 1
            return
        number = find_route(fabric, switches, count)
        if number == NONE32:
            return
    take_route(fabric, cell, number, switches[0], source_ns, delay_ns)


@kernel(inline=True)
def take_route(  # noqa: PLR0917 - kernels have no keywords
    fabric: Fabric, cell: FlowCell, number: u32, first: u32, source_ns: u64, delay_ns: u64
) -> None:
    """Take one packet of a flow that went a route, which is the flow's path unless the packet is an old one."""
    if delay_ns != NONE64:
        place: u64 = fabric.link_count + as_u64(number)
        slot = calm_slot(fabric, place)
        if slot.number == fabric.slot_number + 1 and slot.source == STAMPS and fabric.now_ns >= fabric.slot_begins_ns:
            slot.newest_ns = max(slot.newest_ns, fabric.now_ns)
            count_delay(fabric, place, slot, fabric.slot_number & (WINDOW_SLOTS - 1), delay_ns)
        else:
            add_way_delay(fabric, place, delay_ns)
    if cell.route != NONE32 and is_older(fabric, cell, first, source_ns):
        return
    cell.route = number
    cell.path_ns = fabric.now_ns
    # A stamp that nobody believes must not make those that follow older.
    cell.source_ns = NONE64 if is_ahead(fabric, first, source_ns) else source_ns


@kernel(inline=True)
def is_ahead(fabric: Fabric, switch: u32, stamp_ns: u64) -> bool:
    """Return whether a stamp of now is further ahead than it can be; of one that is none, anything."""
    clock = fabric.switch_clocks[switch]
    return clock.known != 0 and runs_ahead(fabric, clock, stamp_ns, fabric.now_ns)


@kernel(inline=False)
def add_way_delay(fabric: Fabric, place: u64, delay_ns: u64) -> None:
    """Add a delay of now to the window of a way, whatever the window holds."""
    add_to_window(fabric, place, fabric.now_ns, delay_ns, STAMPS, NONE32, NONE32, NONE32)


@kernel(inline=False)
def is_possible(fabric: Fabric, cell: FlowCell, switches: Array[u32], count: u64) -> bool:
    """Return whether a packet of a flow can have gone over these switches; note the flow's hosts then."""
    version: u64 = cell.key[4] & 0xF
    source: u32 = find_host(fabric, version, cell.key[0], cell.key[1])
    target: u32 = find_host(fabric, version, cell.key[2], cell.key[3])
    if not is_way(fabric, source, target, switches, count):
        return False
    cell.source_host = source
    cell.target_host = target
    return True


@kernel(inline=False)
def is_way(fabric: Fabric, source: u32, target: u32, switches: Array[u32], count: u64) -> bool:
    """Return whether links lead from the source host, where known, over the switches to the destination host."""
    if source != NONE32 and fabric.host_switches[as_u64(source)] != switches[0]:
        return False
    if target != NONE32 and fabric.host_switches[as_u64(target)] != switches[count - 1]:
        return False
    i: u64 = 1
    while i < count:
        if link_of_pair(fabric, switches[i - 1], switches[i]) == NONE32:
            return False
        i += 1
    return True


@kernel(inline=True)
def is_older(fabric: Fabric, cell: FlowCell, first: u32, source_ns: u64) -> bool:
    """Return whether a packet left its source's switch before the one that the flow's path is known by."""
    if cell.source_ns == NONE64 or source_ns >= cell.source_ns:  # as NONE64 itself is
        return False
    known_first: u32 = nodes_of(fabric, as_u64(cell.route))[0]
    return known_first == first and cell.source_ns - source_ns <= fabric.stale_ns


@kernel
def take_path(  # noqa: PLR0917 - kernels have no keywords
    fabric: Fabric, key: Array[u64], switches: Array[u32], count: u64, source_ns: u64, delay_ns: u64
) -> None:
    """Take the whole way of one packet that others have put together."""
    take_way(fabric, touch_flow(fabric, key, hash_key(key), fabric.now_ns), switches, count, source_ns, delay_ns)
    settle_counts(fabric)
