"""Operations on 16 words at once."""

from __future__ import annotations

import ctypes

from hypothesis import given
from hypothesis import strategies as st

from dataplane.native import Array, kernel, kernel_library, same_bits, spread_be32, u8, u32, u64
from tests.dataplane.switch.compiled.guarded_memory import Guarded

WORDS = 16
SIZE = 4 * WORDS


@kernel
def spread(target: Array[u32], data: Array[u8], at: u64, places: u32) -> None:
    spread_be32(target, data, at, places)


@kernel
def same(data: Array[u8], other: Array[u8], mask: Array[u8]) -> bool:
    return same_bits(data, other, mask)


MEMORY = Guarded(SIZE + 16)


@given(data=st.binary(min_size=SIZE, max_size=SIZE), places=st.integers(0, (1 << WORDS) - 1), before=st.integers(0, 7))
def test_words_are_spread_over_places_and_no_byte_more_is_read(data: bytes, places: int, before: int) -> None:
    count = places.bit_count()
    address = MEMORY.put(bytes(before) + data[: 4 * count], at_end=True)
    target = (ctypes.c_uint32 * WORDS)()
    kernel_library(spread, same).bind(spread)(target, address, before, places)
    words = iter(int.from_bytes(data[at : at + 4], "big") for at in range(0, SIZE, 4))
    assert list(target) == [next(words) if places >> index & 1 else 0xFFFF_FFFF for index in range(WORDS)]


@given(
    one=st.binary(min_size=SIZE, max_size=SIZE),
    flips=st.dictionaries(st.integers(0, SIZE - 1), st.integers(1, 255), max_size=3),
    masks=st.dictionaries(st.integers(0, SIZE - 1), st.integers(1, 255), max_size=6),
)
def test_bits_are_compared_where_a_mask_has_ones(one: bytes, flips: dict[int, int], masks: dict[int, int]) -> None:
    other = bytes(byte ^ flips.get(index, 0) for index, byte in enumerate(one))
    mask = bytes(masks.get(index, 0) for index in range(SIZE))
    expected = all(not flips.get(index, 0) & bits for index, bits in masks.items())
    assert kernel_library(spread, same).bind(same)(one, other, mask) == expected
    needed = max((index // 4 * 4 + 4 for index in masks), default=0)
    assert kernel_library(spread, same).bind(same)(MEMORY.put(one[:needed], at_end=True), other, mask) == expected
