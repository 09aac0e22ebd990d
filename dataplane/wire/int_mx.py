"""INT-MX header, 12 bytes, and the metadata that its source inserted (INT v2.1, section 5.9).

Version4=2 D1 R27 | Instructions16 DomainId16 | DomainInstructions16 DomainFlags16; then "source-inserted" domain
metadata up to the end of the shim's length. The packet carries nothing else: each hop reports the requested values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import fit, need

HEADER: Final = "INT-MX"
SIZE: Final = 12
VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class IntMx:
    """An INT-MX header: D discard at the sink; reserved bits are ignored; `source_inserted` is whole words."""

    instructions: int
    domain_id: int = 0
    domain_instructions: int = 0
    domain_flags: int = 0
    source_inserted: bytes = b""
    discard: bool = False

    @property
    def size(self) -> int:
        """Length in bytes, source-inserted metadata included."""
        return SIZE + len(self.source_inserted)

    def encode(self) -> bytes:
        """Return the header's bytes, reserved bits 0; raise WireError for a value that does not fit."""
        if len(self.source_inserted) % 4:
            raise WireError(
                HEADER, f"{len(self.source_inserted)} bytes of source-inserted metadata are not whole words"
            )
        fit(
            HEADER,
            instructions=(self.instructions, 16),
            domain_id=(self.domain_id, 16),
            domain_instructions=(self.domain_instructions, 16),
            domain_flags=(self.domain_flags, 16),
        )
        first = VERSION << 28 | self.discard << 27
        second = self.instructions << 16 | self.domain_id
        third = self.domain_instructions << 16 | self.domain_flags
        return (first << 64 | second << 32 | third).to_bytes(SIZE, "big") + self.source_inserted


def decode(data: bytes, offset: int = 0, size: int = SIZE) -> IntMx:
    """Return the header at `offset` that takes `size` bytes; raise WireError if cut short or of another version."""
    if size < SIZE or size % 4:
        raise WireError(HEADER, f"a header of {size} bytes is not 12 and whole words", offset=offset)
    need(HEADER, data, offset, size)
    words = int.from_bytes(data[offset : offset + SIZE], "big")
    if words >> 92 != VERSION:
        raise WireError(HEADER, f"version is {words >> 92}, not {VERSION}", offset=offset)
    return IntMx(
        instructions=words >> 48 & 0xFFFF,
        domain_id=words >> 32 & 0xFFFF,
        domain_instructions=words >> 16 & 0xFFFF,
        domain_flags=words & 0xFFFF,
        source_inserted=bytes(data[offset + SIZE : offset + size]),
        discard=bool(words >> 91 & 1),
    )
