"""An index by open addressing with linear probing: entries are numbers or addresses, tagged with bits of their hash.

`next_tagged` moves to the next candidate and is all that a lookup needs, whatever an entry holds below its tag:

```python
place = next_tagged(index, mask, start, tag, TAG_SHIFT)
while index[place] != 0:
    ...                            # is it the one? then it is found
    place = next_tagged(index, mask, (place + 1) & mask, tag, TAG_SHIFT)
```

The others are for the plain form: entries of 64 bits. The high half is that of the hash, where the search also begins,
and the low half is a number other than 0. An index has a power of two of places, `mask` + 1, at least one of which is
empty. Readers concurrent with a writer use `next_tagged_shared`.
"""

from __future__ import annotations

from dataplane.native.arrays import Array
from dataplane.native.intrinsics import load_acquire
from dataplane.native.kernels import kernel
from dataplane.native.scalars import u64

LOW32 = (1 << 32) - 1


@kernel(inline=True)
def next_tagged(index: Array[u64], mask: u64, start: u64, tag: u64, shift: u64) -> u64:
    """Return the first place from `start` on whose entry has this tag above `shift` bits, or is empty."""
    place: u64 = start
    while index[place] != 0 and index[place] >> shift != tag:
        place = (place + 1) & mask
    return place


@kernel(inline=True)
def next_tagged_shared(index: Array[u64], mask: u64, start: u64, tag: u64, shift: u64) -> u64:
    """Like `next_tagged`, while a writer may publish entries by `store_release`."""
    place: u64 = start
    while True:
        entry: u64 = load_acquire(index[place])
        if entry == 0 or entry >> shift == tag:
            return place
        place = (place + 1) & mask


@kernel(inline=True)
def next_empty(index: Array[u64], mask: u64, start: u64) -> u64:
    """Return the first empty place from `start` on."""
    place: u64 = start
    while index[place] != 0:
        place = (place + 1) & mask
    return place


@kernel(inline=True)
def home_of(mixed: u64, mask: u64) -> u64:
    """Return the start of a hash's search."""
    return (mixed >> 32) & mask


@kernel(inline=True)
def next_alike(index: Array[u64], mask: u64, start: u64, mixed: u64) -> u64:
    """Return the first place from `start` on whose entry has this hash's high half, or is empty: the end."""
    return next_tagged(index, mask, start, mixed >> 32, 32)


@kernel(inline=True)
def put_entry(index: Array[u64], mask: u64, mixed: u64, number: u64) -> None:
    """Insert a number under a hash, at the first empty place."""
    index[next_empty(index, mask, home_of(mixed, mask))] = mixed >> 32 << 32 | number


@kernel(inline=True)
def remove_entry(index: Array[u64], mask: u64, mixed: u64, number: u64) -> None:
    """Remove a number that was inserted under this hash."""
    place: u64 = home_of(mixed, mask)
    while index[place] & LOW32 != number:
        place = (place + 1) & mask
    close_gap(index, mask, place)


@kernel(inline=False)
def close_gap(index: Array[u64], mask: u64, gap: u64) -> None:
    """Empty a place of the index, and move up entries that were displaced past it."""
    hole: u64 = gap
    place: u64 = (gap + 1) & mask
    while index[place] != 0:
        home: u64 = (index[place] >> 32) & mask
        # It may move if its home is not between the gap and itself.
        if ((place - home) & mask) >= ((place - hole) & mask):
            index[hole] = index[place]
            hole = place
        place = (place + 1) & mask
    index[hole] = 0
