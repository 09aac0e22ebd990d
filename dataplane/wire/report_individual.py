"""Individual report header, 4 bytes, before each report of a group (Telemetry Report v2.0, section 3.3).

ReportType4 InnerType4 ReportLength8 MetadataLength8 Dropped1 Queue1 Flow1 Intermediate1 Reserved4.
ReportLength counts the words after this header, 0xff means up to the end of the UDP payload.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from dataplane.wire.fields import fit, need

HEADER: Final = "individual report"
SIZE: Final = 4
TO_THE_END: Final = 0xFF


class ReportType(IntEnum):
    """Type of the main contents."""

    INNER_ONLY = 0
    INT = 1
    IOAM = 2


class InnerType(IntEnum):
    """Type of the inner contents."""

    NONE = 0
    TLV = 1
    DOMAIN = 2
    ETHERNET = 3
    IPV4 = 4
    IPV6 = 5


@dataclass(frozen=True, slots=True)
class IndividualHeader:
    """An individual report's header; lengths in words."""

    report_type: ReportType
    inner_type: InnerType
    length_words: int
    metadata_words: int
    dropped: bool = False
    congested: bool = False
    tracked: bool = False
    intermediate: bool = False

    @property
    def size(self) -> int:
        """Length in bytes of this header only."""
        return SIZE

    def encode(self) -> bytes:
        """Return the header's 4 bytes, reserved bits 0; raise WireError for a value that does not fit."""
        fit(HEADER, length_words=(self.length_words, 8), metadata_words=(self.metadata_words, 8))
        flags = self.dropped << 7 | self.congested << 6 | self.tracked << 5 | self.intermediate << 4
        return bytes((self.report_type << 4 | self.inner_type, self.length_words, self.metadata_words, flags))


@dataclass(frozen=True, slots=True)
class ReservedHeader:
    """The header of a report of a reserved type: it says only where the report ends."""

    types: int
    length_words: int

    @property
    def size(self) -> int:
        """Length in bytes of this header only."""
        return SIZE


def decode(data: bytes, offset: int = 0) -> IndividualHeader | ReservedHeader:
    """Return the header at `offset`; raise WireError if it is cut short."""
    need(HEADER, data, offset, SIZE)
    types, length, metadata, flags = data[offset : offset + SIZE]
    try:
        report_type, inner_type = ReportType(types >> 4), InnerType(types & 0xF)
    except ValueError:
        return ReservedHeader(types, length)
    return IndividualHeader(
        report_type,
        inner_type,
        length,
        metadata,
        dropped=bool(flags & 0x80),
        congested=bool(flags & 0x40),
        tracked=bool(flags & 0x20),
        intermediate=bool(flags & 0x10),
    )
