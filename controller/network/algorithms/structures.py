"""Data structures of the path algorithms' kernels, in memory shared with Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.network.algorithms.link_table import LinkTable
from dataplane.native import Array, Struct, i64, pointer_to, u8, u32, u64

NO_ENTRY: Final = 0xFFFF_FFFF
"""Ends a list of a radix heap's entries, and means no link."""


class Graph(Struct):
    """The links of a table: see `LinkTable` for the columns; `in_tail` are the tails in the order of `in_link`."""

    switches: u32
    links: u32
    tail: Array[u32]
    head: Array[u32]
    out_start: Array[u32]
    in_start: Array[u32]
    in_link: Array[u32]
    in_tail: Array[u32]


class Heap(Struct):
    """A binary heap of switches by key, smallest first; one switch may be in it several times."""

    size: u64
    keys: Array[u64]
    switches: Array[u32]


class Buckets(Struct):
    """A radix heap: entries in lists, one for each of 64 buckets; `filled` has a bit for each that is not empty."""

    filled: u64
    last: u64
    used: u32
    first: Array[u32]
    key: Array[u64]
    switch: Array[u32]
    following: Array[u32]


class Scratch(Struct):
    """Scratch memory of one thread beyond the graph: queues, a list of switches, a mark and a number for each."""

    heap: Heap
    queue: Buckets
    listed: Array[u32]
    mark: Array[u32]
    before: Array[u64]


def graph_of(table: LinkTable) -> Graph:
    """Return a table's links as kernels see them; the arrays live as long as it does."""
    columns = {name: pointer_to(getattr(table, name)) for name in ("tail", "head", "out_start", "in_start", "in_link")}
    in_tail = pointer_to(table.tail[table.in_link])
    return Graph(switches=len(table.switches), links=len(table.links), in_tail=in_tail, **columns)


@dataclass(frozen=True, slots=True)
class Workspace:
    """The scratch memory of one thread; a search leaves it as it found it, so that it can be used again."""

    scratch: Scratch

    @classmethod
    def of(cls, table: LinkTable) -> Workspace:
        """Return memory for searches in a table's graph."""
        # A switch enters the heap once for each link over which its cost falls, and once more as a start.
        places = 2 * len(table.links) + len(table.switches) + 1
        heap = Heap(keys=pointer_to(np.zeros(places, np.uint64)), switches=pointer_to(np.zeros(places, np.uint32)))
        queue = Buckets(
            first=pointer_to(np.full(64, NO_ENTRY, np.uint32)),
            key=pointer_to(np.zeros(places, np.uint64)),
            switch=pointer_to(np.zeros(places, np.uint32)),
            following=pointer_to(np.zeros(places, np.uint32)),
        )
        switches = len(table.switches)
        return cls(
            Scratch(
                heap=heap,
                queue=queue,
                listed=pointer_to(np.zeros(switches, np.uint32)),
                mark=pointer_to(np.zeros(switches, np.uint32)),
                before=pointer_to(np.zeros(switches, np.uint64)),
            )
        )


class Changes(Struct):
    """Links whose costs have changed, each once, with their previous costs."""

    count: u64
    link: Array[u32]
    before: Array[u64]


class Changed(Struct):
    """Changes in repaired trees: (destination, switch), as many as there is room for; `count` counts all."""

    count: u64
    room: u64
    destination: Array[u32]
    switch: Array[u32]


class LinkColumns(Struct):
    """Link data for a search: costs and, if it needs room, loads and which links are the flow's own.

    `own` is scratch memory, all zero between two searches; a flow's own relieved link costs `relieved_cost`.
    Searches that need no room may leave all but `cost` null.
    """

    cost: Array[u64]
    relieved_cost: Array[u64]
    rate: Array[i64]
    load: Array[i64]
    headroom: Array[i64]
    known: Array[u8]
    crossing: Array[i64]
    relieved: Array[u8]
    own: Array[u8]


class FlowColumns(Struct):
    """Flows: ends, the links of the path that each is on (`hops` of `pool` from `start` on) and rate, -1 if unknown."""

    source: Array[u32]
    destination: Array[u32]
    start: Array[u32]
    hops: Array[u32]
    pool: Array[u32]
    rate: Array[i64]


class FlowEvaluations(Struct):
    """Results for each flow evaluated: costs of its path and of the best with room, its rate, a dead link."""

    present: Array[u64]
    best: Array[u64]
    rate: Array[i64]
    dead: Array[u8]
