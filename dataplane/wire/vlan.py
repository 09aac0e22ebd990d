"""IEEE 802.1Q tag, the 4 bytes after the Ethernet header's EtherType 0x8100 (IEEE 802.1Q, clause 9.6).

Priority3 DropEligible1 VlanId12 EtherType16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.wire.fields import fit, need

HEADER: Final = "vlan"
SIZE: Final = 4


@dataclass(frozen=True, slots=True)
class Vlan:
    """A VLAN tag; `ether_type` says what follows it."""

    priority: int
    drop_eligible: bool
    vlan_id: int
    ether_type: int

    @property
    def size(self) -> int:
        """Length in bytes."""
        return SIZE

    def encode(self) -> bytes:
        """Return the tag's 4 bytes; raise WireError for a value that does not fit."""
        fit(HEADER, priority=(self.priority, 3), vlan_id=(self.vlan_id, 12), ether_type=(self.ether_type, 16))
        control = self.priority << 13 | self.drop_eligible << 12 | self.vlan_id
        return (control << 16 | self.ether_type).to_bytes(SIZE, "big")


def decode(data: bytes, offset: int = 0) -> Vlan:
    """Return the tag at `offset`; raise WireError if it is cut short."""
    need(HEADER, data, offset, SIZE)
    control = int.from_bytes(data[offset : offset + 2], "big")
    ether_type = int.from_bytes(data[offset + 2 : offset + 4], "big")
    return Vlan(control >> 13, bool(control >> 12 & 1), control & 0xFFF, ether_type)
