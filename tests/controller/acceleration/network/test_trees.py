"""Senders and receivers in each round of a reduction tree."""

from __future__ import annotations

import math

import pytest

from controller.acceleration.errors import AccelerationError
from controller.acceleration.network.trees import Aggregators, Transfer, reduction_tree


def names(count: int) -> list[str]:
    return [f"h{number}" for number in range(1, count + 1)]


@pytest.mark.parametrize("aggregators", Aggregators)
@pytest.mark.parametrize("fan_in", [2, 3, 10, 999])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 9, 10, 11, 21, 100, 101])
def test_reduction_tree_sums_each_machine_once_within_fan_in(count: int, fan_in: int, aggregators: Aggregators) -> None:
    tree = reduction_tree(names(count), fan_in, aggregators)
    held = {name: frozenset([name]) for name in names(count)}
    for groups in tree.rounds:
        assert len({group.aggregator for group in groups}) == len(groups)
        assert sorted(member for group in groups for member in group.members) == sorted(held)
        assert all(len(group.members) <= fan_in for group in groups)
        sums = {group.aggregator: [held[member] for member in group.members] for group in groups}
        assert all(sum(map(len, parts)) == len(frozenset().union(*parts)) for parts in sums.values())
        held = {name: frozenset().union(*parts) for name, parts in sums.items()}
    assert held == {tree.root: frozenset(names(count))}
    rounds = 0
    while fan_in**rounds < count:
        rounds += 1
    assert len(tree.rounds) == rounds


def test_apart_all_members_send_as_the_specification_counts() -> None:
    tree = reduction_tree(names(1000), 10)
    assert [len(transfers) for transfers in tree.transfers] == [1000, 100, 10]
    assert sum(map(len, tree.rounds)) == 111, "the nodes that take part in aggregating, in the specification's words"
    assert sum(map(len, tree.transfers)) * 0.1 == pytest.approx(111)
    assert math.log10(1000) == len(tree.rounds)


def test_a_member_that_sums_up_keeps_its_own_part() -> None:
    tree = reduction_tree(names(5), 3, Aggregators.MEMBER)
    assert tree.transfers == (
        (Transfer("h2", "h1"), Transfer("h3", "h1"), Transfer("h5", "h4")),
        (Transfer("h4", "h1"),),
    )


def test_member_of_a_single_group_sums_up() -> None:
    assert reduction_tree(names(3), 10).transfers == ((Transfer("h2", "h1"), Transfer("h3", "h1")),)


def test_impossible_tree_is_refused() -> None:
    with pytest.raises(AccelerationError, match="fan-in 1: a reduction tree needs at least 2"):
        reduction_tree(names(3), 1)
    with pytest.raises(AccelerationError, match="at least one machine"):
        reduction_tree([], 10)
    with pytest.raises(AccelerationError, match="machine h1 is in the reduction tree twice"):
        reduction_tree(["h1", "h2", "h1"], 10)
