"""Operations on bytes and on shared memory."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.native import (
    Array,
    Kernel,
    Struct,
    copy,
    fence,
    fill,
    kernel,
    kernel_library,
    offset,
    pause,
    prefetch,
    reference,
    u8,
    u64,
)
from dataplane.native.locks import lock, try_lock, unlock


@kernel
def move(data: Array[u8], target: u64, source: u64, nbytes: u64) -> None:
    prefetch(data)
    copy(offset(data, target), offset(data, source), nbytes)


@kernel
def blank(data: Array[u8], start: u64, byte: u8, nbytes: u64) -> None:
    fill(offset(data, start), byte, nbytes)


@kernel
def back(data: Array[u8], position: u64) -> u8:
    """Return the byte before a position."""
    return offset(data, position)[0 - as_one(position)]


@kernel
def as_one(number: u64) -> u64:
    return 1 if number > 0 else 0


@given(data=st.binary(min_size=64, max_size=64), a=st.integers(0, 40), b=st.integers(0, 40), n=st.integers(0, 24))
def test_bytes_are_copied_even_over_themselves(data: bytes, a: int, b: int, n: int) -> None:
    memory, expected = bytearray(data), bytearray(data)
    kernel_library(move, blank, back).bind(move)(memory, a, b, n)
    expected[a : a + n] = data[b : b + n]
    assert memory == expected
    kernel_library(move, blank, back).bind(blank)(memory, b, 0xAB, n)
    expected[b : b + n] = b"\xab" * n
    assert memory == expected
    assert kernel_library(move, blank, back).bind(back)(memory, a) == expected[max(a - 1, 0)]


ENDIAN: dict[str, Literal["big", "little"]] = {"u": sys.byteorder, "be": "big"}


@given(data=st.binary(min_size=32, max_size=32), offset=st.integers(0, 24), number=st.integers(0, (1 << 64) - 1))
def test_wide_loads_and_stores_need_no_alignment(
    data: bytes, offset: int, number: int, wide: dict[tuple[str, str, int], Callable[..., int]]
) -> None:
    for (verb, order, bits), run in wide.items():
        size, memory, expected = bits // 8, bytearray(data), bytearray(data)
        cut = number & ((1 << bits) - 1)
        if verb == "load":
            assert run(memory, offset) == int.from_bytes(
                data[offset : offset + size], "big" if order == "be" else "little"
            )
        else:
            expected[offset : offset + size] = cut.to_bytes(size, ENDIAN[order])
            run(memory, offset, cut)
        assert memory == expected


@pytest.fixture(scope="module")
def wide(kernels_in: Callable[..., dict[str, Any]]) -> dict[tuple[str, str, int], Callable[..., int]]:
    names, texts = {}, []
    for order in ("u", "be"):
        for bits in (16, 32, 64):
            name = f"{order}{bits}"
            names["load", order, bits], names["store", order, bits] = f"load{bits}{order}", f"store{bits}{order}"
            texts.append(
                f"@kernel\ndef load{bits}{order}(data: Array[u8], at: u64) -> u{bits}:\n"
                f"    return load_{name}(data, at)\n"
                f"@kernel\ndef store{bits}{order}(data: Array[u8], at: u64, number: u{bits}) -> None:\n"
                f"    store_{name}(data, at, number)\n"
            )
    made = kernels_in("".join(texts))
    library = kernel_library(*(made[name] for name in names.values()))
    return {key: library.bind(made[name]) for key, name in names.items()}


Model = Callable[[int, int], int]
ATOMICS: dict[str, tuple[Model, Model | None]] = {
    "atomic_add(s.word, n)": (lambda a, n: a + n, lambda a, n: a),
    "atomic_sub(s.word, n)": (lambda a, n: a - n, lambda a, n: a),
    "atomic_or(s.word, n)": (lambda a, n: a | n, lambda a, n: a),
    "atomic_and(s.word, n)": (lambda a, n: a & n, lambda a, n: a),
    "exchange(s.word, n)": (lambda a, n: n, lambda a, n: a),
    "load_acquire(s.word)": (lambda a, n: a, lambda a, n: a),
    "load_relaxed(s.word)": (lambda a, n: a, lambda a, n: a),
    "store_relaxed(s.word, n)": (lambda a, n: n, None),
    "store_release(s.word, n)": (lambda a, n: n, None),
}


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_atomic_operations(bits: int, kernels_in: Callable[..., dict[str, Any]]) -> None:
    texts = [f"class S(Struct):\n    before: u8\n    word: u{bits}\n    after: u8\n"]
    for number, operation in enumerate(ATOMICS):
        kind, keyword = ("None", "") if ATOMICS[operation][1] is None else (f"u{bits}", "return ")
        texts.append(f"@kernel\ndef f{number}(s: S, n: u{bits}) -> {kind}:\n    {keyword}{operation}\n")
    made = kernels_in("".join(texts))
    library = kernel_library(*(made[f"f{number}"] for number in range(len(ATOMICS))))
    mask = (1 << bits) - 1
    for number, (after, result) in enumerate(ATOMICS.values()):
        for old, n in ((0, 1), (mask, 1), (0xA5 & mask, 0x3C), (1, mask)):
            shared = made["S"](before=1, word=old, after=2)
            run: Callable[..., int | None] = library.bind(made[f"f{number}"])
            returned = run(shared, n)
            assert (shared.before, shared.word, shared.after) == (1, after(old, n) & mask, 2)
            assert returned == (None if result is None else result(old, n) & mask)


@pytest.mark.parametrize("kind", ["u8", "u16", "u32", "u64", "i32", "i64"])
def test_compare_exchange_stores_only_what_was_expected(kind: str, kernel_in: Callable[..., Kernel[..., bool]]) -> None:
    made = kernel_in(
        f"@kernel\ndef f(a: Array[{kind}], old: {kind}, new: {kind}) -> bool:\n"
        f"    return compare_exchange(a[1], old, new)\n"
    )
    run: Callable[..., bool] = kernel_library(made).bind(made)
    memory = (ctypes.c_uint64 * 2)()
    assert run(memory, 0, 7) is True
    before = bytes(memory)
    assert run(memory, 0, 9) is False
    assert bytes(memory) == before != bytes(16)


def test_pointers_are_exchanged_as_one(kernels_in: Callable[..., dict[str, Any]]) -> None:
    text = """
class Node(Struct):
    next: Node
    number: u64

@kernel
def f(head: Node, new: Node) -> u64:
    old = load_acquire(head.next)
    if not compare_exchange(head.next, old, new):
        return 0
    store_release(new.next, exchange(head.next, new))
    return address(old)
"""
    made = kernels_in(text)
    head, first, second = made["Node"](), made["Node"](), made["Node"]()
    run: Callable[..., int] = kernel_library(made["f"]).bind(made["f"])
    assert run(head, first) == 0
    assert run(head, second) == first.address


class Shared(Struct):
    gate: u64
    count: u64
    tries: u64


@kernel
def add_under_lock(shared: Shared, rounds: u64) -> None:
    for _ in range(rounds):
        lock(reference(shared.gate))
        shared.count += 1
        unlock(reference(shared.gate))


@kernel
def try_twice(shared: Shared) -> u64:
    first = try_lock(reference(shared.gate))
    second = try_lock(reference(shared.gate))
    fence()
    pause()
    return 10 * as_number(first) + as_number(second)


@kernel
def as_number(truth: bool) -> u64:
    return 1 if truth else 0


def test_a_lock_lets_one_thread_in_at_a_time() -> None:
    library = kernel_library(add_under_lock, try_twice)
    shared, rounds = Shared(), 100_000
    threads = [threading.Thread(target=library.bind(add_under_lock), args=(shared, rounds)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (shared.count, shared.gate) == (4 * rounds, 0)
    assert library.bind(try_twice)(shared) == 10
    assert shared.gate == 1
