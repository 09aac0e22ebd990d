"""The checksum complement, instruction bit 15 of INT-MD (INT v2.1, sections 5.6 "Checksum Update" and 5.8).

A hop that changes bytes covered by a TCP or UDP checksum may keep the checksum and push a word that compensates for the
change. A hop that updates the checksum instead writes UNUSED. All bytes here are at even offsets in the segment.
"""

from __future__ import annotations

from typing import Final

from dataplane.wire.checksum import internet_checksum, ones_complement_sum, pseudo_header
from dataplane.wire.fields import IpAddress

UNUSED: Final = 0xFFFF_FFFF


def complement(removed: bytes, added: bytes) -> int:
    """Return the word that compensates for replacing `removed` by `added`; it is never UNUSED.

    Both hold every word that the hop changes: the pushed words (without this one), header fields before and after, and
    the UDP length or the pseudo header's, which grow by the pushed bytes, this word included.
    """
    total = ones_complement_sum(added) + (~ones_complement_sum(removed) & 0xFFFF)
    return -total % 0xFFFF


def holds(src: IpAddress, dst: IpAddress, protocol: int, segment: bytes) -> bool:
    """Verify the TCP or UDP checksum of a whole segment, INT headers and complements included."""
    return internet_checksum(pseudo_header(src, dst, protocol, len(segment)) + segment) == 0
