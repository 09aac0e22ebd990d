"""Moves each destination's traffic to cheaper paths; the twin is tests/reference/shifting.py.

Per destination: the cheapest tree at the links' costs, and the dearest path with traffic from each switch. Where the
two leave a switch by different links, as much traffic moves from the dearest path to the tree, up to the switch where
they meet, as makes both cost the same (Dial, "A path-based user-equilibrium traffic assignment algorithm that obviates
path storage and enumeration", 2006, with cycles removed afterwards instead of bushes). Costs follow at once.
"""

from __future__ import annotations

from controller.network.algorithms.costs import UNREACHABLE
from controller.network.algorithms.kernels.trees import grow_tree
from controller.network.algorithms.structures import NO_ENTRY, Graph, Scratch
from controller.network.paths.engineering.structures import POWER_BITS, SLOPE_BITS, STEPS, TOP, Prices, Walk
from dataplane.native import Array, as_u64, kernel, offset, u32, u64

_HALVINGS = 8
_FRACTION = (1 << STEPS) - 1
_LEAST_GAIN = 10
"""Traffic stays on a path that costs less than 2 to the minus this more than the cheapest."""


@kernel(inline=True)
def cost_of(prices: Prices, link: u32, load: u64) -> u64:
    """Return what a link costs with a load."""
    exponent: u64 = (prices.sharpness + TOP) << STEPS
    if load < prices.most[link]:
        exponent = (load * prices.slope[link]) >> SLOPE_BITS
    power: u64 = prices.factor[link] * prices.power[exponent & _FRACTION]
    return prices.delay[link] + (power >> (POWER_BITS + prices.sharpness - (exponent >> STEPS)))


@kernel(inline=True)
def reprice(prices: Prices, link: u32) -> None:
    """Bring a link's cost up to date with its load."""
    cost: u64 = cost_of(prices, link, prices.load[link])
    prices.cost[link] = cost
    prices.entering[prices.place[link]] = cost


@kernel
def reprice_all(graph: Graph, prices: Prices) -> None:
    """Bring the costs of all links up to date with their loads."""
    for link in range(graph.links):
        reprice(prices, link)


@kernel
def grow_rows(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph, scratch: Scratch, prices: Prices, destinations: Array[u32], rows: u32, distances: Array[u64]
) -> None:
    """Write the least cost from every switch to each row's destination."""
    for row in range(rows):
        own = offset(distances, as_u64(row) * as_u64(graph.switches))
        grow_tree(graph, prices.entering, scratch, destinations[row], own)


@kernel
def shift_rows(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph,
    scratch: Scratch,
    prices: Prices,
    walk: Walk,
    destinations: Array[u32],
    first: u32,
    last: u32,
    flows: Array[u64],
) -> None:
    """Move traffic of the destinations from row `first` up to `last`; `flows` are by (row, link)."""
    for row in range(first, last):
        flow = offset(flows, as_u64(row) * as_u64(graph.links))
        shift(graph, scratch, prices, walk, destinations[row], flow)


@kernel
def tidy_rows(graph: Graph, prices: Prices, walk: Walk, rows: u32, flows: Array[u64]) -> None:
    """Remove all cycles."""
    for row in range(rows):
        sort_switches(graph, prices, walk, offset(flows, as_u64(row) * as_u64(graph.links)))


@kernel
def shift(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph, scratch: Scratch, prices: Prices, walk: Walk, destination: u32, flow: Array[u64]
) -> None:
    """Move a destination's traffic to cheaper paths."""
    sort_switches(graph, prices, walk, flow)
    # Sorting may change costs, the search must see the last ones.
    grow_tree(graph, prices.entering, scratch, destination, walk.distance)
    for index in range(graph.switches):
        label(graph, prices, walk, walk.order[graph.switches - 1 - index], flow)
    for index in range(graph.switches):
        switch: u32 = walk.order[index]
        along: u32 = walk.along[switch]
        if along != NO_ENTRY and along != walk.towards[switch]:
            least: u64 = walk.distance[switch]
            if walk.dearest[switch] > least + (least >> _LEAST_GAIN):
                equalise(graph, prices, walk, destination, switch, flow)


@kernel(inline=True)
def label(graph: Graph, prices: Prices, walk: Walk, switch: u32, flow: Array[u64]) -> None:
    """Find a switch's link in the cheapest tree, and its dearest path with traffic."""
    dearest: u64 = 0
    along: u32 = NO_ENTRY
    towards: u32 = NO_ENTRY
    own: u64 = walk.distance[switch]
    for link in range(graph.out_start[switch], graph.out_start[switch + 1]):
        head: u32 = graph.head[link]
        cost: u64 = prices.cost[link]
        if flow[link] > 0 and cost + walk.dearest[head] > dearest:
            dearest = cost + walk.dearest[head]
            along = link
        if towards == NO_ENTRY and walk.distance[head] != UNREACHABLE and cost + walk.distance[head] == own:
            towards = link
    walk.dearest[switch] = dearest
    walk.along[switch] = along
    walk.towards[switch] = towards


@kernel
def equalise(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph, prices: Prices, walk: Walk, destination: u32, start: u32, flow: Array[u64]
) -> None:
    """Move traffic from the dearest path to the tree, between a switch and the first that both pass."""
    walk.serial += 1
    switch: u32 = start
    length: u32 = 0
    while switch != destination:
        walk.stamp[switch] = walk.serial
        walk.position[switch] = length
        walk.tree[length] = walk.towards[switch]
        length += 1
        switch = graph.head[walk.towards[switch]]
    walk.stamp[destination] = walk.serial
    walk.position[destination] = length
    hops: u32 = 0
    room: u64 = flow[walk.along[start]]
    switch = start
    while hops == 0 or walk.stamp[switch] != walk.serial:
        link: u32 = walk.along[switch]
        room = min(room, flow[link])
        walk.used[hops] = link
        hops += 1
        switch = graph.head[link]
    length = walk.position[switch]
    amount: u64 = balance(prices, walk, length, hops, room)
    if amount > 0:
        for index in range(length):
            there: u32 = walk.tree[index]
            flow[there] += amount
            prices.load[there] += amount
            reprice(prices, there)
        for index in range(hops):
            here: u32 = walk.used[index]
            flow[here] -= amount
            prices.load[here] -= amount
            reprice(prices, here)


@kernel(inline=True)
def balance(prices: Prices, walk: Walk, length: u32, hops: u32, room: u64) -> u64:
    """Return how much of `room` may move before the tree costs as much as the path with traffic."""
    if room == 0 or pays(prices, walk, length, hops, room):
        return room
    least: u64 = 0
    most: u64 = room
    for _ in range(_HALVINGS):
        middle: u64 = (least + most) >> 1
        if pays(prices, walk, length, hops, middle):
            least = middle
        else:
            most = middle
    return least


@kernel
def pays(prices: Prices, walk: Walk, length: u32, hops: u32, amount: u64) -> bool:
    """Return whether the tree is still cheaper once an amount has moved."""
    tree: u64 = 0
    used: u64 = 0
    for index in range(length):
        tree += cost_of(prices, walk.tree[index], prices.load[walk.tree[index]] + amount)
    for index in range(hops):
        used += cost_of(prices, walk.used[index], prices.load[walk.used[index]] - amount)
    return tree < used


@kernel
def sort_switches(graph: Graph, prices: Prices, walk: Walk, flow: Array[u64]) -> None:
    """Order switches so that traffic only goes to later ones; traffic in a cycle, which gets nowhere, is removed."""
    done: u32 = order_switches(graph, walk, flow)
    while done < graph.switches:
        remove_cycle(graph, prices, walk, flow)
        done = order_switches(graph, walk, flow)


@kernel(inline=True)
def order_switches(graph: Graph, walk: Walk, flow: Array[u64]) -> u32:
    """List switches that no unlisted one sends traffic to; return how many there are."""
    for switch in range(graph.switches):
        walk.waiting[switch] = 0
    for link in range(graph.links):
        if flow[link] > 0:
            walk.waiting[graph.head[link]] += 1
    ready: u32 = 0
    for switch in range(graph.switches):
        if walk.waiting[switch] == 0:
            walk.order[ready] = switch
            ready += 1
    done: u32 = 0
    while done < ready:
        near: u32 = walk.order[done]
        done += 1
        for link in range(graph.out_start[near], graph.out_start[near + 1]):
            if flow[link] > 0:
                head: u32 = graph.head[link]
                walk.waiting[head] -= 1
                if walk.waiting[head] == 0:
                    walk.order[ready] = head
                    ready += 1
    return done


@kernel
def remove_cycle(graph: Graph, prices: Prices, walk: Walk, flow: Array[u64]) -> None:
    """Remove one cycle: backwards from an unlisted switch there is always another one."""
    walk.serial += 1
    switch: u32 = 0
    while walk.waiting[switch] == 0:
        switch += 1
    while walk.stamp[switch] != walk.serial:
        walk.stamp[switch] = walk.serial
        enters: u32 = NO_ENTRY
        for index in range(graph.in_start[switch], graph.in_start[switch + 1]):
            link: u32 = graph.in_link[index]
            if flow[link] > 0 and walk.waiting[graph.tail[link]] > 0:
                enters = link
        walk.along[switch] = enters
        switch = graph.tail[enters]
    start: u32 = switch
    amount: u64 = flow[walk.along[start]]
    switch = graph.tail[walk.along[start]]
    while switch != start:
        amount = min(amount, flow[walk.along[switch]])
        switch = graph.tail[walk.along[switch]]
    is_done: bool = False
    while not is_done:
        out: u32 = walk.along[switch]
        flow[out] -= amount
        prices.load[out] -= amount
        reprice(prices, out)
        switch = graph.tail[out]
        is_done = switch == start
