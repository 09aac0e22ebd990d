"""Domain specific metadata: the meaning of the 16 bits of a domain's bitmap (INT v2.1, sections 5.8 and 5.9).

The wire does not say how long a bit's metadata is, nor who inserts it: an INT domain defines both. Bit 0 is the most
significant. Source-only (MD) and source-inserted (MX) bits are written by the source, the others by every hop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError

HEADER: Final = "domain metadata"
SEQUENCE: Final = 0x8000
FORWARDING: Final = 0x4000
COMPLETION: Final = 0x2000


@dataclass(frozen=True, slots=True)
class Domain:
    """An INT domain; `words` gives the number of words for each bit, most significant first (0: none).

    `source_bits` are those that only the source writes: "source-only" in MD, "source-inserted" in MX.
    """

    domain_id: int
    words: tuple[int, ...]
    source_bits: int = 0

    def hop_words(self, bits: int) -> int:
        """Return the number of words each hop writes for a bitmap, which the domain adds to HopML."""
        return self._count(bits & ~self.source_bits)

    def source_words(self, bits: int) -> int:
        """Return the source's additional word count: the excess of its hop in MD, the header's tail in MX."""
        return self._count(bits & self.source_bits)

    def split(self, bits: int, data: bytes) -> dict[int, bytes]:
        """Return the metadata of each set bit, in bit order; raise WireError unless `data` has exactly their length."""
        values: dict[int, bytes] = {}
        at = 0
        for number, words in self._set(bits):
            values[number] = data[at : at + 4 * words]
            at += 4 * words
        if at != len(data):
            raise WireError(HEADER, f"{len(data)} bytes are not the {at} of domain {self.domain_id:#06x}'s bits")
        return values

    def _count(self, bits: int) -> int:
        return sum(words for _, words in self._set(bits))

    def _set(self, bits: int) -> list[tuple[int, int]]:
        return [(number, words) for number, words in enumerate(self.words) if bits & 0x8000 >> number and words]


FABRIC: Final = Domain(0x4D52, (1, 1, 4), source_bits=SEQUENCE)
"""Our P4 program's domain. SEQUENCE, from the source: its count of marked packets. FORWARDING, from every hop:
decision8 (1 flow path, 2 destination path, 3 route), TTL8 as it left the hop, 16 zero bits. COMPLETION, only in reports
of switches that add up: completion.py."""
