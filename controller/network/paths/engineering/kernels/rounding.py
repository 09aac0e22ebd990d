"""Turns traffic into weights of next hops, and weights into traffic; the twin is tests/reference/shifting.py."""

from __future__ import annotations

from controller.network.algorithms.structures import Graph, Scratch
from controller.network.paths.engineering.kernels.shifting import order_switches, reprice, shift, sort_switches
from controller.network.paths.engineering.structures import Prices, Walk
from controller.network.tables.routing import MAX_GROUP_SIZE
from dataplane.native import Array, as_u64, kernel, offset, u32, u64

_TOLERANCE = 64
"""As in weights.py: a total is taken if no share is off by more than a 64th."""
_EXACT_BITS = 20


@kernel
def round_rows(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph,
    scratch: Scratch,
    prices: Prices,
    walk: Walk,
    destinations: Array[u32],
    first: u32,
    last: u32,
    flows: Array[u64],
    entering: Array[u64],
    weights: Array[u64],
    moves: bool,
) -> None:
    """Move traffic as `shift_rows` does if it `moves`, then divide it by weights; `entering` is by (row, switch).

    Switches without traffic for a destination have no weights.
    """
    for row in range(first, last):
        begin: u64 = as_u64(row) * as_u64(graph.links)
        flow = offset(flows, begin)
        if moves:
            shift(graph, scratch, prices, walk, destinations[row], flow)
        sort_switches(graph, prices, walk, flow)
        weigh(graph, walk, flow, offset(weights, begin))
        enter = offset(entering, as_u64(row) * as_u64(graph.switches))
        spread(graph, prices, walk, destinations[row], flow, enter, offset(weights, begin))


@kernel
def spread_rows(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph,
    prices: Prices,
    walk: Walk,
    destinations: Array[u32],
    first: u32,
    last: u32,
    flows: Array[u64],
    entering: Array[u64],
    weights: Array[u64],
) -> u32:
    """Replace the traffic of rows by what weights make of the traffic that enters.

    Returns the first row whose weights form a cycle or end before the destination, `last` if there is none.
    """
    for row in range(first, last):
        begin: u64 = as_u64(row) * as_u64(graph.links)
        enter = offset(entering, as_u64(row) * as_u64(graph.switches))
        if order_switches(graph, walk, offset(weights, begin)) < graph.switches:
            return row
        if not spread(graph, prices, walk, destinations[row], offset(flows, begin), enter, offset(weights, begin)):
            return row
    return last


@kernel
def weigh(graph: Graph, walk: Walk, flow: Array[u64], weight: Array[u64]) -> None:
    """Write the weights that are nearest to the traffic of each switch, 0 where there is none."""
    for switch in range(graph.switches):
        first: u32 = graph.out_start[switch]
        last: u32 = graph.out_start[switch + 1]
        total: u64 = 0
        most: u64 = 0
        for link in range(first, last):
            weight[link] = 0
            total += flow[link]
            most = max(most, flow[link])
        if total > 0 and most == total:
            for link in range(first, last):
                weight[link] = 1 if flow[link] > 0 else 0
        elif total > 0:
            divide(walk, first, last, flow, total, weight)


@kernel
def divide(  # noqa: PLR0917 - kernels have no keywords
    walk: Walk, first: u32, last: u32, flow: Array[u64], total: u64, weight: Array[u64]
) -> None:
    """Write the weights of the smallest sum that makes the shares exactly, else within the tolerance, else the largest.

    An exact sum goes first: weights in force stay as they are.
    """
    near: u64 = MAX_GROUP_SIZE
    for parts in range(1, MAX_GROUP_SIZE + 1):
        error: u64 = largest_remainders(walk, first, last, flow, total, as_u64(parts), weight)
        if error <= (parts * total) >> _EXACT_BITS:
            return
        if near == MAX_GROUP_SIZE and error * _TOLERANCE <= parts * total:
            near = parts
    largest_remainders(walk, first, last, flow, total, near, weight)


@kernel
def largest_remainders(  # noqa: PLR0917 - kernels have no keywords
    walk: Walk, first: u32, last: u32, flow: Array[u64], total: u64, parts: u64, weight: Array[u64]
) -> u64:
    """Write weights that add up to `parts`; return the largest error of a share times `parts * total`."""
    left: u64 = parts
    for link in range(first, last):
        weight[link] = flow[link] * parts // total
        walk.rest[link] = flow[link] * parts - weight[link] * total
        left -= weight[link]
    error: u64 = 0
    for _ in range(left):
        best: u32 = first
        for link in range(first, last):
            if walk.rest[link] > walk.rest[best]:
                best = link
        weight[best] += 1
        error = max(error, total - walk.rest[best])
        walk.rest[best] = 0
    for link in range(first, last):
        error = max(error, walk.rest[link])
    return error


@kernel
def spread(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph,
    prices: Prices,
    walk: Walk,
    destination: u32,
    flow: Array[u64],
    enter: Array[u64],
    weight: Array[u64],
) -> bool:
    """Replace a destination's traffic by what weights make of the traffic that enters, in `walk.order`.

    Weights of switches that nothing passes any more become 0. Returns whether all traffic arrives.
    """
    arrives: bool = True
    for switch in range(graph.switches):
        walk.passing[switch] = enter[switch]
    walk.passing[destination] = 0
    for index in range(graph.switches):
        near: u32 = walk.order[index]
        left: u64 = walk.passing[near]
        if near == destination:
            left = 0
        total: u64 = 0
        for link in range(graph.out_start[near], graph.out_start[near + 1]):
            total += weight[link]
        if left > 0 and total == 0:
            arrives = False
        passing: u64 = left
        for link in range(graph.out_start[near], graph.out_start[near + 1]):
            amount: u64 = 0
            if passing == 0:
                weight[link] = 0
            elif weight[link] > 0:
                # Of traffic below a unit for each weight the first links get more: the sum stays what it is.
                amount = min(left, (passing * weight[link] + total - 1) // total)
            left -= amount
            walk.passing[graph.head[link]] += amount
            if amount != flow[link]:
                prices.load[link] = prices.load[link] + amount - flow[link]
                flow[link] = amount
                reprice(prices, link)
    return arrives
