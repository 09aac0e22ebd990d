"""Single paths: a search from the source that is drawn towards the destination by estimates (A*)."""

from __future__ import annotations

from controller.paths.algorithms.costs import FORBIDDEN, UNREACHABLE
from controller.paths.algorithms.heaps import drop_first, push
from controller.paths.algorithms.structures import Graph, Scratch
from dataplane.native import Array, kernel, u32, u64


@kernel
def find_path(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph,
    cost: Array[u64],
    scratch: Scratch,
    source: u32,
    destination: u32,
    estimate: Array[u64],
    way: Array[u32],
) -> u64:
    """Return the least cost from source to destination and leave each reached switch's link back in `way`.

    Hart, Nilsson, Raphael 1968. An estimate is at most the cost from a switch to the destination, and over a link it
    falls by at most the link's cost: zeros are right, distances in a tree of the same or lower costs are better.
    """
    heap = scratch.heap
    listed: u32 = 0
    found: u64 = UNREACHABLE
    if estimate[source] != UNREACHABLE:
        scratch.mark[source] = 1
        scratch.before[source] = 0
        scratch.listed[0] = source
        listed = 1
        push(heap, estimate[source], source)
    while heap.size > 0:
        key: u64 = heap.keys[0]
        switch: u32 = heap.switches[0]
        drop_first(heap)
        reached: u64 = scratch.before[switch]
        if switch == destination:
            found = reached
            break
        if key == reached + estimate[switch]:
            for link in range(graph.out_start[switch], graph.out_start[switch + 1]):
                head: u32 = graph.head[link]
                step: u64 = cost[link]
                if step != FORBIDDEN and estimate[head] != UNREACHABLE:
                    if scratch.mark[head] == 0:
                        scratch.mark[head] = 1
                        scratch.before[head] = UNREACHABLE
                        scratch.listed[listed] = head
                        listed += 1
                    if reached + step < scratch.before[head]:
                        scratch.before[head] = reached + step
                        way[head] = link
                        push(heap, reached + step + estimate[head], head)
    heap.size = 0
    for place in range(listed):
        scratch.mark[scratch.listed[place]] = 0
    return found
