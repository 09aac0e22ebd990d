"""The queueing model of links: Poisson arrivals of packets with a mean length, an M/M/1 queue on each link."""

from __future__ import annotations

from typing import Final

PACKET_BITS: Final = 8_000
"""The mean packet: 1000 bytes."""
