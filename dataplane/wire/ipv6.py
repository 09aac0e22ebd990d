"""IPv6 header, 40 bytes (RFC 8200, section 3).

Version4=6 TrafficClass8 (DSCP6 ECN2) FlowLabel20 | PayloadLength16 NextHeader8 HopLimit8 | Source128 | Destination128.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import fit, need

HEADER: Final = "ipv6"
SIZE: Final = 40
_FIXED: Final = struct.Struct("!IHBB16s16s")


@dataclass(frozen=True, slots=True)
class Ipv6:
    """An IPv6 header; `payload_length` counts the bytes after it, extension headers included."""

    src: IPv6Address
    dst: IPv6Address
    next_header: int
    payload_length: int
    dscp: int = 0
    ecn: int = 0
    flow_label: int = 0
    hop_limit: int = 64

    @property
    def size(self) -> int:
        """Length in bytes."""
        return SIZE

    def encode(self) -> bytes:
        """Return the header's 40 bytes; raise WireError for a value that does not fit."""
        fit(
            HEADER,
            next_header=(self.next_header, 8),
            payload_length=(self.payload_length, 16),
            dscp=(self.dscp, 6),
            ecn=(self.ecn, 2),
            flow_label=(self.flow_label, 20),
            hop_limit=(self.hop_limit, 8),
        )
        first = 6 << 28 | self.dscp << 22 | self.ecn << 20 | self.flow_label
        return _FIXED.pack(
            first, self.payload_length, self.next_header, self.hop_limit, self.src.packed, self.dst.packed
        )


def decode(data: bytes, offset: int = 0) -> Ipv6:
    """Return the header at `offset`; raise WireError if it is cut short or of another version."""
    need(HEADER, data, offset, SIZE)
    first, payload_length, next_header, hop_limit, src, dst = _FIXED.unpack_from(data, offset)
    if first >> 28 != 6:
        raise WireError(HEADER, f"version is {first >> 28}, not 6", offset=offset)
    return Ipv6(
        src=IPv6Address(src),
        dst=IPv6Address(dst),
        next_header=next_header,
        payload_length=payload_length,
        dscp=first >> 22 & 0x3F,
        ecn=first >> 20 & 3,
        flow_label=first & 0xF_FFFF,
        hop_limit=hop_limit,
    )
