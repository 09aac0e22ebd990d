"""Functions called through addresses known only at run time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.native import (
    Array,
    Kernel,
    Module,
    NativeError,
    as_u64,
    i32,
    invoke,
    kernel,
    kernel_library,
    signature,
    u8,
    u16,
    u32,
    u64,
)


@signature
def Step(state: u64, by: u64) -> u64:  # noqa: N802 - a type
    raise NotImplementedError


@signature
def Narrow(a: u8, b: u16, c: i32, d: bool, e: Array[u8], f: u32, g: u64, h: u8) -> i32:  # noqa: N802 - a type
    raise NotImplementedError


@signature
def Poke(cell: Array[u64]) -> None:  # noqa: N802 - a type
    raise NotImplementedError


@kernel
def plus(state: u64, by: u64) -> u64:
    return state + by


@kernel
def times(state: u64, by: u64) -> u64:
    return state * by


@kernel
def apply_all(functions: Array[u64], count: u32, state: u64, by: u64) -> u64:
    result: u64 = state
    for i in range(count):
        result = invoke(Step, functions[i], result, by)
    return result


@kernel
def call_narrow(function: u64, a: u64, data: Array[u8]) -> u64:
    cut: u8 = data[0]
    return as_u64(invoke(Narrow, function, cut, 65_535, -7, a > 1, data, 3, a, 255))


@kernel
def call_poke(function: u64, cell: Array[u64]) -> None:
    invoke(Poke, function, cell)


def test_the_function_at_each_address_is_called_in_turn() -> None:
    library = kernel_library(plus, times)
    addresses = (ctypes.c_uint64 * 3)(*(library.call_address(each) for each in (plus, times, plus)))
    assert kernel_library(apply_all).bind(apply_all)(addresses, 3, 5, 7) == (5 + 7) * 7 + 7


@given(first=st.integers(0, 255), a=st.integers(0, (1 << 64) - 1), result=st.integers(-(1 << 31), (1 << 31) - 1))
def test_arguments_and_result_are_those_of_c(first: int, a: int, result: int) -> None:
    seen: list[Any] = []

    def note(*arguments: Any) -> int:
        seen.append(arguments)
        return result

    kinds = (ctypes.c_uint8, ctypes.c_uint16, ctypes.c_int32, ctypes.c_bool, ctypes.c_void_p, ctypes.c_uint32)
    called = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds, ctypes.c_uint64, ctypes.c_uint8)(note)
    data = (ctypes.c_uint8 * 1)(first)
    got = kernel_library(call_narrow).bind(call_narrow)(ctypes.cast(called, ctypes.c_void_p).value, a, data)
    assert seen == [(first, 65_535, -7, a > 1, ctypes.addressof(data), 3, a, 255)]
    assert got == result & ((1 << 64) - 1)


def test_a_function_without_result_is_called() -> None:
    def poke(cell: Any) -> None:
        cell[0] = 41

    called = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint64))(poke)
    cell = (ctypes.c_uint64 * 1)()
    kernel_library(call_poke).bind(call_poke)(ctypes.cast(called, ctypes.c_void_p).value, cell)
    assert cell[0] == 41


def test_a_c_function_is_called() -> None:
    libc = ctypes.CDLL(None)
    absolute = ctypes.cast(libc.abs, ctypes.c_void_p).value
    assert kernel_library(call_abs).bind(call_abs)(absolute, -40_000) == 40_000


@signature
def Absolute(number: i32) -> i32:  # noqa: N802 - a type
    raise NotImplementedError


@kernel
def call_abs(function: u64, number: i32) -> i32:
    return invoke(Absolute, function, number)


BODIES = {
    "return invoke(Two, a)": "Two takes 2 arguments, not 0",
    "return invoke(Two, a, a)": "Two takes 2 arguments, not 1",
    "return invoke(Two, a, a, a)": "this is u64, where u32 is needed: cast with as_u32()",
    "return invoke(Two, b, a, b)": "this is u32, where u64 is needed: cast with as_u64()",
    "return invoke(Two, words, a, b)": "this is Array[u64], where u64 is needed",
    "return invoke(Two)": "invoke takes a function type, an address",
    "return invoke(plain, a, a)": "`plain` is not a function type: declare one with @signature",
    "return invoke(a, a, a)": "`a` is not known before the kernel runs",
    "return invoke(Nothing, a, a)": "invoke returns no value",
    "return invoke(Missing, a, a)": "Missing is not defined",
    "return invoke(Two, address=a)": "arguments are passed by position",
    "return Two(a, b)": "Two is a function type: call one with invoke()",
    "return Two": "Two is not a value",
}
PRELUDE = """
@signature
def Two(a: u64, b: u32) -> u64: ...
@signature
def Nothing(a: u64) -> None: ...
@kernel
def plain(a: u64) -> u64:
    return a
@kernel
def f(a: u64, b: u32, words: Array[u64]) -> u64:
"""


@pytest.mark.parametrize(("body", "problem"), BODIES.items())
def test_a_broken_rule_is_named(body: str, problem: str, kernels_in: Callable[..., dict[str, Any]]) -> None:
    tested: Kernel[..., int] = kernels_in(f"{PRELUDE}    {body}\n")["f"]
    with pytest.raises(NativeError) as caught:
        Module("broken").function(tested)
    assert problem in caught.value.problem
    assert str(caught.value).startswith(f"{tested.file}:{len(PRELUDE.splitlines()) + 2}: ")


def test_a_wrong_type_in_a_declaration_is_named(kernels_in: Callable[..., dict[str, Any]]) -> None:
    made = kernels_in(
        "@signature\ndef Bad(a: int) -> None: ...\n@kernel\ndef f(a: u64) -> None:\n    invoke(Bad, a, 1)\n"
    )
    with pytest.raises(NativeError, match="int is not a kernel type; write u64"):
        Module("broken").function(made["f"])


def test_python_cannot_call_a_function_type() -> None:
    with pytest.raises(NativeError, match=r"test_indirect\.Step is a function type"):
        Step(1, 2)
