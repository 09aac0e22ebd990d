"""Sketches against sorted lists: percentiles to one part in 128, sums, bytes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.statistics.sketch import BUCKETS, EXACT_BELOW, GREATEST_BITS, Sketch, bucket_of, from_bytes, middle_of

NUMBERS = st.lists(st.integers(0, (1 << GREATEST_BITS) - 1), min_size=1, max_size=60)


def sketch_of(numbers: list[int]) -> Sketch:
    sketch = Sketch()
    for number in numbers:
        sketch.add(number)
    return sketch


@given(NUMBERS, st.sampled_from([0.0, 0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_the_nearest_rank_to_one_part_in_128(numbers: list[int], share: float) -> None:
    exact = sorted(numbers)[max(math.ceil(share * len(numbers)), 1) - 1]
    quantile = sketch_of(numbers).quantile(share)
    assert quantile is not None
    assert abs(quantile - exact) <= exact / 128


@given(NUMBERS, NUMBERS)
def test_two_sketches_add_up_to_that_of_both(left: list[int], right: list[int]) -> None:
    merged = sketch_of(left)
    merged.merge(sketch_of(right))
    merged.merge(Sketch())
    assert merged == sketch_of(left + right)


@given(NUMBERS, NUMBERS, st.booleans())
def test_what_is_taken_out_again_was_never_there(left: list[int], right: list[int], empty: bool) -> None:
    merged, gone, rest = sketch_of(left + right), sketch_of(left), sketch_of(right)
    merged.remove(gone, [rest, Sketch()] if empty else [rest])
    assert merged == rest
    merged.remove(rest, [])
    assert merged == Sketch()


@given(NUMBERS)
def test_sum_mean_and_extremes_are_exact_and_bytes_round_trip(numbers: list[int]) -> None:
    sketch = sketch_of(numbers)
    assert (sketch.count, sketch.total, sketch.least, sketch.greatest) == (
        len(numbers),
        sum(numbers),
        min(numbers),
        max(numbers),
    )
    assert sketch.mean == sum(numbers) // len(numbers)
    assert from_bytes(sketch.to_bytes()) == sketch


@given(st.integers(0, (1 << GREATEST_BITS) - 2))
def test_buckets_are_monotonic_and_contain_their_middles(number: int) -> None:
    assert bucket_of(number) <= bucket_of(number + 1) <= bucket_of(number) + 1
    assert bucket_of(middle_of(bucket_of(number))) == bucket_of(number)


def test_small_numbers_are_exact_and_huge_ones_share_a_bucket() -> None:
    assert [middle_of(bucket_of(number)) for number in range(EXACT_BELOW)] == list(range(EXACT_BELOW))
    assert bucket_of((1 << GREATEST_BITS) - 1) == bucket_of(1 << 60) == BUCKETS - 1
    assert sketch_of([1 << 60]).quantile(0.5) == 1 << 60


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_nothing_has_no_percentile(share: float) -> None:
    assert Sketch().quantile(share) is None
    assert Sketch().mean is None
