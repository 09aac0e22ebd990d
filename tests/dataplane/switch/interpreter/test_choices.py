"""Value sets, match kinds, priorities, switch statements and exit: choices.p4."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dataplane.program.objects import ActionCall
from tests.dataplane.switch.interpreter.harness import Bench, MakeBench


@dataclass(frozen=True)
class Trace:
    """Branches that the packet took."""

    parsed: int
    sets: int
    kinds: int
    listed: int
    smallest: int
    largest: int
    switched: int
    egress: int


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return make_bench("choices")


def trace(bench: Bench, first: int = 0, second: int = 0, what: int = 0, port: int = 1) -> Trace:
    return Trace(*bench.send_one(port, bytes([first]) + second.to_bytes(2, "big") + bytes([what]))[:8])


def test_empty_value_sets_match_nothing(bench: Bench) -> None:
    assert [trace(bench, first).parsed for first in (0x11, 0x22, 0x33, 0x44)] == [1, 3, 0, 0]
    assert trace(bench, 0x33, 0x4444).parsed == 1


def test_value_sets_stand_in_order_with_the_other_cases(bench: Bench) -> None:
    bench.state.value_sets["Parse.singles"].replace([(0x11,), (0x22,), (0x55,)])
    assert [trace(bench, first).parsed for first in (0x11, 0x22, 0x55, 0x56)] == [1, 2, 2, 0]
    bench.state.value_sets["Parse.singles"].replace([])
    assert [trace(bench, first).parsed for first in (0x22, 0x55)] == [3, 0]


def test_value_set_with_several_fields_of_several_kinds(bench: Bench) -> None:
    bench.state.value_sets["Parse.pairs"].replace([((0x40, 0xF0), (0x100, 0x1FF)), ((0x33, 0xFF), (0, 0xFFFF))])
    assert trace(bench, 0x4F, 0x1FF).parsed == 4
    assert trace(bench, 0x4F, 0x200).parsed == 0
    assert trace(bench, 0x33, 0x4444).parsed == 1
    assert trace(bench, 0x33, 0x4445).parsed == 4


def test_match_kinds_and_priorities(bench: Bench) -> None:
    def add(match: tuple[object, ...], priority: int, value: int) -> None:
        bench.insert("Inbound.kinds", match, ActionCall("Inbound.set_kind", (value,)), priority)

    add((1, (10, 20), None, (0, 0)), 1, 1)
    add((1, (15, 20), None, (0, 0)), 2, 2)
    add((1, (0, 0xFFFF), 7, (0, 0)), 3, 3)
    add((1, (0, 0xFFFF), None, (0x100, 0x100)), 4, 4)
    results = [
        trace(bench, 1, second, what, port).kinds
        for second, what, port in ((9, 0, 1), (10, 0, 1), (20, 0, 1), (21, 0, 1), (20, 7, 1), (20, 7, 0x101))
    ]
    assert results == [0, 1, 2, 0, 3, 4]
    assert trace(bench, 2, 15).kinds == 0


@pytest.mark.parametrize(
    ("second", "what", "listed"),
    [(0x1200, 1, 1), (0x1234, 1, 2), (0x1235, 1, 3), (0x1300, 1, 0xFF), (0x1234, 2, 4), (0x1234, 3, 0xFF)],
)
def test_constant_entries_by_longest_prefix(bench: Bench, second: int, what: int, listed: int) -> None:
    assert trace(bench, 0, second, what).listed == listed


@pytest.mark.parametrize(("second", "value"), [(0x00, 1), (0x10, 2), (0x1F, 2), (0x20, 3), (0x30, 1), (0x100, 0)])
def test_smallest_priority_wins(bench: Bench, second: int, value: int) -> None:
    assert trace(bench, 0, second).smallest == value


@pytest.mark.parametrize(("second", "value"), [(0x10, 1), (0x11, 1), (0x21, 2)])
def test_largest_priority_wins(bench: Bench, second: int, value: int) -> None:
    assert trace(bench, 0, second).largest == value


@pytest.mark.parametrize(
    ("first", "what", "sets", "switched"),
    [
        (0x11, 1, 0x10, 0x11),
        (0x12, 2, 0x20, 0x12),
        (0x13, 0, 0x30, 0x20),
        (0x14, 1, 0x10, 0x41),
        (0x11, 3, 0x20, 0x02),
    ],
    ids=["action and value", "falls through", "no hit", "default", "exit in a case"],
)
def test_switch(bench: Bench, first: int, what: int, sets: int, switched: int) -> None:
    seen = trace(bench, first, 0, what)
    assert (seen.sets, seen.switched) == (sets, switched)


def test_exit_ends_its_own_pipeline_only(bench: Bench) -> None:
    assert trace(bench, what=3).egress == 0x81
    assert trace(bench, what=4).egress == 2
