"""Every rule that a kernel can break is named, with the line that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dataplane.native import Kernel, Module, NativeError, kernel

PRELUDE = """
import math
TEXT = "text"
class Lane(Struct):
    total: u64
    bytes: Inline[u8, Literal[4]]
    flag: bool
class Other(Struct):
    total: u64
@kernel
def two(a: u64, b: u32) -> u64:
    return a
@kernel
def nothing(a: u64) -> None:
    pass
@kernel
def f(a: u64, b: u32, s: i64, flag: bool, lane: Lane, words: Array[u64], data: Array[u8]) -> u64:
"""
BODIES = {
    "return a + b": "u64 and u32 do not mix: cast one of them with as_u64()",
    "return a + s": "u64 and i64 do not mix",
    "return b": "this is u32, where u64 is needed: cast with as_u64()",
    "return flag": "this is bool, where u64 is needed: cast with as_u64()",
    "return flag + flag": "bool is not a number",
    "return a + flag": "u64 and bool do not mix",
    "return -flag": "bool is not a number",
    "return data": "this is Array[u8], where u64 is needed",
    "return -1": "-1 does not fit u64",
    "return 1 << 64": "18446744073709551616 does not fit u64",
    "return 1 << 65": "fits no type",
    "return a << (0 - 1)": "-1 does not fit u64",
    "return 3 // 0": "division",
    "return a % 0": "division by zero",
    "return as_u64(b == 1 << 32)": "4294967296 does not fit u32",
    "return a / 2": "use //",
    "return a ** 2": "this operator is not part of the kernel language",
    "return a @ a": "this operator is not part of the kernel language",
    "return 1.5": "`1.5` is not part of the kernel language",
    "return TEXT": "a str cannot be used in a kernel",
    "return math.pi": "a float cannot be used in a kernel",
    "return math.nothing": "`math.nothing` does not exist",
    "return math": "math is not a value",
    "return math.gcd(a, a)": "neither a kernel nor an operation",
    "return unknown": "unknown is not defined",
    "return [a][0]": "`[a]` is not part of the kernel language",
    "return words[0:1]": "use offset() and copy()",
    "return a[0]": "`a` is not an array",
    "return lane[0]": "`lane` is not an array",
    "return a.total": "`a` is not a struct and has no field total",
    "return lane.nothing": "Lane has no field nothing",
    "return lane.bytes.total": "`lane.bytes` is not a struct",
    "return words[flag]": "this is bool, where an index is needed",
    "return as_u64(lane == lane)": "pointers are compared by address()",
    "return as_u64(lane is None)": "`is` and `in` are not part",
    "return as_u64(a in words)": "`is` and `in` are not part",
    "return a and 5": "`and` and `or` give truth values",
    "return a if lane else a": "a pointer has no truth",
    "return a if flag else math": "a choice is between numbers or pointers",
    "return a if flag else b": "this is u32, where u64 is needed",
    "return two(a)": "two takes 2 arguments, not 1",
    "return two(a, a)": "this is u64, where u32 is needed: cast with as_u32()",
    "return two(a, b=b)": "arguments are passed by position",
    "return two(*a)": "arguments are passed by position",
    "return two": "two is not a value",
    "return nothing(a)": "nothing returns no value",
    "return lane.total(a)": "`lane.total` cannot be called",
    "return popcount(a, a)": "popcount takes 1 arguments, not 2",
    "return popcount(lane)": "this is Lane, where a number is needed",
    "return as_u64(bswap(data[0]))": "u8 has no bytes to swap",
    "return len(words)": "`words` is not known before the kernel runs",
    "return len(TEXT)": "len() needs a constant table",
    "return address(a)": "`a` is neither a struct nor an array",
    "return address(view(u64, a))": "view() takes a struct, not u64",
    "return address(view(Lane, b))": "this is u32, where u64 is needed",
    "return address(view(Missing, a))": "name 'Missing' is not defined",
    "return address(stack_array(u64, a))": "this must be a positive constant",
    "return address(stack_array(u64, 0))": "this must be a positive constant",
    "return address(offset(lane, 1))": "this is Lane, where an array is needed",
    "return address(reference(a))": "a local is not shared memory",
    "return address(reference(lane.bytes))": "already an array",
    "return atomic_add(a, 1)": "a local is not shared memory",
    "return atomic_add(a + a, 1)": "`a + a` cannot be stored to",
    "return as_u64(exchange(lane.flag, flag))": "bool is not loaded and stored as one",
    "copy(words, data, a)": "this is Array[u64], where Array[u8] is needed",
    "return load_be64(words, 0)": "this is Array[u64], where Array[u8] is needed",
    "lane.total = b": "this is u32, where u64 is needed",
    "lane.bytes = data": "where Inline[u8, 4] is needed",
    "lane.nothing = 1": "Lane has no field nothing",
    "data[0] = 256": "256 does not fit u8",
    "data[0] = a": "cast with as_u8()",
    "data[0] += a": "u8 and u64 do not mix",
    "lane = view(Other, a)": "this is Other, where Lane is needed",
    "flag = 1": "this is a number, where bool is needed: write True",
    "lane = 0": "use view() or array_at()",
    "x = y = a": "one assignment has one target",
    "x, y = a, a": "one assignment has one target",
    "x = math": "x would not be a value, but math",
    "x = -1": "annotate it, as in `x: i64 = -1`",
    "x: u32 = a": "this is u64, where u32 is needed",
    "x: int = 1": "write u64 or another of known width",
    "x: Nothing = 1": "name 'Nothing' is not defined",
    "x: Inline[u8, Literal[4]]": "stack_array()",
    "x = a\n    x = b": "this is u32, where u64 is needed",
    "x = a\n    x: u32 = b": "x is already u64, not u32",
    "lane.total: u64 = 1": "only locals are annotated",
    "x += 1": "x is used before it is assigned",
    "a = x\n    x = a": "x is used before it is assigned",
    "two += 1": "two is used before it is assigned",
    "pass": "f can end without returning a value",
    "if flag:\n        return a": "f can end without returning a value",
    "while flag:\n        return a": "f can end without returning a value",
    "return": "f returns u64",
    "a + 1": "`a + 1` has no effect",
    "assert flag": "`assert flag` is not part of the kernel language",
    "raise ValueError": "`raise ValueError` is not part of the kernel language",
    "del a": "`del a` is not part",
    "global TEXT": "`global TEXT` is not part",
    "with a:\n        pass": "`with a:` is not part",
    "for i in words:\n        pass": "a kernel iterates over range(...) only",
    "for i in range(a, 1, 2, 3):\n        pass": "range takes one to three numbers",
    "for i in range(0, a, a):\n        pass": "the step of a range is a positive constant",
    "for i in range(0, a, 0):\n        pass": "the step of a range is a positive constant",
    "for i in range(a, b):\n        pass": "this is u32, where u64 is needed",
    "for i in range(flag):\n        pass": "a range takes numbers, not bool",
    "for i, j in range(a):\n        pass": "a loop has one variable",
    "for i in range(a):\n        pass\n    else:\n        pass": "a loop has no else",
    "while flag:\n        pass\n    else:\n        pass": "a loop has no else",
}


@pytest.mark.parametrize(("body", "problem"), BODIES.items())
def test_a_broken_rule_is_named(body: str, problem: str, kernels_in: Callable[..., dict[str, Any]]) -> None:
    made = kernels_in(f"from typing import Literal\n{PRELUDE}    {body}\n")
    tested: Kernel[..., int] = made["f"]
    with pytest.raises(NativeError) as caught:
        Module("broken").function(tested)
    assert problem in caught.value.problem
    first = len(PRELUDE.splitlines()) + 3
    assert caught.value.file == tested.file
    assert caught.value.line is not None
    assert first <= caught.value.line <= first + body.count("\n")


HEADS = {
    "a": "a lacks an annotation",
    "a: u64 = 5": "a kernel takes plain parameters only",
    "*a: u64": "a kernel takes plain parameters only",
    "*, a: u64": "a kernel takes plain parameters only",
    "a: int": "a: int is not a kernel type; write u64",
    "a: Nothing": "an annotation cannot be resolved: name 'Nothing' is not defined",
    "a: Array[int]": "int is not a kernel type",
    "a: Inline[u8, Literal[3]]": "Inline is for fields",
    "a: list[u64]": "is not a kernel type",
}


@pytest.mark.parametrize(("head", "problem"), HEADS.items())
def test_a_wrong_signature_is_named(head: str, problem: str, kernels_in: Callable[..., dict[str, Any]]) -> None:
    made = kernels_in(f"from typing import Literal\n@kernel\ndef f({head}) -> None:\n    pass\n")
    with pytest.raises(NativeError) as caught:
        Module("broken").function(made["f"])
    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"{made['f'].file}:3: ")


def test_a_result_needs_a_type(kernels_in: Callable[..., dict[str, Any]]) -> None:
    made = kernels_in("@kernel\ndef f(a: u64):\n    pass\n")
    with pytest.raises(NativeError, match="return lacks an annotation"):
        Module("broken").function(made["f"])


@kernel
def good(a: int) -> None:
    del a


def test_a_kernel_called_by_python_says_how_it_is_called() -> None:
    with pytest.raises(NativeError, match=r"test_errors\.good is native: call it from a kernel, or bind it"):
        good(5)


def test_a_kernel_without_source_is_named() -> None:
    scope: dict[str, Any] = {"kernel": kernel, "__name__": "nowhere"}
    exec("@kernel\ndef f() -> None:\n    pass\n", scope)
    with pytest.raises(NativeError, match="the source of this kernel cannot be read"):
        Module("broken").function(scope["f"])
