"""Main contents of an INT report, 8 bytes and the reporter's own metadata (Telemetry Report v2.0, section 3.3.1).

MetadataBits16 DomainId16 | DomainMetadataBits16 DomainStatus16 | baseline metadata | domain metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.wire import int_metadata
from dataplane.wire.fields import fit, need
from dataplane.wire.int_metadata import HopMetadata

HEADER: Final = "INT report"
SIZE: Final = 8


@dataclass(frozen=True, slots=True)
class IntReport:
    """INT main contents; `metadata` is the reporter's own hop, its node id is in the group header."""

    bits: int
    metadata: HopMetadata
    domain_id: int = 0
    domain_bits: int = 0
    domain_status: int = 0

    @property
    def size(self) -> int:
        """Length in bytes, metadata included."""
        return SIZE + 4 * int_metadata.baseline_words(self.bits) + len(self.metadata.domain)

    def encode(self) -> bytes:
        """Return the main contents' bytes; raise WireError for a value that does not fit."""
        fit(
            HEADER,
            bits=(self.bits, 16),
            domain_id=(self.domain_id, 16),
            domain_bits=(self.domain_bits, 16),
            domain_status=(self.domain_status, 16),
        )
        words = self.bits << 48 | self.domain_id << 32 | self.domain_bits << 16 | self.domain_status
        return words.to_bytes(SIZE, "big") + self.metadata.encode(self.bits, report=True)


def decode(data: bytes, offset: int, metadata_words: int) -> IntReport:
    """Return the main contents at `offset` with this many words of metadata; raise WireError if they are cut short."""
    need(HEADER, data, offset, SIZE)
    words = int.from_bytes(data[offset : offset + SIZE], "big")
    bits = words >> 48
    metadata = int_metadata.decode(data, offset + SIZE, bits, 4 * metadata_words, report=True)
    return IntReport(bits, metadata, words >> 32 & 0xFFFF, words >> 16 & 0xFFFF, words & 0xFFFF)
