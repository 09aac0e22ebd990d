"""IPv4 header, 20 to 60 bytes (RFC 791, section 3.1; DSCP and ECN of RFC 2474 and RFC 3168).

Version4=4 IHL4 DSCP6 ECN2 TotalLength16 | Identification16 Flags3 FragmentOffset13 |
TimeToLive8 Protocol8 HeaderChecksum16 | Source32 | Destination32 | options, IHL-5 words.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.checksum import internet_checksum
from dataplane.wire.fields import fit, need

HEADER: Final = "ipv4"
MIN_SIZE: Final = 20
_FIXED: Final = struct.Struct("!BBHHHBBHII")

PROTOCOL_ICMP: Final = 1
PROTOCOL_TCP: Final = 6
PROTOCOL_UDP: Final = 17

DONT_FRAGMENT: Final = 0b010


@dataclass(frozen=True, slots=True)
class Ipv4:
    """An IPv4 header; `total_length` counts header and payload in bytes, `fragment_offset` units of 8 bytes.

    `options` are kept as they are; the checksum is the packet's own: `valid` verifies it, `checked` corrects it.
    """

    src: IPv4Address
    dst: IPv4Address
    protocol: int
    total_length: int
    dscp: int = 0
    ecn: int = 0
    identification: int = 0
    flags: int = 0
    fragment_offset: int = 0
    ttl: int = 64
    checksum: int = 0
    options: bytes = b""

    @property
    def size(self) -> int:
        """Length in bytes, options included."""
        return MIN_SIZE + len(self.options)

    @property
    def valid(self) -> bool:
        """True if the checksum is correct."""
        return internet_checksum(self.encode()) == 0

    def checked(self) -> Ipv4:
        """Return the header with the correct checksum."""
        return replace(self, checksum=internet_checksum(replace(self, checksum=0).encode()))

    def encode(self) -> bytes:
        """Return the header's bytes; raise WireError for a value that does not fit."""
        if len(self.options) % 4 or len(self.options) > 40:
            raise WireError(HEADER, f"{len(self.options)} bytes of options are not 0 to 10 words")
        fit(
            HEADER,
            protocol=(self.protocol, 8),
            total_length=(self.total_length, 16),
            dscp=(self.dscp, 6),
            ecn=(self.ecn, 2),
            identification=(self.identification, 16),
            flags=(self.flags, 3),
            fragment_offset=(self.fragment_offset, 13),
            ttl=(self.ttl, 8),
            checksum=(self.checksum, 16),
        )
        fixed = _FIXED.pack(
            # The upper half is the version, the lower one the length in words.
            0x40 | self.size // 4,
            self.dscp << 2 | self.ecn,
            self.total_length,
            self.identification,
            self.flags << 13 | self.fragment_offset,
            self.ttl,
            self.protocol,
            self.checksum,
            int(self.src),
            int(self.dst),
        )
        return fixed + self.options


def decode(data: bytes, offset: int = 0) -> Ipv4:
    """Return the header at `offset`; raise WireError if it is cut short, of another version or has a bad length.

    The payload may be shorter than `total_length` says: reports carry truncated packets.
    """
    need(HEADER, data, offset, MIN_SIZE)
    first, tos, total, ident, fragment, ttl, protocol, checksum, src, dst = _FIXED.unpack_from(data, offset)
    if first >> 4 != 4:
        raise WireError(HEADER, f"version is {first >> 4}, not 4", offset=offset)
    size = (first & 0xF) * 4
    if size < MIN_SIZE:
        raise WireError(HEADER, f"header length of {size} bytes is below 20", offset=offset)
    if total < size:
        raise WireError(HEADER, f"total length {total} is below the header's {size}", offset=offset)
    need(HEADER, data, offset, size)
    return Ipv4(
        src=IPv4Address(src),
        dst=IPv4Address(dst),
        protocol=protocol,
        total_length=total,
        dscp=tos >> 2,
        ecn=tos & 3,
        identification=ident,
        flags=fragment >> 13,
        fragment_offset=fragment & 0x1FFF,
        ttl=ttl,
        checksum=checksum,
        options=bytes(data[offset + MIN_SIZE : offset + size]),
    )
