"""Floats through integer sums: always within the stated bound."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dataplane.allreduce import formats
from dataplane.allreduce.formats import BLOCK, MOST_WORKERS, ZERO, Floats, Lanes

WORKERS = st.integers(1, 9)
ANY = st.floats(width=32, allow_nan=True, allow_infinity=True)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def _blocks(workers: int, elements: st.SearchStrategy[float]) -> st.SearchStrategy[Floats]:
    return arrays.arrays(np.float32, (workers, 1, BLOCK), elements=elements, fill=st.just(0.0))


def _summed(blocks: Floats, capacity: int) -> tuple[Floats, int]:
    """Send each worker's block, add as the switch does, and return the result and the agreed exponent."""
    agreed = np.stack([formats.exponents(block)[0] for block in blocks]).max(axis=0)
    marked = np.stack([formats.exponents(block)[1] for block in blocks]).max(axis=0)
    lanes = [formats.to_lanes(block, agreed, capacity).astype(np.int64) for block in blocks]
    total = np.sum(lanes, axis=0)
    assert np.abs(total).max() <= 2**30
    sums = formats.from_lanes(total.astype(np.int32), agreed, capacity)
    if marked[0]:
        sums = formats.with_classes(sums, _greatest([formats.classes(block) for block in blocks]))
    return sums[0], int(agreed[0])


def _greatest(classes: list[Lanes]) -> Lanes:
    """Return the maximum of each half of the lanes, as the switch makes it."""
    halves = [lanes.astype(">i4").view(">u2") for lanes in classes]
    return np.asarray(np.max(halves, axis=0).astype(">u2").view(">i4"), np.int32)


@given(WORKERS.flatmap(lambda workers: _blocks(workers, FINITE)), st.integers(0, 60))
def test_sums_are_within_the_bound_of_the_exact_ones(blocks: Floats, spare: int) -> None:
    workers = len(blocks)
    sums, agreed = _summed(blocks, workers + spare)
    bound = Fraction(formats.error_bound(agreed, workers, workers + spare))
    for lane in range(BLOCK):
        exact = sum((Fraction(float(block[0, lane])) for block in blocks), Fraction(0))
        if not np.isfinite(sums[lane]):
            assert abs(exact) + bound > Fraction(float(np.finfo(np.float32).max))
            continue
        half_unit = Fraction(2) ** (max(math.frexp(sums[lane])[1] - 24, -149) - 1)
        assert abs(Fraction(float(sums[lane])) - exact) <= (bound if agreed != ZERO else 0) + half_unit


@given(WORKERS.flatmap(lambda workers: _blocks(workers, ANY)))
def test_what_is_not_finite_comes_out_as_floats_would_have_it(blocks: Floats) -> None:
    sums, _ = _summed(blocks, len(blocks))
    with np.errstate(all="ignore"):
        right = np.sum(blocks[:, 0].astype(np.float64), axis=0)
    assert np.array_equal(np.isnan(sums), np.isnan(right))
    infinite = np.isinf(right)
    assert np.array_equal(sums[infinite], right[infinite].astype(np.float32))


@pytest.mark.parametrize(
    ("capacity", "bits"), [(1, 0), (2, 1), (3, 2), (4, 2), (64, 6), (1023, 10), (1024, 10), (1025, 11), (65_535, 16)]
)
def test_headroom_is_what_a_sum_needs(capacity: int, bits: int) -> None:
    assert formats.headroom(capacity) == bits


@pytest.mark.parametrize("capacity", [0, MOST_WORKERS + 1])
def test_more_workers_than_the_header_can_say_are_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match="workers"):
        formats.headroom(capacity)


@pytest.mark.parametrize("workers", [1023, 1024, 1025, 4096, MOST_WORKERS])
@pytest.mark.parametrize("value", [1.0, -1.0, np.nextafter(np.float32(2), np.float32(0)), -3.1e38, 1e-44, 1 / 3])
def test_most_workers_stay_within_int32_and_the_error_bound(workers: int, value: float) -> None:
    block = np.full((1, BLOCK), value, np.float32)
    agreed, _ = formats.exponents(block)
    lane = int(formats.to_lanes(block, agreed, workers)[0, 0])
    assert abs(lane * workers) < 2**31 - 1
    sums = formats.from_lanes(np.full((1, BLOCK), lane * workers, np.int32), agreed, workers, divisor=workers)
    bound = formats.error_bound(int(agreed[0]), workers, workers) / workers
    assert abs(float(sums[0, 0]) - float(block[0, 0])) <= bound + float(np.spacing(np.abs(block[0, 0]))) / 2


def test_one_of_many_with_what_is_not_finite_is_enough() -> None:
    """The classes of any number of workers fit, as they are not counted."""
    blocks = np.array([[np.inf, -np.inf, np.nan, 1.0] + [0.0] * (BLOCK - 4)], np.float32)
    others = np.array([[np.inf, np.inf, 1.0, 2.0] + [0.0] * (BLOCK - 4)], np.float32)
    classes = _greatest([formats.classes(blocks)] + [formats.classes(others)] * 2000)
    result = formats.with_classes(np.zeros((1, BLOCK), np.float32), classes)[0, :4]
    assert np.array_equal(result, np.array([np.inf, np.nan, np.nan, 0], np.float32), equal_nan=True)


def test_blocks_of_zeros_and_the_least_number_have_exponents() -> None:
    least = np.zeros((3, BLOCK), np.float32)
    least[1, 7], least[2, 3] = np.float32(1e-45), np.float32(3.4e38)
    exponents, marked = formats.exponents(least)
    assert exponents.tolist() == [ZERO, -148 + formats.BIAS, 128 + formats.BIAS]
    assert marked.tolist() == [0, 0, 0]
