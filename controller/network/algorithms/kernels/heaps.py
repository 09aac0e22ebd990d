"""A binary heap of (key, switch); a switch may be pushed again with a smaller key, its larger one comes later."""

from __future__ import annotations

from controller.network.algorithms.structures import Heap
from dataplane.native import kernel, u32, u64


@kernel(inline=True)
def push(heap: Heap, key: u64, switch: u32) -> None:
    """Add an entry; the heap must have room."""
    index: u64 = heap.size
    heap.size += 1
    while index > 0:
        above: u64 = (index - 1) >> 1
        if heap.keys[above] <= key:
            break
        heap.keys[index] = heap.keys[above]
        heap.switches[index] = heap.switches[above]
        index = above
    heap.keys[index] = key
    heap.switches[index] = switch


@kernel(inline=True)
def drop_first(heap: Heap) -> None:
    """Remove the smallest entry, `keys[0]` and `switches[0]`; the heap must not be empty."""
    heap.size -= 1
    size: u64 = heap.size
    key: u64 = heap.keys[size]
    switch: u32 = heap.switches[size]
    index: u64 = 0
    below: u64 = 1
    while below < size:
        if below + 1 < size and heap.keys[below + 1] < heap.keys[below]:
            below += 1
        if heap.keys[below] >= key:
            break
        heap.keys[index] = heap.keys[below]
        heap.switches[index] = heap.switches[below]
        index = below
        below = 2 * index + 1
    heap.keys[index] = key
    heap.switches[index] = switch
