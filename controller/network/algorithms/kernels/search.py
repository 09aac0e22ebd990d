"""Single paths: a search from the source that is drawn towards the destination by estimates (A*)."""

from __future__ import annotations

from controller.network.algorithms.costs import FORBIDDEN, UNREACHABLE
from controller.network.algorithms.kernels.heaps import drop_first, push
from controller.network.algorithms.structures import Graph, LinkColumns, Scratch
from dataplane.native import Array, address, i64, kernel, u32, u64


@kernel(inline=True)
def has_room(links: LinkColumns, link: u32, need: i64) -> bool:
    """Return whether a flow of a rate fits on a link, with its headroom left; its own load on its links counts as free.

    A rate of 0 fits everywhere.
    """
    if need == 0:
        return True
    load: i64 = max(links.load[link], 0)
    free: i64 = links.rate[link] - load
    if links.own[link] != 0:
        free += need
    return min(free, links.rate[link]) - links.headroom[link] >= need


@kernel(inline=True)
def step_cost(links: LinkColumns, link: u32) -> u64:
    """Return the cost of a link for a flow."""
    if address(links.relieved) != 0 and links.own[link] != 0 and links.relieved[link] != 0:
        return links.relieved_cost[link] if links.cost[link] != FORBIDDEN else FORBIDDEN
    return links.cost[link]


@kernel
def find_path(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph,
    links: LinkColumns,
    scratch: Scratch,
    source: u32,
    destination: u32,
    need: i64,
    estimate: Array[u64],
    predecessor: Array[u32],
) -> u64:
    """Return the least cost over links that have room, and leave each reached switch's link back in `predecessor`.

    Hart, Nilsson, Raphael 1968. An estimate is at most the cost from a switch to the destination, and over a link it
    falls by at most the link's cost: distances in a tree of the same or lower costs; null stands for all zeros.
    """
    heap = scratch.heap
    listed: u32 = 0
    least: u64 = UNREACHABLE
    if guess(estimate, source) != UNREACHABLE:
        scratch.mark[source] = 1
        scratch.before[source] = 0
        scratch.listed[0] = source
        listed = 1
        push(heap, guess(estimate, source), source)
    while heap.size > 0:
        key: u64 = heap.keys[0]
        switch: u32 = heap.switches[0]
        drop_first(heap)
        reached: u64 = scratch.before[switch]
        if switch == destination:
            least = reached
            break
        # Another key is outdated: the switch has been reached at a lower cost since.
        if key == reached + guess(estimate, switch):
            for link in range(graph.out_start[switch], graph.out_start[switch + 1]):
                head: u32 = graph.head[link]
                step: u64 = step_cost(links, link)
                left: u64 = guess(estimate, head)
                if step != FORBIDDEN and left != UNREACHABLE and has_room(links, link, need):
                    if scratch.mark[head] == 0:
                        scratch.mark[head] = 1
                        scratch.before[head] = UNREACHABLE
                        scratch.listed[listed] = head
                        listed += 1
                    if reached + step < scratch.before[head]:
                        scratch.before[head] = reached + step
                        predecessor[head] = link
                        push(heap, reached + step + left, head)
    heap.size = 0
    for index in range(listed):
        scratch.mark[scratch.listed[index]] = 0
    return least


@kernel(inline=True)
def guess(estimate: Array[u64], switch: u32) -> u64:
    """Return the estimate of a switch, 0 where there are none."""
    return 0 if address(estimate) == 0 else estimate[switch]
