"""Widest paths from a source to every switch, whole and repaired after changes; the twin is in `reference.py`.

A path is as wide as its narrowest link. Each switch keeps the link by which its widest path arrives: these links are a
tree, and a link that becomes narrower affects only the subtree below it.
"""

from __future__ import annotations

from controller.network.algorithms.kernels.heaps import drop_first, push
from controller.network.algorithms.structures import NO_ENTRY, Changes, Graph, Scratch
from dataplane.native import Array, as_u64, kernel, offset, u32, u64

WIDEST = (1 << 63) - 1
"""The width of a switch's path to itself; links are narrower. The queue holds WIDEST less the width."""


@kernel
def grow_widths(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph,
    width: Array[u64],
    scratch: Scratch,
    first: u32,
    last: u32,
    reached: Array[u64],
    arrives: Array[u32],
) -> None:
    """Write the widths from the sources from `first` up to `last`, each into a row of the given matrix; 0: no path."""
    for source in range(first, last):
        row = as_u64(source - first) * as_u64(graph.switches)
        own = offset(reached, row)
        by = offset(arrives, row)
        for switch in range(graph.switches):
            own[switch] = 0
            by[switch] = NO_ENTRY
        own[source] = WIDEST
        push(scratch.heap, 0, source)
        spread_width(graph, width, scratch, own, by)


@kernel
def repair_widths(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph,
    width: Array[u64],
    scratch: Scratch,
    first: u32,
    last: u32,
    reached: Array[u64],
    arrives: Array[u32],
    changes: Changes,
) -> None:
    """Bring the rows from `first` up to `last` of a whole matrix up to date with changed widths."""
    for source in range(first, last):
        row = as_u64(source) * as_u64(graph.switches)
        own = offset(reached, row)
        by = offset(arrives, row)
        listed: u32 = list_below_narrowed(graph, width, scratch, changes, own, by)
        for index in range(listed):
            own[scratch.listed[index]] = 0
        for index in range(listed):
            hang_anew(graph, width, scratch, scratch.listed[index], own, by)
        for number in range(changes.count):
            link: u32 = changes.link[number]
            offer(graph, width, scratch, link, own, by)
        for index in range(listed):
            scratch.mark[scratch.listed[index]] = 0
        spread_width(graph, width, scratch, own, by)


@kernel(inline=True)
def list_below_narrowed(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph, width: Array[u64], scratch: Scratch, changes: Changes, own: Array[u64], by: Array[u32]
) -> u32:
    """List and mark the switches whose path leads over a link that has become too narrow; return the count."""
    listed: u32 = 0
    for number in range(changes.count):
        narrowed: u32 = changes.link[number]
        head: u32 = graph.head[narrowed]
        if by[head] == narrowed and width[narrowed] < own[head] and scratch.mark[head] == 0:
            scratch.mark[head] = 1
            scratch.listed[listed] = head
            listed += 1
    done: u32 = 0
    while done < listed:
        above: u32 = scratch.listed[done]
        done += 1
        for link in range(graph.out_start[above], graph.out_start[above + 1]):
            below: u32 = graph.head[link]
            if by[below] == link and scratch.mark[below] == 0:
                scratch.mark[below] = 1
                scratch.listed[listed] = below
                listed += 1
    return listed


@kernel(inline=True)
def hang_anew(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph, width: Array[u64], scratch: Scratch, switch: u32, own: Array[u64], by: Array[u32]
) -> None:
    """Give a listed switch its widest path over one that is not listed, as a start of the search."""
    by[switch] = NO_ENTRY
    for index in range(graph.in_start[switch], graph.in_start[switch + 1]):
        near: u32 = graph.in_tail[index]
        link: u32 = graph.in_link[index]
        if scratch.mark[near] == 0 and min(width[link], own[near]) > own[switch]:
            own[switch] = min(width[link], own[near])
            by[switch] = link
    if own[switch] > 0:
        push(scratch.heap, WIDEST - own[switch], switch)


@kernel(inline=True)
def offer(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph, width: Array[u64], scratch: Scratch, link: u32, own: Array[u64], by: Array[u32]
) -> None:
    """Give a link's head the link's width, if that is wider, and continue the search from there."""
    through: u64 = min(width[link], own[graph.tail[link]])
    head: u32 = graph.head[link]
    if through > own[head]:
        own[head] = through
        by[head] = link
        push(scratch.heap, WIDEST - through, head)


@kernel(inline=True)
def spread_width(graph: Graph, width: Array[u64], scratch: Scratch, own: Array[u64], by: Array[u32]) -> None:
    """Search from the heap's switches on (Dijkstra on maximal minima)."""
    heap = scratch.heap
    while heap.size > 0:
        key: u64 = heap.keys[0]
        near: u32 = heap.switches[0]
        drop_first(heap)
        # The heap takes the least key first, so that keys are WIDEST minus the width.
        if WIDEST - key == own[near]:
            for link in range(graph.out_start[near], graph.out_start[near + 1]):
                offer(graph, width, scratch, link, own, by)
