"""Stacks of header unions: union_stacks.p4 parses options, each small or large, and does one thing with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dataplane.program.loader import load_program
from tests.dataplane.program.mutation import document
from tests.dataplane.switch.interpreter.harness import Bench, MakeBench

NOTHING, PUSH, POP, COPY_STACK, COPY_UNION, COMPARE, OVERWRITE, COPY_MEMBER = range(8)
FIRST, FIRST_SMALL, SECOND_LARGE, SINGLE, EQUAL = 0x80, 1, 2, 4, 0x40

SMALL, LARGE = 1, 2
A, B, C = "aa", "bb", "cccc"


def options(*kinds: tuple[int, str]) -> tuple[int, str]:
    """Return the first kind, and the hex of all options; an option is (kind, value)."""
    text = ""
    for index, (kind, value) in enumerate(kinds):
        following = kinds[index + 1][0] if index + 1 < len(kinds) else 0
        text += f"{following:02x}" + (value if kind == SMALL else f"{len(value) // 2:02x}{value}")
    return kinds[0][0] if kinds else 0, text


def run(bench: Bench, what: int, *kinds: tuple[int, str]) -> tuple[int, str]:
    """Return the valid headers, and the hex behind the order."""
    first, text = options(*kinds)
    data = bench.send_one(1, bytes([first, what, 0]) + bytes.fromhex(text) + b"\xee")
    assert data[:2] == bytes([first, what])
    return data[2], data[3:].hex()


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return make_bench("union_stacks")


@pytest.mark.parametrize(
    ("what", "kinds", "valid", "left"),
    [
        (NOTHING, [], 0, ""),
        (NOTHING, [(SMALL, A)], FIRST | FIRST_SMALL, "00aa"),
        (NOTHING, [(LARGE, C), (SMALL, A), (LARGE, "")], FIRST, "0102cccc" + "02aa" + "0000"),
        (NOTHING, [(SMALL, A), (LARGE, C)], FIRST | FIRST_SMALL | SECOND_LARGE, "02aa" + "0002cccc"),
        (PUSH, [(LARGE, C)], SECOND_LARGE, "0002cccc"),
        (PUSH, [(SMALL, A), (LARGE, C), (SMALL, B)], 0, "02aa" + "0102cccc"),
        (POP, [(SMALL, A), (LARGE, C), (SMALL, B)], FIRST, "0102cccc" + "00bb"),
        (POP, [(SMALL, A)], 0, ""),
        (COPY_STACK, [(SMALL, A), (LARGE, C)], SECOND_LARGE, "0002cccc" + "02aa" + "0002cccc"),
        (COPY_UNION, [(SMALL, A), (LARGE, C)], FIRST | FIRST_SMALL | SECOND_LARGE | SINGLE, "02aa0002cccc0002cccc"),
        (COPY_UNION, [(SMALL, A)], FIRST | FIRST_SMALL, "00aa"),
        (COMPARE, [(LARGE, C), (LARGE, C)], FIRST | SECOND_LARGE, "0202cccc" + "0002cccc"),
        (COMPARE, [(SMALL, A), (LARGE, C)], FIRST | FIRST_SMALL | SECOND_LARGE, "02aa" + "0002cccc"),
        (COMPARE, [(SMALL, A), (SMALL, A), (SMALL, B)], FIRST | FIRST_SMALL, "01aa" + "01aa" + "00bb"),
        (OVERWRITE, [(SMALL, A), (LARGE, C)], FIRST | FIRST_SMALL, "02aa" + "0066"),
        (COPY_MEMBER, [(SMALL, A), (SMALL, B), (LARGE, C)], FIRST, "0002cccc" + "02bb" + "0002cccc"),
    ],
)
def test_options(bench: Bench, what: int, kinds: list[tuple[int, str]], valid: int, left: str) -> None:
    seen, behind = run(bench, what, *kinds)
    if what == COMPARE and len(kinds) == 3:
        valid |= EQUAL  # every field is equal, the next kind too
    assert (seen, behind) == (valid, left + "ee")


def test_one_option_too_many_is_a_parser_error(bench: Bench) -> None:
    first, text = options((SMALL, A), (SMALL, B), (SMALL, A), (SMALL, B))
    frame = bytes([first, NOTHING, 0]) + bytes.fromhex(text)
    assert bench.send_one(1, frame)[3:] == frame[3:]
    assert bench.pipeline.parser_errors == {"StackOutOfBounds": 1}


@pytest.mark.parametrize("spelling", ["union_stack_field", "field"], ids=["as documented", "as p4c writes it"])
def test_select_on_the_last_union(make_bench: MakeBench, spelling: str) -> None:
    """bmv2 documents a field of the last union; p4c writes it as a field of a header with the stack's name."""
    raw = document("union_stacks")
    for state in raw["parsers"][0]["parse_states"]:
        if state["name"] == "small_option":
            state["parser_ops"] = [op for op in state["parser_ops"] if op["op"] == "extract"]
            path: Any = ["options", "small", "next"] if spelling == "union_stack_field" else ["options", "small.next"]
            state["transition_key"] = [{"type": spelling, "value": path}]
    bench = make_bench(load_program(json.dumps(raw).encode(), None))
    assert run(bench, NOTHING, (SMALL, A), (SMALL, B), (LARGE, C)) == (
        FIRST | FIRST_SMALL,
        "01aa" + "02bb" + "0002ccccee",
    )
