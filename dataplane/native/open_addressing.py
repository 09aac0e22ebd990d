"""An index by open addressing with linear probing: entries are numbers or addresses, tagged with bits of their hash.

`next_tagged` moves to the next candidate and is all that a lookup needs, whatever an entry holds below its tag:

```python
slot = next_tagged(index, mask, start, tag, TAG_SHIFT)
while index[slot] != 0:
    ...                            # is it the one? then it is found
    slot = next_tagged(index, mask, (slot + 1) & mask, tag, TAG_SHIFT)
```

The others are for the plain form: entries of 64 bits. The high half is that of the hash, where the search also begins,
and the low half is a number other than 0. An index has a power of two of slots, `mask` + 1, at least one of which is
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
    """Return the first slot from `start` on whose entry has this tag above `shift` bits, or is empty."""
    slot: u64 = start
    while index[slot] != 0 and index[slot] >> shift != tag:
        slot = (slot + 1) & mask
    return slot


@kernel(inline=True)
def next_tagged_shared(index: Array[u64], mask: u64, start: u64, tag: u64, shift: u64) -> u64:
    """Like `next_tagged`, while a writer may publish entries by `store_release`."""
    slot: u64 = start
    while True:
        entry: u64 = load_acquire(index[slot])
        if entry == 0 or entry >> shift == tag:
            return slot
        slot = (slot + 1) & mask


@kernel(inline=True)
def next_empty(index: Array[u64], mask: u64, start: u64) -> u64:
    """Return the first empty slot from `start` on."""
    slot: u64 = start
    while index[slot] != 0:
        slot = (slot + 1) & mask
    return slot


@kernel(inline=True)
def home_of(mixed: u64, mask: u64) -> u64:
    """Return the start of a hash's search."""
    return (mixed >> 32) & mask


@kernel(inline=True)
def next_alike(index: Array[u64], mask: u64, start: u64, mixed: u64) -> u64:
    """Return the first slot from `start` on whose entry has this hash's high half, or is empty: the end."""
    return next_tagged(index, mask, start, mixed >> 32, 32)


@kernel(inline=True)
def put_entry(index: Array[u64], mask: u64, mixed: u64, number: u64) -> None:
    """Insert a number under a hash, at the first empty slot."""
    index[next_empty(index, mask, home_of(mixed, mask))] = mixed >> 32 << 32 | number


@kernel(inline=True)
def remove_entry(index: Array[u64], mask: u64, mixed: u64, number: u64) -> None:
    """Remove a number that was inserted under this hash."""
    slot: u64 = home_of(mixed, mask)
    while index[slot] & LOW32 != number:
        slot = (slot + 1) & mask
    close_gap(index, mask, slot)


@kernel(inline=False)
def close_gap(index: Array[u64], mask: u64, gap: u64) -> None:
    """Empty a slot of the index, and move up entries that were displaced past it."""
    hole: u64 = gap
    slot: u64 = (gap + 1) & mask
    while index[slot] != 0:
        home: u64 = (index[slot] >> 32) & mask
        # It may move if its home is not between the gap and itself.
        if ((slot - home) & mask) >= ((slot - hole) & mask):
            index[hole] = index[slot]
            hole = slot
        slot = (slot + 1) & mask
    index[hole] = 0
