"""Places of fields in a header, found by its codec: readers in other languages take their offsets from here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A field's place in a header: its first bit, counted from the header's first, and its length in bits."""

    bit: int
    bits: int

    @property
    def byte(self) -> int:
        """Offset of the byte with the first bit."""
        return self.bit // 8

    @property
    def mask(self) -> int:
        """All ones of the field's length."""
        return (1 << self.bits) - 1

    def shift(self, word_bits: int = 32) -> int:
        """Return the number of bits behind the field in a word of this many bits."""
        return word_bits - self.bit % word_bits - self.bits


def place_of(encode: Callable[[int], bytes], bits: int) -> Place:
    """Return the place of a field of `bits` bits; `encode` returns a header in which only this field varies.

    Raises ValueError if other bits vary, too.
    """
    ones = (1 << bits) - 1
    empty, full = encode(0), encode(ones)
    changed = int.from_bytes(empty, "big") ^ int.from_bytes(full, "big")
    behind = (changed & -changed).bit_length() - 1
    if changed != ones << behind:
        raise ValueError(f"{changed:#x}: other bits than {bits} in a row change")
    return Place(8 * len(empty) - behind - bits, bits)
