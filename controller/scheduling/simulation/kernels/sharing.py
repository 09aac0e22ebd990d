"""Max-min fair rates of flows over links, recomputed only where something has changed.

Progressive filling: the rates of all flows rise together; a flow is fixed when a link on its path is full. So
links are processed in the order of the level at which they are full, which only rises as flows are fixed: a heap of
levels, each re-evaluated when it is the smallest.
"""

from __future__ import annotations

from controller.network.algorithms.kernels.heaps import drop_first, push
from controller.network.algorithms.structures import NO_ENTRY
from controller.scheduling.simulation.kernels.structures import Flows, Links, Sharing
from controller.scheduling.simulation.units import MOST_BPS, MOST_SECONDS, NEVER, ONE_BITS, ROW_BITS
from dataplane.native import as_i64, as_u64, i64, kernel, u32, u64

_ROW_MASK = (1 << ROW_BITS) - 1


@kernel
def add_flow(net: Sharing, slot: u32, bits: i64, now_ns: i64) -> None:
    """Start a flow whose links and shares are in its slot; `settle` gives it a rate."""
    flows = net.flows
    start: u64 = as_u64(slot) * as_u64(flows.stride)
    for hop in range(flows.hops[slot]):
        node: u32 = slot * flows.stride + hop
        link: u32 = flows.link[start + as_u64(hop)]
        follower: u32 = net.links.first[link]
        flows.following[node] = follower
        flows.before[node] = NO_ENTRY
        if follower != NO_ENTRY:
            flows.before[follower] = node
        net.links.first[link] = node
        note_change(net.links, link)
    flows.rate_bps[slot] = 0
    flows.left_bits[slot] = bits
    flows.since_ns[slot] = now_ns
    flows.finish_ns[slot] = NEVER
    flows.place[slot] = flows.count
    flows.active[flows.count] = slot
    flows.count += 1


@kernel
def remove_flow(net: Sharing, slot: u32) -> None:
    """Remove a flow, finished or not, and free its slot."""
    flows = net.flows
    start: u64 = as_u64(slot) * as_u64(flows.stride)
    for hop in range(flows.hops[slot]):
        node: u32 = slot * flows.stride + hop
        link: u32 = flows.link[start + as_u64(hop)]
        follower: u32 = flows.following[node]
        previous: u32 = flows.before[node]
        if follower != NO_ENTRY:
            flows.before[follower] = previous
        if previous != NO_ENTRY:
            flows.following[previous] = follower
        else:
            net.links.first[link] = follower
        note_change(net.links, link)
    flows.count -= 1
    # The last flow fills the gap, so that the list stays dense.
    last: u32 = flows.active[flows.count]
    flows.active[flows.place[slot]] = last
    flows.place[last] = flows.place[slot]


@kernel
def set_capacity(net: Sharing, link: u32, capacity_bps: i64) -> None:
    """Set the capacity of a link."""
    net.links.capacity_bps[link] = capacity_bps
    note_change(net.links, link)


@kernel(inline=True)
def note_change(links: Links, link: u32) -> None:
    """Mark a link's flows for recomputation."""
    if links.is_changed[link] == 0:
        links.is_changed[link] = 1
        links.changed[links.changes] = link
        links.changes += 1


@kernel
def settle(net: Sharing, now_ns: i64) -> u32:
    """Recompute the rates of all flows connected to changed ones by shared links; return their number.

    Flows whose rate stays the same keep their finishing time, to the nanosecond.
    """
    links = net.links
    flows = net.flows
    net.settlings += 1
    count: u32 = gather(net)
    for index in range(count):
        crossed: u32 = links.listed[index]
        if links.weight[crossed] != 0:
            push(net.heap, level_key(links, crossed), crossed)
    while net.heap.size != 0:
        full: u32 = net.heap.switches[0]
        key: u64 = net.heap.keys[0]
        drop_first(net.heap)
        if links.weight[full] != 0:
            now_key: u64 = level_key(links, full)
            if now_key != key:
                push(net.heap, now_key, full)
            else:
                fix_flows(net, full, as_i64(key >> ROW_BITS), now_ns)
    affected: u32 = flows.listed[0]
    return affected


@kernel(inline=True)
def level_key(links: Links, link: u32) -> u64:
    """Return the flow rate at which a link is full, and its number: the order in which links are processed."""
    level: i64 = min(links.left[link] // links.weight[link], MOST_BPS)
    return (as_u64(level) << ROW_BITS) | as_u64(link)


@kernel(inline=True)
def gather(net: Sharing) -> u32:
    """List the links of the connected components with changes, with their flows' shares; return their number."""
    links = net.links
    flows = net.flows
    number: u64 = net.settlings
    count: u32 = 0
    affected: u32 = 0
    for index in range(links.changes):
        changed: u32 = links.changed[index]
        links.is_changed[changed] = 0
        count = list_link(links, changed, number, count)
    links.changes = 0
    done: u32 = 0
    while done < count:
        link: u32 = links.listed[done]
        done += 1
        node: u32 = links.first[link]
        while node != NO_ENTRY:
            links.weight[link] += flows.share[node]
            slot: u32 = node // flows.stride
            if flows.seen[slot] != number:
                flows.seen[slot] = number
                affected += 1
                for hop in range(flows.hops[slot]):
                    count = list_link(links, flows.link[slot * flows.stride + hop], number, count)
            node = flows.following[node]
    flows.listed[0] = affected
    return count


@kernel(inline=True)
def list_link(links: Links, link: u32, number: u64, count: u32) -> u32:
    """List a link unless already listed; return the number of listed links."""
    listed: u32 = count
    if links.seen[link] != number:
        links.seen[link] = number
        links.weight[link] = 0
        links.left[link] = links.capacity_bps[link] << ONE_BITS
        links.listed[count] = link
        listed += 1
    return listed


@kernel(inline=True)
def fix_flows(net: Sharing, full: u32, level_bps: i64, now_ns: i64) -> None:
    """Fix all flows of a full link not fixed yet at its level, and subtract their rates from all their links."""
    links = net.links
    flows = net.flows
    node: u32 = links.first[full]
    while node != NO_ENTRY:
        slot: u32 = node // flows.stride
        if flows.fixed[slot] != net.settlings:
            flows.fixed[slot] = net.settlings
            for hop in range(flows.hops[slot]):
                index: u32 = slot * flows.stride + hop
                link: u32 = flows.link[index]
                links.weight[link] -= flows.share[index]
                links.left[link] -= level_bps * flows.share[index]
            if flows.rate_bps[slot] != level_bps:
                change_rate(flows, slot, level_bps, now_ns)
        node = flows.following[node]


@kernel(inline=True)
def change_rate(flows: Flows, slot: u32, rate_bps: i64, now_ns: i64) -> None:
    """Subtract the whole bits sent at the old rate, and compute when the rest will be sent, in whole nanoseconds."""
    elapsed: i64 = now_ns - flows.since_ns[slot]
    flows.left_bits[slot] = max(flows.left_bits[slot] - sent_bits(flows.rate_bps[slot], elapsed), 0)
    flows.since_ns[slot] = now_ns
    flows.rate_bps[slot] = rate_bps
    # Its end would lie beyond what 64 bits of nanoseconds can hold.
    if rate_bps == 0 or flows.left_bits[slot] // max(rate_bps, 1) >= MOST_SECONDS:
        flows.finish_ns[slot] = NEVER
    else:
        flows.finish_ns[slot] = now_ns + sending_ns(flows.left_bits[slot], rate_bps)


@kernel(inline=True)
def sent_bits(rate_bps: i64, elapsed_ns: i64) -> i64:
    """Return rate * time in bits, rounded down, in steps that do not overflow."""
    rest: i64 = elapsed_ns % 1000000000
    millis: i64 = rate_bps * (rest // 1000000)
    small: i64 = (millis % 1000) * 1000000 + rate_bps * (rest % 1000000)
    return rate_bps * (elapsed_ns // 1000000000) + millis // 1000 + small // 1000000000


@kernel(inline=True)
def sending_ns(bits: i64, rate_bps: i64) -> i64:
    """Return bits / rate in nanoseconds, rounded up, by long division."""
    rest: i64 = bits % rate_bps
    quotient: i64 = bits // rate_bps
    for _ in range(3):
        rest *= 1000
        quotient = quotient * 1000 + rest // rate_bps
        rest = rest % rate_bps
    if rest > 0:
        quotient += 1
    return quotient


@kernel
def first_to_finish(net: Sharing) -> u32:
    """Return the slot of the flow that finishes first, the lowest on a tie; NO_ENTRY if none will."""
    flows = net.flows
    best: u32 = NO_ENTRY
    least: i64 = NEVER
    for index in range(flows.count):
        slot: u32 = flows.active[index]
        if flows.finish_ns[slot] < least or (flows.finish_ns[slot] == least and least != NEVER and slot < best):
            best = slot
            least = flows.finish_ns[slot]
    return best
