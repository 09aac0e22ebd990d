"""UDP header, 8 bytes (RFC 768): SourcePort16 DestinationPort16 | Length16 Checksum16."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.checksum import transport_checksum
from dataplane.wire.fields import IpAddress, fit, need
from dataplane.wire.ipv4 import PROTOCOL_UDP

HEADER: Final = "udp"
SIZE: Final = 8
_FIXED: Final = struct.Struct("!HHHH")


@dataclass(frozen=True, slots=True)
class Udp:
    """A UDP header; `length` counts header and payload in bytes, checksum 0 means that the sender computed none."""

    src_port: int
    dst_port: int
    length: int
    checksum: int = 0

    @property
    def size(self) -> int:
        """Length in bytes."""
        return SIZE

    def encode(self) -> bytes:
        """Return the header's 8 bytes; raise WireError for a value that does not fit."""
        fit(
            HEADER,
            src_port=(self.src_port, 16),
            dst_port=(self.dst_port, 16),
            length=(self.length, 16),
            checksum=(self.checksum, 16),
        )
        return _FIXED.pack(self.src_port, self.dst_port, self.length, self.checksum)


def decode(data: bytes, offset: int = 0) -> Udp:
    """Return the header at `offset`; raise WireError if it is cut short or its length is below 8."""
    need(HEADER, data, offset, SIZE)
    src_port, dst_port, length, checksum = _FIXED.unpack_from(data, offset)
    if length < SIZE:
        raise WireError(HEADER, f"length {length} is below 8", offset=offset)
    return Udp(src_port, dst_port, length, checksum)


def segment(src: IpAddress, dst: IpAddress, src_port: int, dst_port: int, payload: bytes) -> bytes:
    """Return header and payload with the correct checksum; a computed 0 is sent as 0xffff (RFC 768)."""
    length = SIZE + len(payload)
    bare = Udp(src_port, dst_port, length).encode() + payload
    return bare[:6] + (transport_checksum(src, dst, PROTOCOL_UDP, bare) or 0xFFFF).to_bytes(2, "big") + payload
