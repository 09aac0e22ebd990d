"""Report of an item that all children have contributed to: our domain's COMPLETION metadata, 16 bytes.

Job16 LastChild8 Leaf1 Zero7 | Item32 | WaitUs32 | Repeated16 Ahead16, in network order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.domain_metadata import COMPLETION, FABRIC
from dataplane.wire.fields import fit, need
from dataplane.wire.report_int import IntReport

HEADER: Final = "completion"
SIZE: Final = 16
_BIT: Final = 2


@dataclass(frozen=True, slots=True)
class Completion:
    """Completion of a job's item: the last contributor, and the costs. With `leaf` set, the sum is one rack's."""

    job: int
    item: int
    last_child: int
    """The number of the child whose contribution arrived last, its bit in the job's mask."""
    wait_us: int
    """Time from the first contribution to the last; saturates."""
    repeated: int
    """Contributions received more than once: retransmissions."""
    ahead: int
    """Items by which the job's newest open one is ahead of this one: an upper bound on other cells in use."""
    leaf: bool = False

    def encode(self) -> bytes:
        """Encode the metadata; raise WireError for a value that does not fit its field."""
        fit(HEADER, job=(self.job, 16), item=(self.item, 32), last_child=(self.last_child, 8))
        fit(HEADER, wait_us=(self.wait_us, 32), repeated=(self.repeated, 16), ahead=(self.ahead, 16))
        first = self.job << 16 | self.last_child << 8 | self.leaf << 7
        words = first << 96 | self.item << 64 | self.wait_us << 32 | self.repeated << 16 | self.ahead
        return words.to_bytes(SIZE, "big")


def decode(data: bytes, offset: int = 0) -> Completion:
    """Return the metadata at `offset`; raise WireError if they are cut short or reserved bits are set."""
    need(HEADER, data, offset, SIZE)
    words = int.from_bytes(data[offset : offset + SIZE], "big")
    if words >> 96 & 0x7F:
        raise WireError(HEADER, "reserved bits are set", offset=offset)
    return Completion(
        job=words >> 112,
        item=words >> 64 & 0xFFFFFFFF,
        last_child=words >> 104 & 0xFF,
        wait_us=words >> 32 & 0xFFFFFFFF,
        repeated=words >> 16 & 0xFFFF,
        ahead=words & 0xFFFF,
        leaf=bool(words >> 103 & 1),
    )


def in_report(report: IntReport) -> Completion | None:
    """Return a report's completion, None if it is about something else; raise WireError if malformed."""
    if report.domain_id != FABRIC.domain_id or not report.domain_bits & COMPLETION:
        return None
    return decode(FABRIC.split(report.domain_bits, report.metadata.domain)[_BIT])
