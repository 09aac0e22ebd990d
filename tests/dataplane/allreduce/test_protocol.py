"""The slot protocol: every schedule of small jobs; leaving out any rule fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dataplane.allreduce.reference import aggregator
from dataplane.allreduce.reference.aggregator import Aggregator, Cell, Job, Multicast, Sent, Unicast
from dataplane.allreduce.reference.lanes import combine, int32s, of_int32s
from dataplane.wire.aggregation import Aggregation, Flags, Kind, Operation, Reason, age
from tests.dataplane.allreduce import exploring
from tests.dataplane.allreduce.exploring import Case, Explorer

FLAT = Case(racks=((0, 1),), window=1, items=3)
THREE = Case(racks=((0, 1, 2),), window=1, items=2)
DEATH = Case(racks=((0, 1),), window=1, items=2, dies=1)
TREE = Case(racks=((0,), (1,)), window=1, items=2)
RACK_DEATH = Case(racks=((0,), (1,)), window=1, items=1, dies=1)
JOINING = Case(racks=((0, 1),), window=1, items=3, joins=1, joins_at=1)
RACK_JOINING = Case(racks=((0,), (1,)), window=1, items=2, joins=1, joins_at=1)
MOST_WORLDS = 40_000


@pytest.mark.parametrize(
    "case", [FLAT, THREE, DEATH, TREE, RACK_DEATH, JOINING, RACK_JOINING, replace(FLAT, first=2**32 - 2)], ids=repr
)
def test_no_schedule_gives_a_wrong_sum_or_a_deadlock(case: Case) -> None:
    explorer = Explorer(case)
    explorer.explore(MOST_WORLDS)
    assert explorer.problems == []
    wanted = 1 if case.dies is None else 2
    assert {item: len(sums) for item, sums in explorer.completed.items()} == dict.fromkeys(range(case.items), wanted)


@pytest.mark.parametrize("case", [replace(JOINING, held=False), replace(RACK_JOINING, held=False)], ids=repr)
def test_who_joins_without_a_hold_leads_to_a_dead_end(case: Case) -> None:
    explorer = Explorer(case)
    explorer.explore(MOST_WORLDS, to_first_problem=True)
    assert explorer.problems


Contribute = Callable[[Job, Cell, int, Aggregation], tuple[Cell, Sent | None, str]]


def _without_bitmap(right: Contribute) -> Contribute:
    """Return a protocol in which repeated contributions are added again."""

    def contribute(job: Job, cell: Cell, child: int, packet: Aggregation) -> tuple[Cell, Sent | None, str]:
        return right(job, replace(cell, seen=cell.seen & ~(1 << child)), child, packet)

    return contribute


def _without_ages(right: Contribute) -> Contribute:
    """Return a protocol in which long delayed packets reopen a cell."""

    def contribute(job: Job, cell: Cell, child: int, packet: Aggregation) -> tuple[Cell, Sent | None, str]:
        old = cell.value is not None and age(packet.item, than=cell.item) < 0
        return right(job, Cell() if old else cell, child, packet)

    return contribute


def _without_epochs(right: Contribute) -> Contribute:
    """Return a protocol in which contributions from before a death count after it."""

    def contribute(job: Job, cell: Cell, child: int, packet: Aggregation) -> tuple[Cell, Sent | None, str]:
        return right(replace(job, epoch=0), replace(cell, epoch=0), child, replace(packet, epoch=0))

    return contribute


def _results_end_with_their_epoch(right: Contribute) -> Contribute:
    """Return a protocol in which a complete result from before a death is computed again."""

    def contribute(job: Job, cell: Cell, child: int, packet: Aggregation) -> tuple[Cell, Sent | None, str]:
        return right(job, cell if cell.epoch == job.epoch else replace(cell, done=False), child, packet)

    return contribute


def _without_again(right: Contribute) -> Contribute:
    """Return a protocol in which lost results are not repeated."""

    def contribute(job: Job, cell: Cell, child: int, packet: Aggregation) -> tuple[Cell, Sent | None, str]:
        kept, sent, what = right(job, cell, child, packet)
        return kept, None if what == "again" else sent, what

    return contribute


@pytest.mark.parametrize(
    ("broken", "case"),
    [
        (_without_bitmap, FLAT),
        (_without_ages, FLAT),
        (_without_epochs, DEATH),
        (_results_end_with_their_epoch, DEATH),
        (_without_again, FLAT),
    ],
)
def test_every_rule_is_missed_where_it_is_left_out(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[Contribute], Contribute], case: Case
) -> None:
    monkeypatch.setattr(exploring, "contribute", broken(aggregator.contribute))
    explorer = Explorer(case)
    explorer.explore(MOST_WORLDS, to_first_problem=True)
    assert explorer.problems


def _value(*lanes: int, item: int = 1, epoch: int = 1, operation: Operation = Operation.SUM) -> Aggregation:
    return Aggregation(Kind.CONTRIBUTION, 7, item, epoch, operation=operation, values=of_int32s(lanes))


def test_sums_stop_at_the_bounds_and_say_so() -> None:
    switch = Aggregator({7: Job(epoch=1, children=0b11, cells=2)})
    assert switch.from_child(0, _value(2**31 - 1, -(2**31), 5)) is None
    sent = switch.from_child(1, _value(1, -1, 6))
    assert isinstance(sent, Multicast)
    assert int32s(sent.packet.values) == [2**31 - 1, -(2**31), 11]
    assert sent.packet.flags == Flags.SATURATED
    assert sent.packet.workers == 2


def test_the_greater_of_each_16_bits_stays() -> None:
    kept, saturated = combine(Operation.MAX, bytes.fromhex("00018000ffff"), bytes.fromhex("00007fff0000"))
    assert (kept.hex(), saturated) == ("00018000ffff", False)


def test_other_lengths_and_operations_are_refused() -> None:
    switch = Aggregator({7: Job(epoch=1, children=0b11, cells=2)})
    switch.from_child(0, _value(1, 2))
    for other in (_value(1), _value(1, 2, operation=Operation.MAX)):
        sent = switch.from_child(1, other)
        assert isinstance(sent, Unicast)
        assert (sent.packet.kind, sent.packet.reason) == (Kind.REFUSED, Reason.MISMATCH)


def test_a_reader_gets_a_result_that_is_there_and_nothing_before() -> None:
    switch = Aggregator({7: Job(epoch=1, children=0b1, cells=2)})
    pull = Aggregation(Kind.PULL, 7, item=1, epoch=0, values=bytes(4))
    assert switch.from_child(5, pull) is None
    switch.from_child(0, _value(3))
    sent = switch.from_child(5, pull)
    assert isinstance(sent, Unicast)
    assert (sent.child, sent.packet.kind, int32s(sent.packet.values)) == (5, Kind.AGAIN, [3])


def test_no_answer_is_longer_than_its_question() -> None:
    switch = Aggregator({7: Job(epoch=1, children=0b1, cells=2)})
    switch.from_child(0, _value(3, 4))
    sent = switch.from_child(5, Aggregation(Kind.PULL, 7, item=1, epoch=1, values=bytes(4)))
    assert isinstance(sent, Unicast)
    assert (sent.packet.reason, sent.packet.values) == (Reason.MISMATCH, b"")
