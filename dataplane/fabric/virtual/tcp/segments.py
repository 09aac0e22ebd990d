"""A segment as a connection sees it: header, options, data; sequence numbers have 32 bits, positions are unbounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.wire.tcp import Tcp
from dataplane.wire.tcp_options import TcpOptions

FIN, SYN, RST, PSH, ACK, ECE, CWR = 0x01, 0x02, 0x04, 0x08, 0x10, 0x40, 0x80
NOT_ECT, ECT0, CE = 0, 2, 3
"""Codepoints of IP's ECN field (RFC 3168, section 5)."""
SEQUENCES: Final = 1 << 32
_HALF: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Segment:
    """A received segment, or one to be sent with the `ecn` marks."""

    header: Tcp
    options: TcpOptions
    payload: bytes = b""
    ecn: int = NOT_ECT

    @property
    def flags(self) -> int:
        """The header's flags."""
        return self.header.flags

    @property
    def length(self) -> int:
        """Sequence numbers that it occupies."""
        return len(self.payload) + bool(self.flags & SYN) + bool(self.flags & FIN)


def sequence_of(first: int, position: int) -> int:
    """Return the 32-bit sequence number of a position in a stream whose SYN has the number `first`."""
    return (first + position) % SEQUENCES


def position_of(first: int, sequence: int, near: int) -> int:
    """Return the position of a sequence number: of all with these 32 bits, the one nearest to `near`."""
    difference = (sequence - first - near) % SEQUENCES
    return near + (difference if difference < _HALF else difference - SEQUENCES)


def reset_of(segment: Segment) -> Segment:
    """Return the reset for a segment that belongs to no connection (RFC 9293, section 3.10.7.1)."""
    header = segment.header
    if header.flags & ACK:
        answer = Tcp(header.dst_port, header.src_port, header.acknowledgment, flags=RST)
    else:
        acknowledged = sequence_of(header.sequence, segment.length)
        answer = Tcp(header.dst_port, header.src_port, 0, acknowledged, flags=RST | ACK)
    return Segment(answer, TcpOptions())
