"""The switch's part of the store: every order of a few writes; leaving out any rule fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dataplane.store.reference import holder
from dataplane.store.reference.holder import Cell, Held, On, Sender, Sent
from dataplane.wire.store import Kind, Message
from tests.dataplane.store import exploring
from tests.dataplane.store.exploring import Case, Explorer

MOST_WORLDS = 40_000
CASES = [Case(), Case(full_acks=True), Case(first=2**32 - 2), Case(writes=3, insertions=1)]
Receive = Callable[[Held, Cell, Sender, Message, int], tuple[Cell, Sent, str]]


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_no_packet_order_serves_a_value_replaced_by_a_write(case: Case) -> None:
    explorer = Explorer(case)
    assert explorer.explore(MOST_WORLDS) > 500
    assert explorer.problems == []
    assert explorer.hits


def _older_versions_are_taken(right: Receive) -> Receive:
    def receive(held: Held, cell: Cell, sender: Sender, message: Message, now_us: int) -> tuple[Cell, Sent, str]:
        return right(held, replace(cell, version=0), sender, message, now_us)

    return receive


def _acknowledgements_are_not_looked_at(right: Receive) -> Receive:
    def receive(held: Held, cell: Cell, sender: Sender, message: Message, now_us: int) -> tuple[Cell, Sent, str]:
        if message.kind is Kind.PUT_ACK:
            return cell, On(message), "passed"
        return right(held, cell, sender, message, now_us)

    return receive


def _a_new_cell_believes_whatever_goes_by(right: Receive) -> Receive:
    def receive(held: Held, cell: Cell, sender: Sender, message: Message, now_us: int) -> tuple[Cell, Sent, str]:
        mine = cell if cell.generation == held.generation else Cell(held.generation)
        return right(held, replace(mine, synced=True), sender, message, now_us)

    return receive


def _a_put_has_a_tag_as_well(right: Receive) -> Receive:
    def receive(held: Held, cell: Cell, sender: Sender, message: Message, now_us: int) -> tuple[Cell, Sent, str]:
        if message.kind is Kind.PUT:
            return cell, On(replace(message, tag=held.generation)), "passed"
        return right(held, cell, sender, message, now_us)

    return receive


def _a_name_comes_back_to_what_was_there(right: Receive) -> Receive:
    def receive(held: Held, cell: Cell, sender: Sender, message: Message, now_us: int) -> tuple[Cell, Sent, str]:
        return right(held, replace(cell, generation=held.generation), sender, message, now_us)

    return receive


def _nothing_has_a_tag(right: Receive) -> Receive:
    def receive(held: Held, cell: Cell, sender: Sender, message: Message, now_us: int) -> tuple[Cell, Sent, str]:
        kept, sent, what = right(held, cell, sender, message, now_us)
        return kept, replace(sent, message=replace(sent.message, tag=message.tag)), what

    return receive


@pytest.mark.parametrize(
    "broken",
    [
        _older_versions_are_taken,
        _acknowledgements_are_not_looked_at,
        _a_new_cell_believes_whatever_goes_by,
        _a_put_has_a_tag_as_well,
        _a_name_comes_back_to_what_was_there,
        _nothing_has_a_tag,
    ],
)
def test_every_rule_is_missed_where_it_is_left_out(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[Receive], Receive]
) -> None:
    monkeypatch.setattr(exploring, "receive", broken(holder.receive))
    explorer = Explorer(Case(full_acks=True))
    explorer.explore(MOST_WORLDS)
    assert explorer.problems
