"""A kernel is also plain Python with the same results unless numbers wrap: most tests compare the two."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.native import Kernel, NativeError, as_u64, constant_table, i64, kernel, kernel_library, u8, u32, u64

small = st.integers(0, 12)


class Colour(IntEnum):
    GREEN = 0
    RED = 2


LIMIT = 10
DEBUG = False
SQUARES = (0, 1, 4, 9, 16, 25)
BYTES: tuple[u8, ...] = (3, 1, 4, 1, 5, 9)
PRIMES = constant_table(u32, (2, 3, 5, 7, 11, 13))


@kernel
def loops(start: u64, stop: u64, limit: u64) -> u64:
    total: u64 = 0
    i: u64 = 99
    for i in range(start, stop):
        if i == limit:
            break
        if i % 3 == 1:
            continue
        for j in range(i):
            total += j
            if total > 500:
                return total
    return total * 100 + i


@kernel
def stepping(start: u64, stop: u64) -> u64:
    total: u64 = 0
    for i in range(start, stop, 3):
        total = total * 13 + i
    return total


@kernel
def signed_range(start: i64, stop: i64) -> i64:
    total: i64 = 0
    for i in range(start, stop, 2):
        total = total * 3 + i
    return total


@kernel
def fixed_range(start: u64, stop: u64) -> u64:
    total: u64 = start + stop
    for _ in range(7):
        total += total % 5
    return total


@kernel
def variable_changed_inside(start: u64, stop: u64) -> u64:
    total: u64 = 0
    for i in range(start, stop):
        i = i * 2  # noqa: PLW2901 - that is what is tested
        total = total * 7 + i
    return total


@kernel
def while_loop(n: u64, limit: u64) -> u64:
    steps = 0
    while n != 1 and n != 0:
        if steps >= limit:
            break
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@kernel
def endless(n: u64, limit: u64) -> u64:
    while True:
        n += 3
        if n > limit:
            return n


@kernel
def branches(a: u64, b: u64) -> u64:
    if a > b:
        big = a
    elif a == b:
        return 1000
    else:
        big = b
    if big > LIMIT or (not a and b == Colour.RED):
        big += 7
    else:
        pass
    return big


@kernel
def nested_truth(a: u64, b: u64) -> bool:
    return (a < b < 10 or a == 3) and not (b == 5 or a > 8 > b) if a != 7 else b > 2


@kernel
def tables(i: u64, j: u64) -> u64:
    if DEBUG:
        return 0
    first = SQUARES[i % len(SQUARES)] if i < 6 else 1
    return first * 1000 + 20 * as_u64(BYTES[j % 6]) + as_u64(PRIMES[j % 6])


@kernel
def helper(a: u64, b: u64) -> u64:
    if b == 0:
        return a
    return helper(b, a % b)


@kernel
def calls(a: u64, b: u64) -> u64:
    return helper(a * 6, b * 4) + helper(b, a)


TWO_ARGUMENTS = (
    stepping,
    signed_range,
    fixed_range,
    variable_changed_inside,
    while_loop,
    endless,
    branches,
    nested_truth,
    tables,
)
KERNELS = (*TWO_ARGUMENTS, loops, calls)


@pytest.mark.parametrize("tested", TWO_ARGUMENTS, ids=lambda tested: tested.name)
@given(a=small, b=small)
def test_statements_do_what_python_does(tested: Kernel[..., int], a: int, b: int) -> None:
    assert kernel_library(*KERNELS).bind(tested)(a, b) == tested.function(a, b)


@given(start=small, stop=small, limit=small)
def test_nested_loops_break_and_continue(start: int, stop: int, limit: int) -> None:
    assert kernel_library(*KERNELS).bind(loops)(start, stop, limit) == loops.function(start, stop, limit)


@given(start=st.integers(-9, 9), stop=st.integers(-9, 9))
def test_ranges_of_signed_numbers(start: int, stop: int) -> None:
    assert kernel_library(*KERNELS).bind(signed_range)(start, stop) == signed_range.function(start, stop)


def test_ranges_end_at_the_greatest_number() -> None:
    top = (1 << 64) - 1
    steps = kernel_library(*KERNELS).bind(stepping)
    assert steps(top - 1, top) == top - 1
    assert steps(top, top) == 0
    assert steps(top - 3, top) == top - 3
    assert steps(top - 4, top) == ((top - 4) * 13 + top - 1) % (1 << 64)
    assert kernel_library(*KERNELS).bind(signed_range)((1 << 63) - 2, (1 << 63) - 1) == (1 << 63) - 2


@given(a=small, b=small)
def test_kernels_call_kernels_and_themselves(a: int, b: int) -> None:
    assert kernel_library(*KERNELS).bind(calls)(a, b) == math.gcd(a * 6, b * 4) + math.gcd(a, b)


def test_a_local_that_no_path_assigned_is_zero(kernel_in: Callable[..., Kernel[..., int]]) -> None:
    made = kernel_in("@kernel\ndef f(a: u64) -> u64:\n    if a > 5:\n        b = a\n    return b\n")
    run = kernel_library(made).bind(made)
    assert (run(9), run(2)) == (9, 0)


def test_a_choice_of_literals_takes_the_type_it_is_stored_to(kernel_in: Callable[..., Kernel[..., int]]) -> None:
    text = """
@kernel
def f(a: Array[u8], flag: bool) -> u8:
    a[0] = 7 if flag else 9
    n: u8 = 1 if flag else 2
    n = 3 if n == 1 else 4
    n += 10 if flag else 20
    return n if flag else 200
"""
    made = kernel_in(text)
    run = kernel_library(made).bind(made)
    memory = bytearray(1)
    assert (run(memory, True), memory[0]) == (13, 7)
    assert (run(memory, False), memory[0]) == (200, 9)


def test_what_a_known_condition_excludes_is_not_translated(kernels_in: Callable[..., dict[str, Any]]) -> None:
    text = """
def make(signed):
    @kernel
    def f(a: u64) -> u64:
        if signed:
            return a.nothing
        return a + 1 if not signed else undefined
    return f
"""
    make = kernels_in(text)["make"]
    good: Kernel[..., int] = make(False)
    assert kernel_library(good).bind(good)(4) == 5
    with pytest.raises(NativeError, match="no field nothing"):
        kernel_library(make(True))


def test_kernels_made_by_a_function_use_what_it_knew(kernels_in: Callable[..., dict[str, Any]]) -> None:
    text = """
def make(factor, table, inner):
    @kernel(name=f"times_{factor}")
    def f(a: u64) -> u64:
        return inner(a * factor) + as_u64(table[a & 1])
    return f

@kernel
def inner(a: u64) -> u64:
    return a + 1
"""
    made = kernels_in(text)
    two: Kernel[..., int] = made["make"](2, constant_table(u32, (100, 200)), made["inner"])
    three: Kernel[..., int] = made["make"](3, (1, 2), made["inner"])
    library = kernel_library(two, three)
    assert (library.bind(two)(5), library.bind(three)(5)) == (211, 18)
    assert set(library.exports) == {"times_2", "times_3"}


def test_side_effects_happen_in_python_order_and_once(kernels_in: Callable[..., dict[str, Kernel[..., int]]]) -> None:
    text = """
@kernel(inline=False)
def note(log: Array[u64], number: u64) -> u64:
    log[0] = log[0] * 10 + number
    return number

@kernel
def f(log: Array[u64], a: Array[u64]) -> bool:
    a[note(log, 1)] += note(log, 2)
    a[note(log, 4)] = note(log, 3)
    return note(log, 5) < note(log, 6) < note(log, 7) or note(log, 8) == 0

@kernel
def g(log: Array[u64]) -> bool:
    return note(log, 3) < note(log, 2) < note(log, 1) or note(log, 0) != 0 or note(log, 4) == 4
"""
    made = kernels_in(text)
    library = kernel_library(made["f"], made["g"])
    log, a = (ctypes.c_uint64 * 1)(), (ctypes.c_uint64 * 8)()
    assert library.bind(made["f"])(log, a)
    assert (log[0], a[1], a[4]) == (1234567, 2, 3)
    log[0] = 0
    assert library.bind(made["g"])(log)
    assert log[0] == 3204
