"""Floats through integer sums: within the stated bound, whatever they are."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dataplane.allreduce import formats
from dataplane.allreduce.formats import BLOCK, ZERO, Floats

WORKERS = st.integers(1, 9)
ANY = st.floats(width=32, allow_nan=True, allow_infinity=True)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def _blocks(workers: int, elements: st.SearchStrategy[float]) -> st.SearchStrategy[Floats]:
    return arrays.arrays(np.float32, (workers, 1, BLOCK), elements=elements, fill=st.just(0.0))


def _summed(blocks: Floats, capacity: int) -> tuple[Floats, int]:
    """Send each worker's block, add as the switch does, and return the result and the agreed exponent."""
    agreed = np.max([formats.exponents(block)[0] for block in blocks], axis=0)
    marked = np.max([formats.exponents(block)[1] for block in blocks], axis=0)
    lanes = [formats.to_lanes(block, agreed, capacity).astype(np.int64) for block in blocks]
    total = np.sum(lanes, axis=0)
    assert np.abs(total).max() <= 2**30
    sums = formats.from_lanes(total.astype(np.int32), agreed, capacity)
    if marked[0]:
        sums = formats.with_classes(sums, np.sum([formats.classes(block) for block in blocks], axis=0))
    return sums[0], int(agreed[0])


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


@pytest.mark.parametrize(("capacity", "bits"), [(1, 0), (2, 1), (3, 2), (4, 2), (64, 6), (1023, 10)])
def test_headroom_is_what_a_sum_needs(capacity: int, bits: int) -> None:
    assert formats.headroom(capacity) == bits


def test_blocks_of_zeros_and_the_least_number_have_exponents() -> None:
    least = np.zeros((3, BLOCK), np.float32)
    least[1, 7], least[2, 3] = np.float32(1e-45), np.float32(3.4e38)
    found, marked = formats.exponents(least)
    assert found.tolist() == [ZERO, -148 + formats.BIAS, 128 + formats.BIAS]
    assert marked.tolist() == [0, 0, 0]
