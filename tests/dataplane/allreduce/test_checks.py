"""Checks of items: changes of one or two bits are detected, in Python and in machine code."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dataplane.allreduce import checks
from dataplane.allreduce.checks import CODE, LANES, WEIGHTS, check_of_one
from dataplane.allreduce.formats import MOST_EXPONENT
from dataplane.allreduce.kernels import checks as native
from dataplane.native import kernel_library

Lanes = NDArray[np.int32]
WORD = (1 << 64) - 1
_LIBRARY = kernel_library(native.weighted, native.is_maximum)


def _weighted_natively(lanes: NDArray[np.generic]) -> int:
    return _LIBRARY.bind(native.weighted)(bytearray(lanes.astype(">i4").tobytes()))


def _is_maximum_natively(lanes: NDArray[np.generic], own: NDArray[np.generic], most: int) -> bool:
    memory = [bytearray(each.astype(">u2").tobytes()) for each in (lanes, own)]
    return bool(_LIBRARY.bind(native.is_maximum)(memory[0], memory[1], most))


WEIGHTED = {"plain": checks.weighted, "native": _weighted_natively}
IS_MAXIMUM = {"plain": checks.is_maximum, "native": _is_maximum_natively}
IsMaximum = Callable[[NDArray[np.generic], NDArray[np.generic], int], bool]
both = pytest.mark.parametrize("weighted", WEIGHTED.values(), ids=WEIGHTED)
both_maxima = pytest.mark.parametrize("is_maximum", IS_MAXIMUM.values(), ids=IS_MAXIMUM)


def _lanes(seed: int) -> Lanes:
    return np.random.default_rng(seed).integers(-(2**31), 2**31, LANES).astype(np.int32)


def _flipped(lanes: Lanes, *places: tuple[int, int]) -> Lanes:
    changed = lanes.view(np.uint32).copy()
    for at, bit in places:
        changed[at] ^= np.uint32(1 << bit)
    return changed.view(np.int32)


@both
def test_the_weighted_sum_of_sums_is_the_sum_of_weighted_sums(weighted: Callable[[Lanes], int]) -> None:
    first, other = _lanes(1) // 2, _lanes(2) // 2
    assert weighted(first + other) == (weighted(first) + weighted(other)) & WORD
    assert weighted(first) == sum(weight * int(lane) for weight, lane in zip(WEIGHTS, first, strict=True)) & WORD


@both
def test_every_bit_of_every_lane_changes_it(weighted: Callable[[Lanes], int]) -> None:
    lanes = _lanes(3)
    right = weighted(lanes)
    assert all(weighted(_flipped(lanes, (at, bit))) != right for at in range(LANES) for bit in range(32))


def test_no_two_bits_that_change_make_up_for_each_other() -> None:
    """a_i 2^b +- a_j 2^c is 0 modulo 2^64 for no two lanes: the a are odd, so that only b = c could do it."""
    assert len({*WEIGHTS}) == LANES
    assert all(weight % 2 == 1 and 0 < weight < 2**31 for weight in WEIGHTS)
    assert not any((weight + other) << 31 & WORD == 0 for weight, other in combinations(WEIGHTS, 2))
    assert not any((weight - other) << 31 & WORD == 0 for weight, other in combinations(WEIGHTS, 2))


@both
@given(st.integers(0, LANES - 1), st.integers(0, LANES - 1), st.integers(0, 31), st.integers(0, 31))
def test_two_flipped_bits_or_swapped_lanes_are_detected(
    weighted: Callable[[Lanes], int], one: int, other: int, bit: int, another: int
) -> None:
    lanes = _lanes(4)
    right = weighted(lanes)
    assert (weighted(_flipped(lanes, (one, bit), (other, another))) != right) == ((one, bit) != (other, another))
    swapped = lanes.copy()
    swapped[[one, other]] = lanes[[other, one]]
    assert (weighted(swapped) != right) == (lanes[one] != lanes[other])


@given(st.integers(0, WORD), st.integers(0, 2**32 - 1), st.integers(1, 4096), st.integers(0, 15), st.integers(0, 31))
def test_a_check_is_of_one_item_and_of_so_many_workers(
    nonce: int, item: int, workers: int, bit: int, item_bit: int
) -> None:
    right = workers * check_of_one(nonce, item) & WORD
    assert (workers ^ 1 << bit) * check_of_one(nonce, item) & WORD != right
    assert workers * check_of_one(nonce, item ^ 1 << item_bit) & WORD != right
    assert workers * check_of_one(nonce, item, 1) & WORD != right


@both_maxima
@pytest.mark.parametrize("exponent", [0, 1, 52, 200, MOST_EXPONENT])
def test_one_or_two_bits_of_a_maximum_that_change_are_seen(is_maximum: IsMaximum, exponent: int) -> None:
    right, own = np.full(LANES, exponent * CODE, np.uint16), np.zeros(LANES, np.uint16)
    assert is_maximum(right, own, MOST_EXPONENT)
    for bit, other in combinations(range(17), 2):
        changed = right.copy()
        changed[LANES - 1] ^= (1 << bit | 1 << other) & 0xFFFF
        assert not is_maximum(changed, own, MOST_EXPONENT)


@both_maxima
def test_maximum_is_at_least_ones_own_and_within_the_limit(is_maximum: IsMaximum) -> None:
    lanes = np.arange(LANES, dtype=np.uint16) * CODE
    assert is_maximum(lanes, lanes, LANES - 1)
    assert not is_maximum(lanes, lanes, LANES - 2)
    more = lanes.copy()
    more[7] += CODE
    assert not is_maximum(lanes, more, LANES)
    assert is_maximum(more, lanes, LANES)


@pytest.mark.parametrize("late", [0, 1, 90, 150, 199, 201, MOST_EXPONENT])
def test_covered_change_is_detected_by_the_larger_sender(late: int) -> None:
    """A cell has 200; one bit of it changes, and then another worker contributes."""
    for bit in range(16):
        lanes = np.full(LANES, max(200 * CODE ^ 1 << bit, late * CODE), np.uint16)
        is_right = int(lanes[0]) == max(200, late) * CODE
        seen = [checks.is_maximum(lanes, np.full(LANES, own * CODE), MOST_EXPONENT) for own in (200, late)]
        assert is_right or not all(seen)
