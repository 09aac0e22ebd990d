"""INT shim header for TCP and UDP, 4 bytes (INT v2.1, section 5.7.2 "INT over TCP/UDP").

Type4 NPT2 R2 Length8 and 16 bits that depend on NPT (next protocol type):
0: reserved8, original DSCP6, reserved2; 1: original UDP destination port; 2: reserved8, original IP protocol8.
Length counts the words after the shim: INT header and metadata stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import fit, need

HEADER: Final = "INT shim"
SIZE: Final = 4


class IntType(IntEnum):
    """Type of the INT header after the shim."""

    MD = 1
    DESTINATION = 2
    MX = 3


class NextProtocol(IntEnum):
    """NPT: the protocol after the stack, which determines what the shim keeps of the original packet."""

    UNCHANGED = 0
    UDP_PAYLOAD = 1
    NEW_UDP = 2


@dataclass(frozen=True, slots=True)
class IntShim:
    """A shim header; it carries only the `original_` value that `next_protocol` names, the others are 0."""

    int_type: IntType
    length_words: int
    next_protocol: NextProtocol = NextProtocol.UNCHANGED
    original_dscp: int = 0
    original_udp_port: int = 0
    original_protocol: int = 0

    @property
    def size(self) -> int:
        """Length in bytes of the shim only."""
        return SIZE

    def encode(self) -> bytes:
        """Return the shim's 4 bytes, reserved bits 0; raise WireError for a value that does not fit."""
        fit(
            HEADER,
            length_words=(self.length_words, 8),
            original_dscp=(self.original_dscp, 6),
            original_udp_port=(self.original_udp_port, 16),
            original_protocol=(self.original_protocol, 8),
        )
        match self.next_protocol:
            case NextProtocol.UNCHANGED:
                kept = self.original_dscp << 2
            case NextProtocol.UDP_PAYLOAD:
                kept = self.original_udp_port
            case NextProtocol.NEW_UDP:
                kept = self.original_protocol
        first = self.int_type << 4 | self.next_protocol << 2
        return bytes((first, self.length_words)) + kept.to_bytes(2, "big")


def decode(data: bytes, offset: int = 0) -> IntShim:
    """Return the shim at `offset`; raise WireError if it is cut short or its type or NPT is not defined."""
    need(HEADER, data, offset, SIZE)
    first, length = data[offset], data[offset + 1]
    kept = data[offset + 2] << 8 | data[offset + 3]
    try:
        int_type = IntType(first >> 4)
        following = NextProtocol(first >> 2 & 3)
    except ValueError as error:
        raise WireError(HEADER, f"type and NPT byte {first:#04x} is not defined", offset=offset) from error
    match following:
        case NextProtocol.UNCHANGED:
            return IntShim(int_type, length, following, original_dscp=kept >> 2 & 0x3F)
        case NextProtocol.UDP_PAYLOAD:
            return IntShim(int_type, length, following, original_udp_port=kept)
        case NextProtocol.NEW_UDP:
            return IntShim(int_type, length, following, original_protocol=kept & 0xFF)
