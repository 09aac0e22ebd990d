"""Evaluation of many flows at once, whether better paths exist, against the destination trees."""

from __future__ import annotations

from controller.network.algorithms.costs import FORBIDDEN, HOP_BITS, UNREACHABLE
from controller.network.algorithms.kernels.search import find_path, has_room, step_cost
from controller.network.algorithms.structures import FlowColumns, FlowEvaluations, Graph, LinkColumns, Scratch
from dataplane.native import Array, array_at, as_u64, i64, kernel, offset, stack_array, u8, u32, u64

SHARE_BITS = 20
_HALF = SHARE_BITS // 2
_MOST = (1 << 63) - 1


@kernel
def flag_flows(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph,
    cost: Array[u64],
    flows: FlowColumns,
    rows: Array[u32],
    count: u64,
    distances: Array[u64],
    gain_share: u64,
    gain_ns: u64,
    flags: Array[u8],
) -> None:
    """Set flows' flags: 2 if the path is dead, 1 if some path, room or not, has less delay by both margins, else 0.

    `gain_share` is in units of 2^-20; rounding errs towards too many flags.
    """
    for number in range(count):
        row: u32 = rows[number]
        path = offset(flows.pool, as_u64(flows.start[row]))
        present: u64 = 0
        dead: bool = False
        for hop in range(flows.hops[row]):
            step: u64 = cost[path[hop]]
            dead = dead or step == FORBIDDEN
            # The lower bits of a cost count hops; only the upper ones are a delay.
            present += step >> HOP_BITS
        least: u64 = distances[as_u64(flows.destination[row]) * as_u64(graph.switches) + as_u64(flows.source[row])]
        gain: u64 = present - (least >> HOP_BITS)
        # Shift in two halves, so that the product fits into 64 bits.
        margin: u64 = max(((present >> _HALF) * gain_share) >> _HALF, gain_ns)
        wanting: bool = gain > 0 and gain >= margin
        flag: u8 = 0
        if dead:
            flag = 2
        elif wanting:
            flag = 1
        flags[row] = flag


@kernel
def evaluate_flows(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph,
    links: LinkColumns,
    scratch: Scratch,
    flows: FlowColumns,
    rows: Array[u32],
    count: u64,
    distances: Array[u64],
    predecessor: Array[u32],
    searching: bool,
    evaluations: FlowEvaluations,
) -> None:
    """Compute for each flow the cost of its path and that of the best path with room for it.

    Without `searching` the best one need not have room: its cost is at most that of the best with room.

    For a flow whose path is dead, only that and the cost of the best live path, room or not, are recorded. If no path
    is better than the flow's own, the best one need not have room either.
    """
    for number in range(count):
        row: u32 = rows[number]
        path = offset(flows.pool, as_u64(flows.start[row]))
        hops: u32 = flows.hops[row]
        source: u32 = flows.source[row]
        distance = offset(distances, as_u64(flows.destination[row]) * as_u64(graph.switches))
        rate: i64 = flows.rate[row]
        if rate < 0:
            rate = share_of_load(links, path, hops)
        present: u64 = 0
        dead: bool = False
        eased: bool = False
        for hop in range(hops):
            links.own[path[hop]] = 1
            eased = eased or links.relieved[path[hop]] != 0
            step: u64 = step_cost(links, path[hop])
            dead = dead or step == FORBIDDEN
            present += step
        destination: u32 = flows.destination[row]
        best: u64 = distance[source]
        if eased and not dead:
            best = least_when_eased(graph, links, path, hops, source, destination, distances)
            if searching and best < present:
                best = find_path(graph, links, scratch, source, destination, rate, array_at(u64, 0), predecessor)
        elif searching and not dead and not fits_along_tree(graph, links, source, destination, rate, distance):
            best = find_path(graph, links, scratch, source, destination, rate, distance, predecessor)
        for hop in range(hops):
            links.own[path[hop]] = 0
        evaluations.present[number] = present
        evaluations.best[number] = best
        evaluations.rate[number] = rate
        evaluations.dead[number] = 1 if dead else 0


@kernel
def least_when_eased(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph,
    links: LinkColumns,
    path: Array[u32],
    hops: u32,
    source: u32,
    destination: u32,
    distances: Array[u64],
) -> u64:
    """Return the least cost, room or not, when the relieved links of a flow's own path cost it less than others.

    A path consists of shortest paths between such links, and those are known: no search is needed. With more than
    `_MOST_EASED` of them 0 is returned.
    """
    reached = stack_array(u64, 16)
    eased = stack_array(u32, 16)
    count: u64 = 0
    for hop in range(hops):
        if links.relieved[path[hop]] != 0:
            if count == _MOST_EASED:
                return 0
            eased[count] = path[hop]
            reached[count] = UNREACHABLE
            count += 1
    least: u64 = between(graph, distances, source, destination)
    # Bellman-Ford: a shortest path crosses each of these links at most once.
    for _ in range(count):
        for at in range(count):
            link: u32 = eased[at]
            before: u64 = between(graph, distances, source, graph.tail[link])
            for other in range(count):
                if other != at and reached[other] != UNREACHABLE:
                    gap: u64 = between(graph, distances, graph.head[eased[other]], graph.tail[link])
                    if gap != UNREACHABLE:
                        before = min(before, reached[other] + gap)
            if before != UNREACHABLE:
                reached[at] = min(reached[at], before + links.relieved_cost[link])
    for at in range(count):
        rest: u64 = between(graph, distances, graph.head[eased[at]], destination)
        if reached[at] != UNREACHABLE and rest != UNREACHABLE:
            least = min(least, reached[at] + rest)
    return least


_MOST_EASED = 16


@kernel(inline=True)
def between(graph: Graph, distances: Array[u64], source: u32, destination: u32) -> u64:
    """Return the least cost between two switches."""
    return distances[as_u64(destination) * as_u64(graph.switches) + as_u64(source)]


@kernel(inline=True)
def share_of_load(links: LinkColumns, path: Array[u32], hops: u32) -> i64:
    """Return the least equal share of the load that a flow can have on the links known, 0 where none is known."""
    least: i64 = _MOST
    for hop in range(hops):
        link: u32 = path[hop]
        if links.known[link] != 0 and links.crossing[link] > 0:
            least = min(least, max(links.load[link], 0) // links.crossing[link])
    return 0 if least == _MOST else least


@kernel(inline=True)
def fits_along_tree(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph, links: LinkColumns, source: u32, destination: u32, need: i64, distance: Array[u64]
) -> bool:
    """Return whether the shortest path, by the lowest ports, has room all along; then no search need be made."""
    switch: u32 = source
    if distance[source] == UNREACHABLE:
        return True
    while switch != destination:
        link: u32 = graph.out_start[switch]
        while not is_tight(links, link, distance[graph.head[link]], distance[switch]):
            link += 1
        if not has_room(links, link, need):
            return False
        switch = graph.head[link]
    return True


@kernel(inline=True)
def is_tight(links: LinkColumns, link: u32, beyond: u64, own: u64) -> bool:
    """Return whether a link begins a shortest path."""
    return links.cost[link] != FORBIDDEN and beyond != UNREACHABLE and links.cost[link] + beyond == own
