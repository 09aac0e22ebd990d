"""The shared index kernels against a dictionary: collisions, removals and shifts."""

from __future__ import annotations

import ctypes

from hypothesis import given
from hypothesis import strategies as st

from dataplane.native import Array, kernel, kernel_library, u64
from dataplane.native.open_addressing import (
    LOW32,
    home_of,
    next_alike,
    next_empty,
    next_tagged,
    next_tagged_shared,
    put_entry,
    remove_entry,
)

PLACES = 32
MASK = PLACES - 1
TAG_SHIFT = 48


@kernel
def put(index: Array[u64], mask: u64, mixed: u64, number: u64) -> None:
    put_entry(index, mask, mixed, number)


@kernel
def remove(index: Array[u64], mask: u64, mixed: u64, number: u64) -> None:
    remove_entry(index, mask, mixed, number)


@kernel
def alike(index: Array[u64], mask: u64, mixed: u64, matches: Array[u64]) -> u64:
    count: u64 = 0
    position = next_alike(index, mask, home_of(mixed, mask), mixed)
    while index[position] != 0:
        matches[count] = index[position] & LOW32
        count += 1
        position = next_alike(index, mask, (position + 1) & mask, mixed)
    return count


@kernel
def tagged(index: Array[u64], mask: u64, start: u64, tag: u64) -> u64:
    return next_tagged(index, mask, start, tag, TAG_SHIFT)


@kernel
def tagged_shared(index: Array[u64], mask: u64, start: u64, tag: u64) -> u64:
    return next_tagged_shared(index, mask, start, tag, TAG_SHIFT)


@kernel
def empty(index: Array[u64], mask: u64, start: u64) -> u64:
    return next_empty(index, mask, start)


LIBRARY = kernel_library(put, remove, alike, tagged, tagged_shared, empty)
# Few homes and tags, some at the end of the index: nearly all collide, and some wrap around.
hashes = st.integers(0, 3).flatmap(lambda tag: st.sampled_from([0, 1, 29, 30, 31]).map(lambda home: tag << 5 | home))
changes = st.lists(st.tuples(hashes, st.integers(1, PLACES - 1)), max_size=100)


@given(changes=changes)
def test_index_finds_entered_and_not_removed_keys(changes: list[tuple[int, int]]) -> None:
    index = (ctypes.c_uint64 * PLACES)()
    matches = (ctypes.c_uint64 * PLACES)()
    entered: dict[int, int] = {}
    for high, number in changes:
        if number in entered:
            LIBRARY.bind(remove)(index, MASK, entered.pop(number), number)
        else:
            entered[number] = high << 32
            LIBRARY.bind(put)(index, MASK, entered[number], number)
        assert sum(entry != 0 for entry in index) == len(entered)
        for mixed in {high << 32, *entered.values()}:
            count = LIBRARY.bind(alike)(index, MASK, mixed, matches)
            assert {*matches[:count]} == {key for key, its in entered.items() if its == mixed}
            assert count == len({*matches[:count]})


@given(
    tags=st.lists(st.integers(0, 3).map(lambda tag: tag << TAG_SHIFT | (tag != 3)), min_size=8, max_size=8),
    start=st.integers(0, 7),
    tag=st.integers(0, 3),
    gap=st.integers(0, 7),
)
def test_a_search_stops_at_a_tag_or_where_nothing_is(tags: list[int], start: int, tag: int, gap: int) -> None:
    tags[gap] = 0
    index = (ctypes.c_uint64 * 8)(*tags)
    order = [(start + step) % 8 for step in range(8)]
    expected = next(position for position in order if not tags[position] or tags[position] >> TAG_SHIFT == tag)
    assert LIBRARY.bind(tagged)(index, 7, start, tag) == expected
    assert LIBRARY.bind(tagged_shared)(index, 7, start, tag) == expected
    assert LIBRARY.bind(empty)(index, 7, start) == next(position for position in order if not tags[position])
