"""INT-MD header, 12 bytes, and the metadata stack after it (INT v2.1, section 5.8).

Version4=2 D1 E1 M1 R12 HopML5 RemainingHops8 | Instructions16 DomainId16 | DomainInstructions16 DomainFlags16;
then the hops, newest first, HopML words each. The source's, the last, may be longer by "source-only" domain words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError
from dataplane.wire import int_metadata
from dataplane.wire.fields import fit, need
from dataplane.wire.int_metadata import HopMetadata

HEADER: Final = "INT-MD"
SIZE: Final = 12
VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class IntMd:
    """An INT-MD header: D discard at the sink, E hop count exceeded, M MTU exceeded; reserved bits are ignored."""

    hop_ml: int
    remaining_hops: int
    instructions: int
    domain_id: int = 0
    domain_instructions: int = 0
    domain_flags: int = 0
    discard: bool = False
    hop_count_exceeded: bool = False
    mtu_exceeded: bool = False

    @property
    def size(self) -> int:
        """Length in bytes, without the stack."""
        return SIZE

    def encode(self) -> bytes:
        """Return the header's 12 bytes, reserved bits 0; raise WireError for a value that does not fit."""
        fit(
            HEADER,
            hop_ml=(self.hop_ml, 5),
            remaining_hops=(self.remaining_hops, 8),
            instructions=(self.instructions, 16),
            domain_id=(self.domain_id, 16),
            domain_instructions=(self.domain_instructions, 16),
            domain_flags=(self.domain_flags, 16),
        )
        flags = self.discard << 27 | self.hop_count_exceeded << 26 | self.mtu_exceeded << 25
        first = VERSION << 28 | flags | self.hop_ml << 8 | self.remaining_hops
        second = self.instructions << 16 | self.domain_id
        third = self.domain_instructions << 16 | self.domain_flags
        return (first << 64 | second << 32 | third).to_bytes(SIZE, "big")


def decode(data: bytes, offset: int = 0) -> IntMd:
    """Return the header at `offset`; raise WireError if it is cut short or of another version."""
    need(HEADER, data, offset, SIZE)
    words = int.from_bytes(data[offset : offset + SIZE], "big")
    if words >> 92 != VERSION:
        raise WireError(HEADER, f"version is {words >> 92}, not {VERSION}", offset=offset)
    return IntMd(
        hop_ml=words >> 72 & 0x1F,
        remaining_hops=words >> 64 & 0xFF,
        instructions=words >> 48 & 0xFFFF,
        domain_id=words >> 32 & 0xFFFF,
        domain_instructions=words >> 16 & 0xFFFF,
        domain_flags=words & 0xFFFF,
        discard=bool(words >> 91 & 1),
        hop_count_exceeded=bool(words >> 90 & 1),
        mtu_exceeded=bool(words >> 89 & 1),
    )


def decode_stack(
    header: IntMd, data: bytes, offset: int, size: int, *, source_only_words: int | None = None
) -> tuple[HopMetadata, ...]:
    """Return the hops of a stack of `size` bytes at `offset`, newest first.

    The wire does not say how many words of the source's hop are "source-only" domain metadata. A caller that knows the
    domain can give `source_only_words`. Otherwise, if the header has domain instructions, the remainder after whole
    hops is taken for them; without any hop they are the words of a source whose hop is missing. Raises WireError if the
    stack is cut short or no number of hops explains it.
    """
    need(HEADER, data, offset, size)
    if size == 0:
        return ()
    hop_size = 4 * header.hop_ml
    if hop_size == 0 and header.domain_instructions and size % 4 == 0:
        return ()
    if hop_size == 0:
        raise WireError(HEADER, f"HopML is 0, but the stack has {size} bytes", offset=offset)
    if source_only_words is None:
        source_only = size % hop_size if header.domain_instructions else 0
    else:
        source_only = 4 * source_only_words
    count, left = divmod(size - source_only, hop_size)
    if count < 0 or left or size % 4:
        problem = f"a stack of {size} bytes is not a multiple of HopML's {hop_size} bytes"
        raise WireError(HEADER, problem, offset=offset)
    if count == 0:
        return ()
    sizes = [hop_size] * (count - 1) + [hop_size + source_only]
    return tuple(
        int_metadata.decode(data, offset + i * hop_size, header.instructions, hop_bytes)
        for i, hop_bytes in enumerate(sizes)
    )


def encode_stack(header: IntMd, hops: tuple[HopMetadata, ...]) -> bytes:
    """Return the stack of `hops`, newest first; raise WireError unless each has HopML words, the source at least."""
    stack = [hop.encode(header.instructions) for hop in hops]
    for hop in stack[:-1]:
        if len(hop) != 4 * header.hop_ml:
            raise WireError(HEADER, f"a hop of {len(hop)} bytes does not agree with HopML {header.hop_ml}")
    if stack and len(stack[-1]) < 4 * header.hop_ml:
        raise WireError(HEADER, f"the source's {len(stack[-1])} bytes do not agree with HopML {header.hop_ml}")
    return b"".join(stack)
