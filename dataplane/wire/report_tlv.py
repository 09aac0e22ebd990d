"""TLVs of a report's inner contents (Telemetry Report v2.0, section 3.3.2): 4 bytes and the value each.

Type4 Reserved4 Length8 Template16; Length counts the value's words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import fit, need

HEADER: Final = "report TLV"
SIZE: Final = 4


class TlvType(IntEnum):
    """Type of a TLV's value."""

    DOMAIN = 0
    ETHERNET = 1
    IPV4 = 2
    IPV6 = 3


@dataclass(frozen=True, slots=True)
class Tlv:
    """A TLV: domain data with its template, or a truncated packet."""

    tlv_type: TlvType
    value: bytes
    template: int = 0

    @property
    def size(self) -> int:
        """Length in bytes, value included."""
        return SIZE + len(self.value)

    def encode(self) -> bytes:
        """Return the TLV's bytes; raise WireError unless the value is whole words, 255 at most."""
        if len(self.value) % 4:
            raise WireError(HEADER, f"a value of {len(self.value)} bytes is not whole words")
        fit(HEADER, length=(len(self.value) // 4, 8), template=(self.template, 16))
        return bytes((self.tlv_type << 4, len(self.value) // 4)) + self.template.to_bytes(2, "big") + self.value


def decode(data: bytes, offset: int = 0) -> Tlv:
    """Return the TLV at `offset`; raise WireError if it is cut short or its type is reserved."""
    need(HEADER, data, offset, SIZE)
    kind, words = data[offset] >> 4, data[offset + 1]
    try:
        tlv_type = TlvType(kind)
    except ValueError as error:
        raise WireError(HEADER, f"type {kind} is reserved", offset=offset) from error
    need(HEADER, data, offset + SIZE, 4 * words)
    value = bytes(data[offset + SIZE : offset + SIZE + 4 * words])
    return Tlv(tlv_type, value, int.from_bytes(data[offset + 2 : offset + 4], "big"))


def decode_all(data: bytes) -> tuple[Tlv, ...]:
    """Return every TLV of a report's inner contents; raise WireError if one is malformed."""
    tlvs: list[Tlv] = []
    offset = 0
    while offset < len(data):
        tlvs.append(decode(data, offset))
        offset += tlvs[-1].size
    return tuple(tlvs)
