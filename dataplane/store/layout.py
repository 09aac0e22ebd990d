"""Segmentation of values: stored under their name, or, if long, under their own hash.

The first segment of a name begins with Form8 Length56 Hash128, of the whole value (BLAKE2b): packets of named content
have no UDP checksum, so the hash also proves that nothing was changed on the way.

IN_PLACE: the value follows at once, and continues in the name's next segments. BY_HASH: the first segment has nothing
else; the value is cut into blocks, stored as segments 1 and up of the name that is its hash. Blocks never change, so no
copy of one is ever stale, and one small packet, the first segment, replaces the whole value at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from dataplane.store.errors import StoreError
from dataplane.wire.store import QUARTER_BYTES, QUARTERS

SEGMENT_BYTES: Final = QUARTERS * QUARTER_BYTES
PREAMBLE_BYTES: Final = 24
MOST_IN_FIRST: Final = SEGMENT_BYTES - PREAMBLE_BYTES
"""Bytes of a value that fit into one segment."""
MOST_BYTES: Final = 1 << 40

_LENGTH_BITS: Final = 56


class Form(IntEnum):
    """Location of a value."""

    IN_PLACE = 1
    BY_HASH = 2


@dataclass(frozen=True, slots=True)
class Preamble:
    """Description of the value at the start of its first segment."""

    form: Form
    length: int
    hash: int

    @property
    def further(self) -> int:
        """Number of segments besides the first."""
        inside = MOST_IN_FIRST if self.form is Form.IN_PLACE else 0
        return -(-max(0, self.length - inside) // SEGMENT_BYTES)

    def encode(self) -> bytes:
        """Encode the preamble."""
        return (self.form << _LENGTH_BITS + 128 | self.length << 128 | self.hash).to_bytes(PREAMBLE_BYTES, "big")

    def joined(self, segments: Sequence[bytes]) -> bytes | None:
        """Return the value of all its segments, the first one included, None if their hash does not match."""
        whole = b"".join(segments)
        start = PREAMBLE_BYTES if self.form is Form.IN_PLACE else len(segments[0])
        value = whole[start : start + self.length]
        return value if len(value) == self.length and hash_of(value) == self.hash else None


def hash_of(value: bytes) -> int:
    """Return the hash that names a value's blocks."""
    return int.from_bytes(hashlib.blake2b(value, digest_size=16).digest(), "big")


def decode(first: bytes) -> Preamble | None:
    """Decode a first segment's preamble, None if it is invalid."""
    number = int.from_bytes(first[:PREAMBLE_BYTES], "big")
    form, length = number >> _LENGTH_BITS + 128, number >> 128 & (1 << _LENGTH_BITS) - 1
    if len(first) < PREAMBLE_BYTES or form not in (Form.IN_PLACE, Form.BY_HASH) or length > MOST_BYTES:
        return None
    return Preamble(Form(form), length, number & (1 << 128) - 1)


def in_place(value: bytes) -> list[bytes]:
    """Return a value's segments under its own name."""
    _check(value)
    return _cut(Preamble(Form.IN_PLACE, len(value), hash_of(value)).encode() + value)


def by_hash(value: bytes) -> tuple[Preamble, list[bytes]]:
    """Return the content of the name's first segment, and the blocks."""
    _check(value)
    return Preamble(Form.BY_HASH, len(value), hash_of(value)), _cut(value)


def padded(content: bytes) -> bytes:
    """Pad content to whole quarters."""
    return content + bytes(-len(content) % QUARTER_BYTES)


def padded_bytes(length: int) -> int:
    """Return the size of a value's blocks: all but the last are full."""
    whole, rest = divmod(length, SEGMENT_BYTES)
    return whole * SEGMENT_BYTES + rest + -rest % QUARTER_BYTES


def _cut(stream: bytes) -> list[bytes]:
    return [padded(stream[start : start + SEGMENT_BYTES]) for start in range(0, len(stream), SEGMENT_BYTES)]


def _check(value: bytes) -> None:
    if len(value) > MOST_BYTES:
        raise StoreError(f"a value of {len(value)} bytes is longer than {MOST_BYTES}")
