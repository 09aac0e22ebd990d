"""A monotone queue of (key, switch): a radix heap, for searches whose keys never fall below the one taken last.

Ahuja, Mehlhorn, Orlin, Tarjan, "Faster algorithms for the shortest path problem", 1990. An entry is in the bucket of
the highest bit in which its key differs from the last one taken; when a bucket becomes the first one, its entries move
to lower ones. Entries superseded by a better one are dropped on the way.
"""

from __future__ import annotations

from controller.network.algorithms.structures import NO_ENTRY, Buckets
from dataplane.native import Array, count_leading_zeros, count_trailing_zeros, kernel, u32, u64

_NOTHING = (1 << 64) - 1


@kernel(inline=True)
def insert(queue: Buckets, key: u64, switch: u32) -> None:
    """Add an entry; its key must be below 2^63 and not below the last one taken, and the queue must have room."""
    entry: u32 = queue.used
    queue.used += 1
    queue.key[entry] = key
    queue.switch[entry] = switch
    put_in_bucket(queue, entry, key)


@kernel(inline=True)
def put_in_bucket(queue: Buckets, entry: u32, key: u64) -> None:
    """Link an entry into its bucket."""
    # Radix heap: the bucket is the highest bit in which a key differs from the last one taken.
    bucket: u64 = 64 - count_leading_zeros(key ^ queue.last)
    queue.following[entry] = queue.first[bucket]
    queue.first[bucket] = entry
    queue.filled |= 1 << bucket


@kernel(inline=True)
def take(queue: Buckets, distance: Array[u64]) -> u32:
    """Remove and return the entry of the smallest key, NO_ENTRY if none is left; drop those overtaken.

    An entry is overtaken when its switch has a smaller distance than its key. An empty queue is as good as new.
    """
    while queue.filled != 0:
        bucket: u64 = count_trailing_zeros(queue.filled)
        entry: u32 = queue.first[bucket]
        if bucket == 0:
            queue.first[0] = queue.following[entry]
            if queue.first[0] == NO_ENTRY:
                # Clears the lowest bit that is set, which is this bucket's.
                queue.filled &= queue.filled - 1
            if queue.key[entry] <= distance[queue.switch[entry]]:
                return entry
        else:
            queue.first[bucket] = NO_ENTRY
            queue.filled &= queue.filled - 1
            spread(queue, entry, distance)
    queue.used = 0
    queue.last = 0
    return NO_ENTRY


@kernel(inline=True)
def spread(queue: Buckets, first: u32, distance: Array[u64]) -> None:
    """Move the entries of the lowest bucket to lower ones, after its smallest key."""
    least: u64 = _NOTHING
    entry: u32 = first
    while entry != NO_ENTRY:
        if queue.key[entry] < least and queue.key[entry] <= distance[queue.switch[entry]]:
            least = queue.key[entry]
        entry = queue.following[entry]
    if least != _NOTHING:
        queue.last = least
        entry = first
        while entry != NO_ENTRY:
            after: u32 = queue.following[entry]
            if queue.key[entry] <= distance[queue.switch[entry]]:
                put_in_bucket(queue, entry, queue.key[entry])
            entry = after
