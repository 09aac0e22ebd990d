"""Ethernet II header, 14 bytes (IEEE 802.3, clause 3).

Destination48 Source48 EtherType16; preamble and frame check sequence never reach software.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.wire.fields import fit, need

HEADER: Final = "ethernet"
SIZE: Final = 14

ETHER_IPV4: Final = 0x0800
ETHER_ARP: Final = 0x0806
ETHER_VLAN: Final = 0x8100
ETHER_IPV6: Final = 0x86DD


@dataclass(frozen=True, slots=True)
class Ethernet:
    """An Ethernet II header; MAC addresses are 48-bit numbers."""

    dst: int
    src: int
    ether_type: int

    @property
    def size(self) -> int:
        """Length in bytes."""
        return SIZE

    def encode(self) -> bytes:
        """Return the header's 14 bytes; raise WireError for a value that does not fit."""
        fit(HEADER, dst=(self.dst, 48), src=(self.src, 48), ether_type=(self.ether_type, 16))
        return (self.dst << 64 | self.src << 16 | self.ether_type).to_bytes(SIZE, "big")


def decode(data: bytes, offset: int = 0) -> Ethernet:
    """Return the header at `offset`; raise WireError if it is cut short."""
    need(HEADER, data, offset, SIZE)
    word = int.from_bytes(data[offset : offset + SIZE], "big")
    return Ethernet(word >> 64, word >> 16 & 0xFFFF_FFFF_FFFF, word & 0xFFFF)


def format_mac(mac: int) -> str:
    """Return a MAC address as six hexadecimal pairs."""
    return mac.to_bytes(6, "big").hex(":")
