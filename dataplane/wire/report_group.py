"""Telemetry report group header, 8 bytes, the first of a report's UDP payload (Telemetry Report v2.0, section 3.2).

Version4=2 HardwareId6 SequenceNumber22 | NodeId32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import fit, need

HEADER: Final = "report group"
SIZE: Final = 8
VERSION: Final = 2
SEQUENCE_BITS: Final = 22


@dataclass(frozen=True, slots=True)
class ReportGroup:
    """Sender of the reports that follow; `sequence` counts, modulo 2**22, per node, hardware and destination."""

    hw_id: int
    sequence: int
    node_id: int

    @property
    def size(self) -> int:
        """Length in bytes."""
        return SIZE

    def encode(self) -> bytes:
        """Return the header's 8 bytes; raise WireError for a value that does not fit."""
        fit(HEADER, hw_id=(self.hw_id, 6), sequence=(self.sequence, SEQUENCE_BITS), node_id=(self.node_id, 32))
        first = VERSION << 28 | self.hw_id << SEQUENCE_BITS | self.sequence
        return (first << 32 | self.node_id).to_bytes(SIZE, "big")


def decode(data: bytes, offset: int = 0) -> ReportGroup:
    """Return the header at `offset`; raise WireError if it is cut short or of another version."""
    need(HEADER, data, offset, SIZE)
    first = int.from_bytes(data[offset : offset + 4], "big")
    if first >> 28 != VERSION:
        raise WireError(HEADER, f"version is {first >> 28}, not {VERSION}", offset=offset)
    node_id = int.from_bytes(data[offset + 4 : offset + 8], "big")
    return ReportGroup(first >> SEQUENCE_BITS & 0x3F, first & (1 << SEQUENCE_BITS) - 1, node_id)
