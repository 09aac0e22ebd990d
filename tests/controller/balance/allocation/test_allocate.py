"""Allocation by shadow price, priority, minimum shares, hysteresis and rate limits, after units are released."""

from __future__ import annotations

import random

import pytest

from controller.balance.allocation import Claimant, Handover, Limits, Move, allocate, busy_units, hand_over, within_load
from controller.balance.allocation.allocate import worth
from controller.balance.allocation.handover import Holding

FREELY = Limits(margin=0.0)


def claimant(holder: str, units: int, wanted: int, **more: object) -> Claimant:
    return Claimant(holder, units, wanted, **more)  # type: ignore[arg-type]


def from_scratch(units: int, claimants: list[Claimant]) -> dict[str, int]:
    """Give unit by unit to the claimant with the highest worth: the plain twin."""
    allocated = {each.holder: 0 for each in claimants}
    for _ in range(units):
        best = max(claimants, key=lambda each: (worth(each, allocated[each.holder] + 1), each.holder))
        if worth(best, allocated[best.holder] + 1)[0] == 0:
            break
        allocated[best.holder] += 1
    return allocated


def total_worth(claimants: list[Claimant], units: dict[str, int]) -> list[float]:
    worths = (worth(each, count) for each in claimants for count in range(1, units[each.holder] + 1))
    return [float(part) for each in sorted(worths, reverse=True) for part in each]


def test_worked_example_moves_freed_units_to_the_claimant() -> None:
    """I frees 50 of 100, II asks for 100 more and gets those 50."""
    allocation = allocate(200, [claimant("i", 100, 50), claimant("ii", 100, 200)], Limits())
    assert dict(allocation.units) == {"i": 50, "ii": 150}
    assert set(allocation.moves) == {Move("i", None, 50), Move(None, "ii", 50)}
    assert allocation.prices["i"] == 0.0
    assert allocation.shadow_price == allocation.prices["ii"] == 1 / 151


@pytest.mark.parametrize("seed", range(40))
def test_allocation_reaches_the_worth_of_sharing_from_scratch(seed: int) -> None:
    rng = random.Random(seed)
    total = rng.randint(0, 60)
    claimants, left = [], total
    for number in range(rng.randint(1, 6)):
        units = rng.randint(0, left)
        left -= units
        least = rng.randint(0, 4)
        most = rng.choice([None, least + rng.randint(0, 30)])
        claimants.append(
            claimant(
                f"h{number}", max(units, 0), rng.randint(0, 60), least=least, most=most, weight=rng.choice([0.5, 1, 3])
            )
        )
    allocation = allocate(total, claimants, FREELY)
    assert sum(allocation.units.values()) <= total
    if sum(each.least for each in claimants) <= total:
        scratch = from_scratch(total, claimants)
        assert total_worth(claimants, dict(allocation.units)) == pytest.approx(total_worth(claimants, scratch))


def test_claimants_reach_equal_prices_by_weight() -> None:
    allocation = allocate(90, [claimant("a", 90, 100), claimant("b", 0, 100, weight=2.0)], FREELY)
    assert dict(allocation.units) == {"a": 30, "b": 60}
    assert allocation.prices["a"] == pytest.approx(allocation.prices["b"], rel=0.02)


def test_higher_priority_is_served_first_but_for_minimum_shares() -> None:
    allocation = allocate(100, [claimant("low", 100, 100, least=10), claimant("high", 0, 200, priority=1)], FREELY)
    assert dict(allocation.units) == {"low": 10, "high": 90}


def test_unused_units_go_to_a_starving_claimant() -> None:
    """Bus and load of 25 % each are an error of 0: nothing is freed although three of four units idle."""
    assert busy_units(80, 0.25) == 23
    idle = claimant("idle", 80, 80, busy=busy_units(80, 0.25))
    allocation = allocate(100, [idle, claimant("starves", 20, 60, busy=busy_units(20, 1.0))], Limits())
    assert dict(allocation.units) == {"starves": 60, "idle": 40}
    more = allocate(100, [idle, claimant("starves", 20, 200, busy=busy_units(20, 1.0))], Limits())
    assert dict(more.units) == {"starves": 77, "idle": 23}


def test_idle_units_are_not_wanted_below_the_load_to_free_to() -> None:
    assert within_load(80, 80, 0.25, 0.8) == 25
    assert within_load(80, 80, 0.85, 0.8) == 80
    assert within_load(20, 80, 0.25, 0.8) == 20
    assert within_load(90, 80, 0.25, 0.8) == 90
    assert within_load(80, 80, 0.25, 0.0) == 80


def test_minimum_share_is_kept_although_unwanted() -> None:
    allocation = allocate(10, [claimant("a", 0, 0, least=3), claimant("b", 10, 10)], Limits())
    assert dict(allocation.units) == {"a": 3, "b": 7}


def test_hysteresis_leaves_units_of_similar_worth() -> None:
    claimants = [claimant("a", 52, 100), claimant("b", 48, 100)]
    assert allocate(100, claimants, Limits(margin=0.1)).moves == ()
    assert dict(allocate(100, claimants, FREELY).units) == {"a": 50, "b": 50}
    far = [claimant("a", 80, 100), claimant("b", 20, 100)]
    allocation = allocate(100, far, Limits(margin=0.1))
    again = [claimant(holder, units, 100) for holder, units in allocation.units.items()]
    assert allocation.moves
    assert allocate(100, again, Limits(margin=0.1)).moves == ()


def test_rate_limits_bound_moves() -> None:
    allocation = allocate(100, [claimant("a", 100, 0), claimant("b", 0, 100)], Limits(moves=7))
    assert sum(move.units for move in allocation.moves) == 7
    assert allocation.units["a"] == 93


def test_recently_moved_and_silent_holders_keep_their_units() -> None:
    claimants = [
        claimant("moved", 50, 10, may_give=False),
        claimant("silent", 50, 10, is_fixed=True),
        claimant("b", 0, 100),
    ]
    assert allocate(100, claimants, FREELY).moves == ()
    more = allocate(110, [claimant("silent", 50, 90, is_fixed=True), claimant("moved", 50, 90, may_give=False)], FREELY)
    assert dict(more.units) == {"moved": 60, "silent": 50}


def test_shrinking_takes_the_least_valuable_units() -> None:
    allocation = allocate(60, [claimant("a", 50, 50), claimant("b", 50, 50, least=40)], Limits())
    assert dict(allocation.units) == {"a": 20, "b": 40}


def test_a_unit_is_given_only_once_its_holder_has_let_go_of_it() -> None:
    allocation = allocate(100, [claimant("i", 50, 40), claimant("ii", 50, 60)], Limits())
    asked = hand_over(100, {"i": Handover("i", 50, 50), "ii": Handover("ii", 50, 50)}, allocation)
    assert asked == (Holding("i", 50, leaving=10), Holding("ii", 50))
    partly = hand_over(100, {"i": Handover("i", 50, 46), "ii": Handover("ii", 50, 50)}, allocation)
    assert partly == (Holding("i", 46, leaving=6), Holding("ii", 54))
    done = hand_over(100, {"i": Handover("i", 46, 40), "ii": Handover("ii", 54, 50)}, allocation)
    assert done == (Holding("i", 40), Holding("ii", 60))


def test_a_large_pool_is_shared_out_in_one_go() -> None:
    claimants = [claimant(f"h{number}", 0, 1000, weight=1 + number % 3) for number in range(1000)]
    allocation = allocate(100_000, claimants, Limits())
    assert sum(allocation.units.values()) == 100_000
    assert max(allocation.prices.values()) <= min(allocation.prices.values()) * 1.02
