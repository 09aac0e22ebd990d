"""Places of an index by open addressing, whose entries have their hash in the high half."""

from __future__ import annotations

from dataplane.native import Array, kernel, u64


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
