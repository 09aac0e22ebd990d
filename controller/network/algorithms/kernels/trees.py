"""Shortest path trees towards destinations, whole and repaired after changes; the twins are in `reference.py`.

The repair is that of Ramalingam and Reps ("On the computational complexity of dynamic graph problems", 1996), for a
batch of changed links: first it finds the switches that lose all their paths of the old cost, then a Dijkstra search
over these, and over those that became nearer, computes their costs. Its time depends on how many switches change, not
on the size of the graph. No parents are kept: a path onward is any link whose cost plus its head's cost equals the
switch's own.
"""

from __future__ import annotations

from controller.network.algorithms.costs import FORBIDDEN, UNREACHABLE
from controller.network.algorithms.kernels.buckets import insert, take
from controller.network.algorithms.structures import NO_ENTRY, Changed, Changes, Graph, Scratch
from dataplane.native import Array, as_u64, kernel, offset, u32, u64


@kernel
def grow_tree(graph: Graph, entering: Array[u64], scratch: Scratch, destination: u32, distance: Array[u64]) -> None:
    """Write the least cost from every switch to a destination (Dijkstra).

    `entering` are the links' costs in the order of `in_link`.
    """
    for switch in range(graph.switches):
        distance[switch] = UNREACHABLE
    distance[destination] = 0
    insert(scratch.queue, 0, destination)
    listed: u32 = settle(graph, entering, scratch, 0, distance)
    for index in range(listed):
        scratch.mark[scratch.listed[index]] = 0


@kernel
def grow_trees(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph, entering: Array[u64], scratch: Scratch, first: u32, last: u32, distances: Array[u64]
) -> None:
    """Write the trees towards the switches from `first` up to `last`, each in its row of the whole matrix."""
    for destination in range(first, last):
        row = offset(distances, as_u64(destination) * as_u64(graph.switches))
        grow_tree(graph, entering, scratch, destination, row)


@kernel
def repair_trees(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph,
    cost: Array[u64],
    entering: Array[u64],
    scratch: Scratch,
    first: u32,
    last: u32,
    distances: Array[u64],
    changes: Changes,
    changed: Changed,
) -> None:
    """Bring the trees from `first` up to `last` up to date with changed costs, and note where they have changed."""
    for destination in range(first, last):
        distance = offset(distances, as_u64(destination) * as_u64(graph.switches))
        listed: u32 = find_cut_off(graph, cost, entering, scratch, changes, distance)
        reattach(graph, cost, scratch, listed, distance)
        listed = take_shortcuts(graph, cost, scratch, changes, listed, distance)
        listed = settle(graph, entering, scratch, listed, distance)
        report(scratch, listed, destination, distance, changed)


@kernel(inline=True)
def find_cut_off(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph,
    cost: Array[u64],
    entering: Array[u64],
    scratch: Scratch,
    changes: Changes,
    distance: Array[u64],
) -> u32:
    """List and mark the switches that have no path of their old cost any more; return how many there are."""
    listed: u32 = 0
    for number in range(changes.count):
        link: u32 = changes.link[number]
        was: u64 = changes.before[number]
        if cost[link] > was:
            tail: u32 = graph.tail[link]
            beyond: u64 = distance[graph.head[link]]
            if beyond != UNREACHABLE and was + beyond == distance[tail] and scratch.mark[tail] == 0:
                listed = list_if_cut_off(graph, cost, scratch, listed, tail, distance)
    done: u32 = 0
    while done < listed:
        switch: u32 = scratch.listed[done]
        done += 1
        for index in range(graph.in_start[switch], graph.in_start[switch + 1]):
            behind: u32 = graph.in_tail[index]
            if scratch.mark[behind] == 0 and leads(entering[index], distance[switch], distance[behind]):
                listed = list_if_cut_off(graph, cost, scratch, listed, behind, distance)
    return listed


@kernel(inline=True)
def leads(step: u64, beyond: u64, own: u64) -> bool:
    """Return whether a link of a cost, before a switch of a cost, is a path of no more than the own cost."""
    return step != FORBIDDEN and beyond != UNREACHABLE and step + beyond <= own


@kernel
def list_if_cut_off(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph, cost: Array[u64], scratch: Scratch, listed: u32, switch: u32, distance: Array[u64]
) -> u32:
    """List a switch unless a path of its old cost is left that leads over switches not listed; return the count."""
    for link in range(graph.out_start[switch], graph.out_start[switch + 1]):
        head: u32 = graph.head[link]
        if scratch.mark[head] == 0 and leads(cost[link], distance[head], distance[switch]):
            return listed
    return note(scratch, listed, switch, distance[switch])


@kernel(inline=True)
def note(scratch: Scratch, listed: u32, switch: u32, was: u64) -> u32:
    """Mark and list a switch with its old cost; return the count."""
    scratch.mark[switch] = 1
    scratch.before[switch] = was
    scratch.listed[listed] = switch
    return listed + 1


@kernel(inline=True)
def reattach(graph: Graph, cost: Array[u64], scratch: Scratch, listed: u32, distance: Array[u64]) -> None:
    """Begin the search: each switch that was cut off offers its best path over one that was not."""
    for index in range(listed):
        distance[scratch.listed[index]] = UNREACHABLE
    for index in range(listed):
        switch: u32 = scratch.listed[index]
        best: u64 = UNREACHABLE
        for link in range(graph.out_start[switch], graph.out_start[switch + 1]):
            head: u32 = graph.head[link]
            if scratch.mark[head] == 0 and leads(cost[link], distance[head], best):
                best = cost[link] + distance[head]
        if best != UNREACHABLE:
            distance[switch] = best
            insert(scratch.queue, best, switch)


@kernel(inline=True)
def take_shortcuts(  # noqa: PLR0917 - kernels have no keywords
    graph: Graph, cost: Array[u64], scratch: Scratch, changes: Changes, listed: u32, distance: Array[u64]
) -> u32:
    """Add to the search the switches that are nearer by a link that became cheaper; return the new count."""
    for number in range(changes.count):
        link: u32 = changes.link[number]
        if cost[link] < changes.before[number]:
            tail: u32 = graph.tail[link]
            beyond: u64 = distance[graph.head[link]]
            if beyond != UNREACHABLE and cost[link] + beyond < distance[tail]:
                if scratch.mark[tail] == 0:
                    listed = note(scratch, listed, tail, distance[tail])
                distance[tail] = cost[link] + beyond
                insert(scratch.queue, distance[tail], tail)
    return listed


@kernel(inline=True)
def settle(graph: Graph, entering: Array[u64], scratch: Scratch, listed: u32, distance: Array[u64]) -> u32:
    """Search from the heap's switches on, list each that becomes nearer; return the new count."""
    queue = scratch.queue
    entry: u32 = take(queue, distance)
    while entry != NO_ENTRY:
        reached: u64 = queue.key[entry]
        switch: u32 = queue.switch[entry]
        for index in range(graph.in_start[switch], graph.in_start[switch + 1]):
            step: u64 = entering[index]
            behind: u32 = graph.in_tail[index]
            if step != FORBIDDEN and reached + step < distance[behind]:
                if scratch.mark[behind] == 0:
                    listed = note(scratch, listed, behind, distance[behind])
                distance[behind] = reached + step
                insert(queue, reached + step, behind)
        entry = take(queue, distance)
    return listed


@kernel(inline=True)
def report(scratch: Scratch, listed: u32, destination: u32, distance: Array[u64], changed: Changed) -> None:
    """Record which of the listed switches have a new cost, and clear their marks."""
    for index in range(listed):
        switch: u32 = scratch.listed[index]
        scratch.mark[switch] = 0
        if distance[switch] != scratch.before[switch]:
            if changed.count < changed.room:
                changed.destination[changed.count] = destination
                changed.switch[changed.count] = switch
            changed.count += 1
