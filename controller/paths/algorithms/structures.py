"""What the kernels of the path algorithms work on, in memory that Python shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.paths.algorithms.link_table import LinkTable
from dataplane.native import Array, Struct, pointer_to, u32, u64


class Graph(Struct):
    """The links of a table: see `LinkTable` for the columns."""

    switches: u32
    links: u32
    tail: Array[u32]
    head: Array[u32]
    out_start: Array[u32]
    in_start: Array[u32]
    in_link: Array[u32]


class Heap(Struct):
    """A binary heap of switches by key, smallest first; one switch may be in it several times."""

    size: u64
    keys: Array[u64]
    switches: Array[u32]


class Scratch(Struct):
    """What one thread needs beside the graph: a heap, a list of switches, a mark and a number for each."""

    heap: Heap
    listed: Array[u32]
    mark: Array[u32]
    before: Array[u64]


def graph_of(table: LinkTable) -> Graph:
    """Return a table's links as kernels see them; the arrays live as long as it does."""
    columns = {name: pointer_to(getattr(table, name)) for name in ("tail", "head", "out_start", "in_start", "in_link")}
    return Graph(switches=len(table.switches), links=len(table.links), **columns)


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
        switches = len(table.switches)
        return cls(
            Scratch(
                heap=heap,
                listed=pointer_to(np.zeros(switches, np.uint32)),
                mark=pointer_to(np.zeros(switches, np.uint32)),
                before=pointer_to(np.zeros(switches, np.uint64)),
            )
        )


class Changes(Struct):
    """Links whose costs have changed, and what each cost before; a link stands here once."""

    count: u64
    link: Array[u32]
    before: Array[u64]


class Changed(Struct):
    """Where repaired trees have changed: (destination, switch), as many as there is room for; `count` counts all."""

    count: u64
    room: u64
    destination: Array[u32]
    switch: Array[u32]
