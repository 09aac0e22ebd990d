"""The queueing model of links: packets of a mean length that arrive by chance, an M/M/1 queue on each link."""

from __future__ import annotations

from typing import Final

PACKET_BITS: Final = 8_000
"""The mean packet: 1000 bytes."""
