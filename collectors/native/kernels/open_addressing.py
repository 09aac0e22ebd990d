"""Places of an index by open addressing: entries have the high half of their hash, and a number that is not 0.

An entry's search begins at its hash's high half; `next_alike` goes from one candidate to the next.
"""

from __future__ import annotations

from dataplane.native import Array, kernel, u64

LOW32 = (1 << 32) - 1


@kernel(inline=True)
def home_of(mixed: u64, mask: u64) -> u64:
    """Return where a hash's search begins."""
    return (mixed >> 32) & mask


@kernel(inline=True)
def next_alike(index: Array[u64], mask: u64, start: u64, mixed: u64) -> u64:
    """Return the first place from `start` on whose entry has this hash's high half, or is empty: nothing follows it."""
    place: u64 = start
    while index[place] != 0 and index[place] >> 32 != mixed >> 32:
        place = (place + 1) & mask
    return place


@kernel(inline=True)
def put_entry(index: Array[u64], mask: u64, mixed: u64, number: u64) -> None:
    """Enter a number under a hash, at the first empty place."""
    place: u64 = home_of(mixed, mask)
    while index[place] != 0:
        place = (place + 1) & mask
    index[place] = mixed >> 32 << 32 | number


@kernel(inline=True)
def remove_entry(index: Array[u64], mask: u64, mixed: u64, number: u64) -> None:
    """Take a number out that was entered under this hash."""
    place: u64 = home_of(mixed, mask)
    while index[place] & LOW32 != number:
        place = (place + 1) & mask
    close_gap(index, mask, place)


@kernel(inline=False)
def close_gap(index: Array[u64], mask: u64, gap: u64) -> None:
    """Empty a place of the index, and move up what was put behind it for want of room."""
    hole: u64 = gap
    place: u64 = (gap + 1) & mask
    while index[place] != 0:
        home: u64 = (index[place] >> 32) & mask
        # It may move if its home is not between the hole and itself.
        if ((place - home) & mask) >= ((place - hole) & mask):
            index[hole] = index[place]
            hole = place
        place = (place + 1) & mask
    index[hole] = 0
