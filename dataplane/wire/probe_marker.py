"""INT probe marker, 8 bytes after a TCP or UDP header, before the INT shim (INT v2.1, section 5.7.2, option 3).

A 64-bit number that the domain chooses; it means "INT follows" where neither DSCP nor port can be reserved.
"""

from __future__ import annotations

from typing import Final

from dataplane.wire.fields import fit, need

HEADER: Final = "probe marker"
SIZE: Final = 8


def encode(marker: int) -> bytes:
    """Return the marker's 8 bytes; raise WireError if it does not fit."""
    fit(HEADER, marker=(marker, 64))
    return marker.to_bytes(SIZE, "big")


def decode(data: bytes, offset: int = 0) -> int:
    """Return the 64 bits at `offset`; raise WireError if they are cut short."""
    need(HEADER, data, offset, SIZE)
    return int.from_bytes(data[offset : offset + SIZE], "big")


def is_at(data: bytes, offset: int, marker: int | None) -> bool:
    """Return whether `marker` is at `offset`; False if it is cut short, or None."""
    return marker is not None and data[offset : offset + SIZE] == marker.to_bytes(SIZE, "big")
