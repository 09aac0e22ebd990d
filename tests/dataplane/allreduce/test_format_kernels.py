"""Machine code and numpy agree on blocks of floats, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dataplane.allreduce import formats
from dataplane.allreduce.formats import BLOCK, Floats, Lanes
from dataplane.allreduce.kernels.formats import MARK, block_exponent, from_lanes, to_lanes
from dataplane.native import kernel_library

_LIBRARY = kernel_library(block_exponent, to_lanes, from_lanes)
_EXPONENT, _TO, _FROM = (_LIBRARY.bind(function) for function in (block_exponent, to_lanes, from_lanes))

BITS = st.one_of(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 2**23 - 1, 2**23, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 2**31, 0x3F800000]),
)
LANES = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-70000, 70000))


@st.composite
def _floats(draw: st.DrawFn) -> Floats:
    low = draw(st.integers(0, 250))
    if draw(st.booleans()):  # of one magnitude
        mantissas = draw(arrays.arrays(np.uint32, BLOCK, elements=st.integers(0, 2**25)))
        return ((mantissas & 0x1FFFFFF) + (low << 23)).astype(np.uint32).view(np.float32)
    return draw(arrays.arrays(np.uint32, BLOCK, elements=BITS, fill=st.just(0))).view(np.float32)


@given(_floats(), st.integers(1, formats.MOST_WORKERS), st.integers(0, 9))
def test_blocks_become_the_same_integers(block: Floats, capacity: int, more: int) -> None:
    exponent, marked = formats.exponents(block[None])
    assert _EXPONENT(block.ctypes.data, BLOCK) == int(exponent[0]) + MARK * int(marked[0])
    agreed = np.minimum(exponent + more, formats.BIAS + 128).astype(np.uint16)
    lanes = np.zeros(BLOCK, ">i4")
    _TO(block.ctypes.data, BLOCK, 30 - formats.headroom(capacity) - (int(agreed[0]) - formats.BIAS), lanes.ctypes.data)
    assert np.array_equal(lanes, formats.to_lanes(block[None], agreed, capacity)[0])


@given(
    arrays.arrays(np.int32, BLOCK, elements=LANES),
    st.integers(-148 + formats.BIAS, 128 + formats.BIAS),
    st.integers(1, formats.MOST_WORKERS),
    st.one_of(st.sampled_from([1, 2, 3, 7, 8, 1000]), st.integers(1, 65_535)),
)
@example(np.ones(BLOCK, np.int32), 112, 3, 1000)
@example(np.full(BLOCK, -(2**31), np.int32), 128, 3, 65535)
def test_sums_become_the_same_floats(lanes: Lanes, agreed: int, capacity: int, divisor: int) -> None:
    sent, output = lanes.astype(">i4"), np.zeros(BLOCK, np.float32)
    shift = agreed - formats.BIAS + formats.headroom(capacity) - 30
    _FROM(sent.ctypes.data, BLOCK, shift, divisor, output.ctypes.data)
    right = formats.from_lanes(lanes[None], np.array([agreed], np.uint16), capacity, divisor)[0]
    assert np.array_equal(output.view(np.uint32), right.view(np.uint32))


def test_means_are_the_same_for_all_divisors_that_there_are() -> None:
    numbers = np.random.default_rng(1)
    for divisor in range(1, 2**16, 7):
        near = numbers.integers(-(2**31) // divisor, 2**31 // divisor, 8) * divisor  # ties and their neighbours
        lanes = np.concatenate([near + more for more in (-1, 0, 1, divisor // 2)]).clip(-(2**31), 2**31 - 1)
        sent, output = lanes.astype(">i4"), np.zeros(lanes.size, np.float32)
        _FROM(sent.ctypes.data, lanes.size, -26, divisor, output.ctypes.data)
        right = formats.from_lanes(lanes[None], np.array([formats.BIAS + 4], np.uint16), 1, divisor)[0]
        assert np.array_equal(output.view(np.uint32), right.view(np.uint32))


@pytest.mark.parametrize("value", [1e-45, -1e-45, 3.4e38, 1.0, -0.0])
def test_single_values_come_back(value: float) -> None:
    block = np.zeros(BLOCK, np.float32)
    block[0] = value
    exponent = _EXPONENT(block.ctypes.data, BLOCK)
    shift = 30 - (exponent - formats.BIAS)
    lanes, output = np.zeros(BLOCK, ">i4"), np.ones(BLOCK, np.float32)
    _TO(block.ctypes.data, BLOCK, shift, lanes.ctypes.data)
    _FROM(lanes.ctypes.data, BLOCK, -shift, 1, output.ctypes.data)
    assert output[0] == block[0]


@pytest.mark.parametrize("divisor", [1, 8, 9, 65535])
@pytest.mark.parametrize("shift", [-178, -150, -127, -126, -125, -124, -123, -122, 0, 94, 95, 96, 97, 98, 99])
def test_sums_at_the_ends_of_normal_floats(shift: int, divisor: int) -> None:
    lanes = np.array([0, 1, -1, 3, 2**24 + 1, 2**24 + 3, -(2**25) - 2, 2**31 - 1, 2**31 - 64, -(2**31)], np.int32)
    sent, output = lanes.astype(">i4"), np.zeros(lanes.size, np.float32)
    _FROM(sent.ctypes.data, lanes.size, shift, divisor, output.ctypes.data)
    right = formats.from_lanes(lanes[None], np.array([shift + formats.BIAS + 30], np.uint16), 1, divisor)[0]
    assert np.array_equal(output.view(np.uint32), right.view(np.uint32))
