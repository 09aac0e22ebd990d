"""Costs of all pairs: from every switch to each destination, link by link backwards, then from host to host."""

from __future__ import annotations

from controller.cluster.cost_map.kernels.structures import Figures, Hosts
from controller.cluster.cost_map.values import NEVER_NS, PPB, UNLIMITED_BPS, UNREACHABLE_NS
from controller.network.algorithms.structures import Graph
from dataplane.native import Array, as_i64, as_u64, i64, kernel, offset, u8, u32, u64

ALL = 7
"""Bits of all three figures, measured on every link so far."""
AVAILABLE = 2
"""The bit of the bandwidth."""


@kernel
def sort_switches(graph: Graph, weights: Array[u32], target: u32, left: Array[u32], order: Array[u32]) -> u32:
    """Write a destination, then the other switches, each after all those that it sends to; return their number.

    Switches that send in a loop, or towards one, are left out. `weights` are by link, 0 for an unused one; `left` is
    scratch memory, one number per switch.
    """
    order[0] = target
    count: u32 = 1
    for switch in range(graph.switches):
        left[switch] = 0
        for link in range(graph.out_start[switch], graph.out_start[switch + 1]):
            if weights[link] != 0:
                left[switch] += 1
        if left[switch] == 0 and switch != target:
            order[count] = switch
            count += 1
    done: u32 = 0
    while done < count:
        reached: u32 = order[done]
        done += 1
        for index in range(graph.in_start[reached], graph.in_start[reached + 1]):
            entering: u32 = graph.in_link[index]
            behind: u32 = graph.tail[entering]
            if weights[entering] != 0 and behind != target:
                left[behind] -= 1
                if left[behind] == 0:
                    order[count] = behind
                    count += 1
    return count


@kernel
def fold(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph, weights: Array[u32], order: Array[u32], count: u32, links: Figures, costs: Figures, start: u64
) -> None:
    """Write the costs from all switches to the first of `order`, at `start` and after, in order of switches."""
    for switch in range(graph.switches):
        write(costs, start + as_u64(switch), UNREACHABLE_NS, 0, PPB, NEVER_NS, 0)
    write(costs, start + as_u64(order[0]), 0, UNLIMITED_BPS, 0, NEVER_NS, ALL)
    for index in range(1, count):
        fold_switch(graph, weights, order[index], links, costs, start)


@kernel
def refold(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph,
    weights: Array[u32],
    order: Array[u32],
    counts: Array[u32],
    destinations: u32,
    rows: Array[u32],
    changed: u32,
    reached: Array[u8],
    queue: Array[u32],
    links: Figures,
    costs: Figures,
) -> None:
    """Recompute the costs to all destinations for the switches whose paths use the changed links.

    `weights` are [destination, link], `order` and `costs` [destination, switch], `counts` by destination; `rows` are
    the `changed` links. `reached` and `queue` are scratch memory, one number per switch.
    """
    for destination in range(destinations):
        start: u64 = as_u64(destination) * as_u64(graph.switches)
        own: Array[u32] = offset(weights, as_u64(destination) * as_u64(graph.links))
        if reach(graph, own, rows, changed, reached, queue) != 0:
            for position in range(1, counts[destination]):
                switch: u32 = order[start + as_u64(position)]
                if reached[switch] != 0:
                    fold_switch(graph, own, switch, links, costs, start)


@kernel(inline=True)
def reach(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph, weights: Array[u32], rows: Array[u32], changed: u32, reached: Array[u8], queue: Array[u32]
) -> u32:
    """Mark the switches whose packets to a destination cross any of some links; return their number."""
    for switch in range(graph.switches):
        reached[switch] = 0
    count: u32 = 0
    for number in range(changed):
        link: u32 = rows[number]
        tail: u32 = graph.tail[link]
        if weights[link] != 0 and reached[tail] == 0:
            reached[tail] = 1
            queue[count] = tail
            count += 1
    done: u32 = 0
    while done < count:
        ahead: u32 = queue[done]
        done += 1
        for index in range(graph.in_start[ahead], graph.in_start[ahead + 1]):
            behind: u32 = graph.tail[graph.in_link[index]]
            if weights[graph.in_link[index]] != 0 and reached[behind] == 0:
                reached[behind] = 1
                queue[count] = behind
                count += 1
    return count


@kernel(inline=True)
def fold_switch(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph, weights: Array[u32], switch: u32, links: Figures, costs: Figures, start: u64
) -> None:
    """Write one switch's costs from those of the switches that it sends to."""
    total: i64 = 0
    arriving: i64 = 0
    delay: i64 = 0
    arrived: i64 = 0
    available: i64 = UNLIMITED_BPS
    age: i64 = NEVER_NS
    every: u8 = ALL
    any_measured: u8 = 0
    for link in range(graph.out_start[switch], graph.out_start[switch + 1]):
        if weights[link] != 0:
            weight: i64 = as_i64(weights[link])
            beyond: u64 = start + as_u64(graph.head[link])
            total += weight
            age = max(age, links.age_ns[link])
            age = max(age, costs.age_ns[beyond])
            every &= links.measured[link] & costs.measured[beyond]
            any_measured |= links.measured[link] | (costs.measured[beyond] >> 3)
            available = min(available, links.available_bps[link])
            available = min(available, costs.available_bps[beyond])
            if costs.delay_ns[beyond] != UNREACHABLE_NS:
                arriving += weight
                delay += weight * (links.delay_ns[link] + costs.delay_ns[beyond])
                # Divide before weighting: the product of two shares reaches 10^18, close to the limit of 64 bits.
                arrived += weight * ((PPB - links.loss_ppb[link]) * (PPB - costs.loss_ppb[beyond]) // PPB)
    if arriving != 0:
        measured: u8 = every | (any_measured << 3)
        write(costs, start + as_u64(switch), delay // arriving, available, PPB - arrived // total, age, measured)


@kernel(inline=True)
def write(  # noqa: PLR0917 - kernels have no keywords
    costs: Figures, row: u64, delay: i64, available: i64, loss: i64, age: i64, measured: u8
) -> None:
    """Write a pair's figures."""
    costs.delay_ns[row] = delay
    costs.available_bps[row] = available
    costs.loss_ppb[row] = loss
    costs.age_ns[row] = age
    costs.measured[row] = measured


@kernel
def expand(hosts: Hosts, between: Figures, costs: Figures, first: u32, last: u32) -> None:
    """Write the costs of pairs with sources from `first` up to `last`: a row per source, a column per destination."""
    for src in range(first, last):
        for dst in range(hosts.hosts):
            row: u64 = as_u64(src - first) * as_u64(hosts.hosts) + as_u64(dst)
            middle: u64 = as_u64(hosts.destination[dst]) * as_u64(hosts.switches) + as_u64(hosts.switch[src])
            join(hosts, between, costs, src, dst, middle, row)


@kernel(inline=True)
def join(  # noqa: PLR0917 - kernels have no keywords
    hosts: Hosts, between: Figures, costs: Figures, src: u32, dst: u32, middle: u64, row: u64
) -> None:
    """Write one pair's costs from those between two switches, at `middle`."""
    if src == dst:
        write(costs, row, 0, UNLIMITED_BPS, 0, NEVER_NS, ALL)
    elif between.delay_ns[middle] == UNREACHABLE_NS:
        write(costs, row, UNREACHABLE_NS, 0, PPB, NEVER_NS, 0)
    else:
        delay: i64 = hosts.up.delay_ns[src] + between.delay_ns[middle] + hosts.down.delay_ns[dst]
        ends: i64 = min(hosts.up.available_bps[src], hosts.down.available_bps[dst])
        available: i64 = min(ends, between.available_bps[middle])
        arrived: i64 = (PPB - hosts.up.loss_ppb[src]) * (PPB - between.loss_ppb[middle]) // PPB
        arrived = arrived * (PPB - hosts.down.loss_ppb[dst]) // PPB
        age: i64 = max(hosts.up.age_ns[src], hosts.down.age_ns[dst])
        age = max(age, between.age_ns[middle])
        any_measured: u8 = hosts.up.measured[src] | (between.measured[middle] >> 3) | hosts.down.measured[dst]
        every: u8 = between.measured[middle] & hosts.down.measured[dst] & ALL
        own: u8 = hosts.up.measured[src] & AVAILABLE
        write(costs, row, delay, available, PPB - arrived, age, every | (any_measured << 3) | (own << 5))


@kernel
def overlay(  # noqa: PLR0917 - kernels have no keywords
    hosts: Hosts,
    links: Figures,
    pairs: u32,
    src: Array[u32],
    dst: Array[u32],
    start: Array[u32],
    rows: Array[u32],
    scratch: Figures,
    costs: Figures,
    first: u32,
) -> None:
    """Write the costs of pairs that have a path of their own: `rows` from `start[pair]` up to `start[pair + 1]`.

    `scratch` has room for one pair; the first row of `costs` is that of the source `first`.
    """
    for pair in range(pairs):
        write(scratch, 0, 0, UNLIMITED_BPS, 0, NEVER_NS, ALL)
        for index in range(start[pair], start[pair + 1]):
            cross(links, rows[index], scratch)
        target: u64 = as_u64(src[pair] - first) * as_u64(hosts.hosts) + as_u64(dst[pair])
        join(hosts, scratch, costs, src[pair], dst[pair], 0, target)


@kernel(inline=True)
def cross(links: Figures, link: u32, costs: Figures) -> None:
    """Add one link to the costs of a path."""
    costs.delay_ns[0] += links.delay_ns[link]
    costs.available_bps[0] = min(costs.available_bps[0], links.available_bps[link])
    costs.loss_ppb[0] = PPB - (PPB - costs.loss_ppb[0]) * (PPB - links.loss_ppb[link]) // PPB
    costs.age_ns[0] = max(costs.age_ns[0], links.age_ns[link])
    any_measured: u8 = (costs.measured[0] >> 3) | links.measured[link]
    costs.measured[0] = (costs.measured[0] & links.measured[link] & ALL) | (any_measured << 3)
