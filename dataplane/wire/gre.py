"""GRE header, 4 to 16 bytes (RFC 2784, section 2, and RFC 2890: key and sequence number).

C1 R1 K1 S1 Reserved9 Version3=0 ProtocolType16 | with C: Checksum16 Reserved16 | with K: Key32 | with S: Sequence32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import fit, need

HEADER: Final = "gre"
MIN_SIZE: Final = 4
PROTOCOL_GRE: Final = 47
"""GRE's IP protocol number."""

_CHECKSUM: Final = 0x8000
_KEY: Final = 0x2000
_SEQUENCE: Final = 0x1000
# RFC 2784, section 2.3: discard if any of bits 1 to 5 is set; RFC 2890 gives 2 and 3 their meaning.
_REFUSED: Final = 0x4C00


@dataclass(frozen=True, slots=True)
class Gre:
    """A GRE header; None for an absent field."""

    protocol_type: int
    checksum: int | None = None
    key: int | None = None
    sequence: int | None = None

    @property
    def size(self) -> int:
        """Length in bytes."""
        return MIN_SIZE + 4 * sum(field is not None for field in (self.checksum, self.key, self.sequence))

    def encode(self) -> bytes:
        """Return the header's bytes, reserved bits 0; raise WireError for a value that does not fit."""
        fit(HEADER, protocol_type=(self.protocol_type, 16), checksum=(self.checksum or 0, 16))
        fit(HEADER, key=(self.key or 0, 32), sequence=(self.sequence or 0, 32))
        flags = _CHECKSUM * (self.checksum is not None) | _KEY * (self.key is not None)
        flags |= _SEQUENCE * (self.sequence is not None)
        words = [flags << 16 | self.protocol_type]
        words += [] if self.checksum is None else [self.checksum << 16]
        words += [field for field in (self.key, self.sequence) if field is not None]
        return b"".join(word.to_bytes(4, "big") for word in words)


def decode(data: bytes, offset: int = 0) -> Gre:
    """Return the header at `offset`; raise WireError if it is cut short, routed (RFC 1701) or of another version."""
    need(HEADER, data, offset, MIN_SIZE)
    flags = int.from_bytes(data[offset : offset + 2], "big")
    # The lowest three bits are the version, which RFC 2784 sets to 0.
    if flags & _REFUSED or flags & 7:
        raise WireError(HEADER, f"flags and version {flags:#06x} are not of RFC 2784", offset=offset)
    protocol_type = int.from_bytes(data[offset + 2 : offset + 4], "big")
    present = [bool(flags & bit) for bit in (_CHECKSUM, _KEY, _SEQUENCE)]
    need(HEADER, data, offset, MIN_SIZE + 4 * sum(present))
    at, words = offset + MIN_SIZE, list[int | None]()
    for is_there in present:
        words.append(int.from_bytes(data[at : at + 4], "big") if is_there else None)
        at += 4 * is_there
    checksum, key, sequence = words
    return Gre(protocol_type, None if checksum is None else checksum >> 16, key, sequence)
