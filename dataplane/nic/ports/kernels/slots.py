"""Walks rings of slots."""

from __future__ import annotations

from dataplane.native import as_u64, kernel
from dataplane.nic.ports.queue import Cursor, SlotRing


@kernel(inline=True)
def advance(ring: SlotRing, cursor: Cursor) -> None:
    """Step to the next slot, from the last one to the first."""
    cursor.slot += as_u64(ring.slot_bytes)
    cursor.left -= 1
    if cursor.left == 0:
        cursor.left = ring.block_slots
        cursor.slot += as_u64(ring.block_gap)
        if cursor.slot == ring.end:
            cursor.slot = ring.start
