"""INT shim header after a VXLAN-GPE header, 4 bytes (INT v2.1, section 5.7.3 "INT over VXLAN GPE").

Type4 Reserved4 Length8 G1 Reserved7 NextProtocol8; Length counts words after the shim, NextProtocol is VXLAN-GPE's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import fit, need
from dataplane.wire.int_shim import IntType

HEADER: Final = "INT shim of VXLAN-GPE"
SIZE: Final = 4


@dataclass(frozen=True, slots=True)
class VxlanGpeShim:
    """A shim header; `was_vxlan` (G) says that the packet came as plain VXLAN, which the sink restores."""

    int_type: IntType
    length_words: int
    next_protocol: int
    was_vxlan: bool = False

    @property
    def size(self) -> int:
        """Length in bytes of the shim only."""
        return SIZE

    def encode(self) -> bytes:
        """Return the shim's 4 bytes, reserved bits 0; raise WireError for a value that does not fit."""
        fit(HEADER, length_words=(self.length_words, 8), next_protocol=(self.next_protocol, 8))
        return bytes((self.int_type << 4, self.length_words, self.was_vxlan << 7, self.next_protocol))


def decode(data: bytes, offset: int = 0) -> VxlanGpeShim:
    """Return the shim at `offset`; raise WireError if it is cut short or its type is not defined."""
    need(HEADER, data, offset, SIZE)
    first, length, third, next_protocol = data[offset : offset + SIZE]
    try:
        int_type = IntType(first >> 4)
    except ValueError as error:
        raise WireError(HEADER, f"type {first >> 4} is not defined", offset=offset) from error
    return VxlanGpeShim(int_type, length, next_protocol, was_vxlan=bool(third & 0x80))
