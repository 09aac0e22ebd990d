"""INT shim header after a GRE header, 4 bytes (INT v2.1, section 5.7.1 "INT over IPv4/GRE").

Type4 G1 Reserved3 Length8 NextProtocol16; Length counts the words after the shim, NextProtocol is an EtherType.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import fit, need
from dataplane.wire.int_shim import IntType

HEADER: Final = "INT shim of GRE"
SIZE: Final = 4

ETHER_INT: Final = 0x88B5
"""GRE's protocol type for INT (TBD_INT in the specification): unassigned, so the first experimental EtherType."""

ETHER_BRIDGED: Final = 0x6558
"""Transparent Ethernet bridging: an Ethernet frame follows."""


@dataclass(frozen=True, slots=True)
class GreShim:
    """A shim header; `gre_inserted` (G) says that the INT source inserted the GRE header, which the sink removes."""

    int_type: IntType
    length_words: int
    next_protocol: int
    gre_inserted: bool = False

    @property
    def size(self) -> int:
        """Length in bytes of the shim only."""
        return SIZE

    def encode(self) -> bytes:
        """Return the shim's 4 bytes, reserved bits 0; raise WireError for a value that does not fit."""
        fit(HEADER, length_words=(self.length_words, 8), next_protocol=(self.next_protocol, 16))
        first = self.int_type << 4 | self.gre_inserted << 3
        return bytes((first, self.length_words)) + self.next_protocol.to_bytes(2, "big")


def decode(data: bytes, offset: int = 0) -> GreShim:
    """Return the shim at `offset`; raise WireError if it is cut short or its type is not defined."""
    need(HEADER, data, offset, SIZE)
    first = data[offset]
    try:
        int_type = IntType(first >> 4)
    except ValueError as error:
        raise WireError(HEADER, f"type {first >> 4} is not defined", offset=offset) from error
    next_protocol = data[offset + 2] << 8 | data[offset + 3]
    return GreShim(int_type, data[offset + 1], next_protocol, gre_inserted=bool(first & 8))
