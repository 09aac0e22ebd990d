"""Wide and signed numbers against Python's own, varbits, stacks and error codes: numbers.p4."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dataplane.switch.interpreter.harness import Bench, MakeBench

UNLUCKY, NO_ERROR, OUT_OF_BOUNDS, ANOTHER = 1, 0, 3, 2
OPERANDS_BYTES, RESULTS_BYTES = 52, 16 * 5 + 9 * 4 + 16 * 2 + 18 + 3
WIDE = st.integers(0, (1 << 128) - 1) | st.sampled_from([0, 1, (1 << 127), (1 << 128) - 1, (1 << 64) - 1, 1 << 64])
SIGNED = st.integers(-(1 << 71), (1 << 71) - 1) | st.sampled_from([0, -1, 1 << 70, -(1 << 71), (1 << 71) - 1])
MASK = (1 << 128) - 1


@pytest.fixture(scope="module")
def bench(make_bench: MakeBench) -> Bench:
    return make_bench("numbers")


def frame(what: int = 0, shift: int = 0, a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> bytes:
    signed = [number.to_bytes(9, "big", signed=True) for number in (c, d)]
    return bytes([what, shift]) + a.to_bytes(16, "big") + b.to_bytes(16, "big") + signed[0] + signed[1]


def wrapped(value: int, width: int) -> int:
    return ((value + (1 << (width - 1))) & ((1 << width) - 1)) - (1 << (width - 1))


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def read(data: bytes) -> list[int]:
    """Return the wide results, then the signed ones, as numbers in the order of the header."""
    sizes = [(16, False)] * 5 + [(9, True)] * 4 + [(16, False)] * 2 + [(18, True), (1, True), (1, False), (1, False)]
    numbers: list[int] = []
    for size, signed in sizes:
        numbers.append(int.from_bytes(data[:size], "big", signed=signed))
        data = data[size:]
    return numbers


@given(a=WIDE, b=WIDE, c=SIGNED, d=SIGNED, shift=st.integers(0, 255))
def test_arithmetic(bench: Bench, a: int, b: int, c: int, d: int, shift: int) -> None:
    low, high = -(1 << 71), (1 << 71) - 1
    comparisons = (a < b, c < d, c >= -1, a == b or c == d)
    assert read(bench.send_one(1, frame(0, shift, a, b, c, d))) == [
        (a + b) & MASK,
        (a - b) & MASK,
        a * b & MASK,
        clamp(a + b, 0, MASK),
        clamp(a - b, 0, MASK),
        wrapped(c + d, 72),
        clamp(c + d, low, high),
        clamp(c - d, low, high),
        c >> shift,
        (a << shift & MASK) ^ b >> shift,
        (a >> 36 & (1 << 64) - 1) << 64 | b >> 7 & (1 << 64) - 1,
        c,
        wrapped(d, 8),
        sum(truth << bit for bit, truth in enumerate(comparisons)),
        NO_ERROR,
    ]


def items(*texts: str) -> str:
    """Return items that are parsed one behind the other: the last one says that it is."""
    return "".join(
        f"{len(text) // 2:x}{0 if index + 1 < len(texts) else 1:x}{text}" for index, text in enumerate(texts)
    )


def behind(bench: Bench, what: int, shift: int, rest: str) -> tuple[int, str]:
    """Return the problem byte, and the hex behind the operands."""
    sent = bench.send_one(1, frame(what, shift) + bytes.fromhex(rest))
    return sent[RESULTS_BYTES - 1], sent[RESULTS_BYTES + OPERANDS_BYTES :].hex()


THREE = items("aa", "bbbb", "")


@pytest.mark.parametrize(
    ("what", "shift", "rest", "problem", "left"),
    [
        (0x40, 0, THREE, NO_ERROR, THREE),
        (0x40, 0, "00" + "00" + "00" + "00", OUT_OF_BOUNDS, "00" * 4),
        (0x83, 3, THREE, NO_ERROR, THREE),
        (0x83, 7, THREE, NO_ERROR, THREE),
        (0x90, 0x10, THREE, NO_ERROR, THREE),
        (13, 0, THREE, UNLUCKY, THREE),
        (0x40, 0, "f0aa", ANOTHER, "f0aa"),
        (0x41, 1, THREE, NO_ERROR, "10aa" + "2fbbbb" + "01"),
        (0x42, 1, THREE, NO_ERROR, THREE + "20bbbb"),
        (0x42, 2, THREE, NO_ERROR, THREE + "01"),
        (0x43, 0, THREE, NO_ERROR, "10aa" + "10aa"),
        (0x44, 0, items("aabb", "aabb"), 0x44, items("aabb", "aabb")),
        (0x44, 0, items("aabb", "aacc"), NO_ERROR, items("aabb", "aacc")),
        (0x45, 0, items("aabb"), NO_ERROR, "21aabb" + "20aabb"),
        (0x46, 0, THREE, 0x80, "10aa" + "20bbbb"),
        (0x47, 0, THREE, NO_ERROR, "20bbbb" + "01"),
    ],
    ids=[
        "varbits in a stack",
        "stack out of bounds",
        "range of values",
        "outside of a range",
        "reject",
        "an error of the program",
        "an error of the core",
        "field by run-time index",
        "header by run-time index",
        "an empty varbit by run-time index",
        "an element copied over another",
        "equal varbits",
        "unequal varbits",
        "a varbit alone copied",
        "push",
        "pop",
    ],
)
def test_stack_of_varbits(bench: Bench, what: int, shift: int, rest: str, problem: int, left: str) -> None:
    assert behind(bench, what, shift, rest + "ee") == (problem, left + "ee")


def test_sizes() -> None:
    assert (len(frame()), struct.calcsize("!BB16s16s9s9s")) == (OPERANDS_BYTES, OPERANDS_BYTES)
