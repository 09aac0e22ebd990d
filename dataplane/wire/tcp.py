"""TCP header, 20 to 60 bytes (RFC 9293, section 3.1).

SourcePort16 DestinationPort16 | SequenceNumber32 | AcknowledgmentNumber32 |
DataOffset4 Reserved4 Flags8 (CWR ECE URG ACK PSH RST SYN FIN) Window16 | Checksum16 UrgentPointer16 | options.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.checksum import transport_checksum
from dataplane.wire.fields import IpAddress, fit, need
from dataplane.wire.ipv4 import PROTOCOL_TCP

HEADER: Final = "tcp"
MIN_SIZE: Final = 20
_FIXED: Final = struct.Struct("!HHIIBBHHH")


@dataclass(frozen=True, slots=True)
class Tcp:
    """A TCP header; the reserved bits and the options are kept as they are."""

    src_port: int
    dst_port: int
    sequence: int = 0
    acknowledgment: int = 0
    reserved: int = 0
    flags: int = 0
    window: int = 0
    checksum: int = 0
    urgent: int = 0
    options: bytes = b""

    @property
    def size(self) -> int:
        """Length in bytes, options included."""
        return MIN_SIZE + len(self.options)

    def encode(self) -> bytes:
        """Return the header's bytes; raise WireError for a value that does not fit."""
        if len(self.options) % 4 or len(self.options) > 40:
            raise WireError(HEADER, f"{len(self.options)} bytes of options are not 0 to 10 words")
        fit(
            HEADER,
            src_port=(self.src_port, 16),
            dst_port=(self.dst_port, 16),
            sequence=(self.sequence, 32),
            acknowledgment=(self.acknowledgment, 32),
            reserved=(self.reserved, 4),
            flags=(self.flags, 8),
            window=(self.window, 16),
            checksum=(self.checksum, 16),
            urgent=(self.urgent, 16),
        )
        fixed = _FIXED.pack(
            self.src_port,
            self.dst_port,
            self.sequence,
            self.acknowledgment,
            self.size // 4 << 4 | self.reserved,
            self.flags,
            self.window,
            self.checksum,
            self.urgent,
        )
        return fixed + self.options


def decode(data: bytes, offset: int = 0) -> Tcp:
    """Return the header at `offset`; raise WireError if it is cut short or its data offset is below 5."""
    need(HEADER, data, offset, MIN_SIZE)
    src_port, dst_port, seq, ack, lengths, flags, window, checksum, urgent = _FIXED.unpack_from(data, offset)
    size = (lengths >> 4) * 4
    if size < MIN_SIZE:
        raise WireError(HEADER, f"header length of {size} bytes is below 20", offset=offset)
    need(HEADER, data, offset, size)
    options = bytes(data[offset + MIN_SIZE : offset + size])
    return Tcp(src_port, dst_port, seq, ack, lengths & 0xF, flags, window, checksum, urgent, options)


def segment(src: IpAddress, dst: IpAddress, header: Tcp, payload: bytes) -> bytes:
    """Return header and payload with the correct checksum in place of the header's."""
    bare = header.encode()
    # The checksum is computed with its own field, bytes 16 and 17, as 0.
    bare = bare[:16] + b"\0\0" + bare[18:] + payload
    checksum = transport_checksum(src, dst, PROTOCOL_TCP, bare)
    return bare[:16] + checksum.to_bytes(2, "big") + bare[18:]
