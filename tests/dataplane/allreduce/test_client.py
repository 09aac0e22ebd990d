"""Asynchronous all-reduces: order, formats, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from dataplane.allreduce.client import AllReducer
from dataplane.allreduce.engine import EngineSettings
from dataplane.allreduce.errors import NoResultError, SaturatedError
from dataplane.allreduce.half_precision import from_bfloat16, narrow, to_bfloat16, to_float16, widen
from dataplane.errors import AllReduceError
from tests.dataplane.allreduce.serving import JOB, Server, Weather

_NEAR_HALVES = st.builds(
    lambda half, more, sign: int(from_bfloat16(np.array([half], np.uint16)).view(np.uint32)[0]) + more + (sign << 31),
    st.integers(0x3300, 0x4780),
    st.sampled_from([0, 1, 0x1000, 0x0FFF, 0x1001, 0x3000, 0xF000, 0xEFFF, 0xFFFF]),
    st.integers(0, 1),
)
"""A range of float16 values: the least, subnormal ones, the greatest; ties and their neighbours."""


@contextmanager
def _workers(count: int, weather: Weather | None = None, patience_s: float = 9) -> Iterator[list[AllReducer]]:
    with Server(count, 16, weather) as server, ExitStack() as stack:
        settings = EngineSettings(
            "127.0.0.1", JOB, 16, count, 1, port=server.port, patience_s=patience_s, longest_timeout_s=0.02
        )
        yield [stack.enter_context(AllReducer(settings)) for _ in range(count)]


def test_results_come_in_the_order_of_submission_new_or_in_place() -> None:
    with _workers(2, Weather(loss=0.02, late=0.02)) as workers:
        values = [np.full((5, number), number, np.float32) for number in range(20)]
        mine = [workers[0].all_reduce(array) for array in values]
        places = [array.copy() for array in values]
        theirs = [workers[1].all_reduce(array, target=array) for array in places]
        for number, future in enumerate(mine):
            assert np.array_equal(future.result(9), 2 * values[number])
            assert theirs[number].result(9) is places[number]
            assert np.array_equal(places[number], 2 * values[number])
        assert workers[0].statistics.results == workers[1].statistics.results > 19


def test_floats_of_16_bits_are_added_exactly_and_rounded_once() -> None:
    with _workers(2) as workers:
        numbers = np.random.default_rng(1)
        halves = [numbers.normal(size=700).astype(np.float16) for _ in workers]
        halves[0][3], halves[1][3] = 60000, 60000
        futures = [worker.all_reduce(mine) for worker, mine in zip(workers, halves, strict=True)]
        with np.errstate(over="ignore"):
            right = (halves[0].astype(np.float32) + halves[1].astype(np.float32)).astype(np.float16)
        for future in futures:
            assert np.array_equal(future.result(9)[256:], right[256:])
        assert np.isposinf(futures[0].result(9)[3])
        briefs = [to_bfloat16(numbers.normal(size=700).astype(np.float32)) for _ in workers]
        means = [
            worker.all_reduce(mine, mean=True, bfloat16=True) for worker, mine in zip(workers, briefs, strict=True)
        ]
        wide = (from_bfloat16(briefs[0]) + from_bfloat16(briefs[1])) / 2
        for future in means:
            assert np.array_equal(future.result(9), to_bfloat16(wide.astype(np.float32)))


@given(arrays.arrays(np.uint32, 20))
def test_bfloat16_is_the_nearest_with_ties_to_even(bits: NDArray[np.uint32]) -> None:
    values = bits.view(np.float32)
    rounded = to_bfloat16(values)
    for value, brief in zip(bits.tolist(), rounded.tolist(), strict=True):
        low, rest = value >> 16, value & 0xFFFF
        if value & 0x7FFFFFFF > 0x7F800000:
            assert brief == 0x7FC0
        else:
            assert brief == low + (rest > 0x8000 or (rest == 0x8000 and low & 1))
    kept = rounded[~np.isnan(from_bfloat16(rounded))]
    assert np.array_equal(to_bfloat16(from_bfloat16(kept)), kept)


@given(st.integers(0, 0xFFFF))
def test_bfloat16_values_come_back(bits: int) -> None:
    brief = np.array([bits], np.uint16)
    wide = from_bfloat16(brief)
    assert np.isnan(wide[0]) or to_bfloat16(wide)[0] == bits


def test_machine_code_widens_all_floats_of_16_bits_as_numpy_does() -> None:
    bits, wide = np.arange(2**16, dtype=np.uint16), np.empty(2**16, np.float32)
    widen(bits, wide)
    assert np.array_equal(wide.view(np.uint32), from_bfloat16(bits).view(np.uint32))
    widen(bits.view(np.float16), wide)
    assert np.array_equal(wide.view(np.uint32), bits.view(np.float16).astype(np.float32).view(np.uint32))


@given(arrays.arrays(np.uint32, 256, elements=st.one_of(st.integers(0, 2**32 - 1), _NEAR_HALVES), fill=st.just(0)))
def test_machine_code_rounds_as_numpy_does(bits: NDArray[np.uint32]) -> None:
    wide, rounded = bits.view(np.float32), np.empty(bits.size, np.uint16)
    narrow(wide, rounded)
    assert np.array_equal(rounded, to_bfloat16(wide))
    half = rounded.view(np.float16)
    narrow(wide, half)
    is_number = ~np.isnan(wide)
    assert np.array_equal(rounded[is_number], to_float16(wide).view(np.uint16)[is_number])
    assert np.isnan(half[~is_number]).all()


def test_a_saturated_sum_fails_alone() -> None:
    with _workers(2) as workers:
        most = np.full(3, 2**31 - 1, np.int32)
        failing = [worker.all_reduce(most) for worker in workers]
        following = [worker.all_reduce(most // 2) for worker in workers]
        for future in failing:
            with pytest.raises(SaturatedError, match=r"item 1 \(sums of block 0\) overflowed int32"):
                future.result(9)
        assert np.array_equal(following[0].result(9), most // 2 * 2)


def test_after_a_failure_all_that_follow_fail_with_what_it_was() -> None:
    with _workers(2, patience_s=0.2) as workers:
        values = np.ones(3, np.float32)
        first, second = (workers[0].all_reduce(values) for _ in range(2))
        for future in (first, second):
            with pytest.raises(NoResultError, match=r"got no result from 127\.0\.0\.1:"):
                future.result(9)
        with pytest.raises(NoResultError):
            workers[0].all_reduce(values).result(9)


def test_closing_fails_what_waits() -> None:
    with _workers(2) as workers:
        futures = [workers[0].all_reduce(np.ones(3, np.float32)) for _ in range(2)]
        workers[0].close()
        for future in futures:
            with pytest.raises(AllReduceError, match=r"stopped|closed"):
                future.result(9)
        with pytest.raises(AllReduceError, match="closed"):
            workers[0].all_reduce(np.ones(3, np.float32)).result(9)


@pytest.mark.parametrize(
    ("values", "options", "problem"),
    [
        (np.zeros(3), {}, "float64"),
        (np.zeros(3, np.float32), {"bfloat16": True}, "uint16"),
        (np.zeros(3, np.uint16), {}, "uint16 with"),
        (np.zeros(3, np.int32), {"mean": True}, "no mean"),
        (np.zeros((3, 3), np.float32)[:, 0], {}, "not contiguous"),
        (np.zeros(3, np.float32), {"target": np.zeros(4, np.float32)}, "do not fit"),
    ],
)
def test_arrays_that_cannot_be_added_up_are_refused_at_once(
    values: NDArray[Any], options: dict[str, Any], problem: str
) -> None:
    with _workers(1) as workers:
        with pytest.raises(AllReduceError, match=problem):
            workers[0].all_reduce(values, **options)
        assert workers[0].all_reduce(np.ones(1, np.float32)).result(9)[0] == 1
