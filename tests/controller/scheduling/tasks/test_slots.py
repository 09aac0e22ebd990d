"""Times at which units are free: a plan's bookkeeping, checked against one that tracks each unit separately."""

from __future__ import annotations

import random

import pytest

from controller.scheduling.tasks.slots import NEVER_S, Slots


def test_units_begin_when_as_many_are_free() -> None:
    slots = Slots(4, [(2, 10.0), (1, 20.0)])
    assert [slots.start_s(units, 5.0) for units in range(1, 6)] == [0.0, 10.0, 10.0, 20.0, NEVER_S]
    assert slots.start_s(0, 5.0) == NEVER_S
    assert slots.free == 1


def test_units_held_indefinitely_are_never_free() -> None:
    assert Slots(2, [(1, NEVER_S)]).start_s(2, 1.0) == NEVER_S
    assert Slots(2, [(9, 5.0)]).start_s(1, 1.0) == 5.0


def test_idle_units_before_a_waiting_task_go_to_shorter_ones() -> None:
    slots = Slots(4, [(2, 100.0)])
    slots.take(4, 50.0, 100.0)
    assert slots.start_s(2, 60.0) == 0.0
    assert slots.start_s(2, 120.0) == 150.0
    slots.take(1, 60.0, 0.0)
    assert slots.free == 1
    # No earlier plan is delayed: the four units still belong to the waiting task.
    assert slots.start_s(4, 1.0) == 150.0


@pytest.mark.parametrize("seed", range(8))
def test_plans_never_give_more_units_than_there_are(seed: int) -> None:
    """Planned tasks never hold more units than offered."""
    rng = random.Random(seed)
    count = rng.randrange(1, 9)
    held = [(rng.randrange(1, 3), rng.choice([1.0, 5.0, 30.0])) for _ in range(rng.randrange(4))]
    slots, planned, left = Slots(count, held), [], count
    for units, until_s in sorted(held, key=lambda pair: -pair[1]):
        planned.append((0.0, until_s, min(units, left)))
        left -= min(units, left)
    for _ in range(40):
        units, seconds = rng.randrange(1, count + 1), rng.choice([1.0, 2.0, 7.0, 40.0])
        start_s = slots.start_s(units, seconds)
        assert start_s < NEVER_S
        slots.take(units, seconds, start_s)
        planned.append((start_s, start_s + seconds, units))
    for at_s in sorted({start for start, _, _ in planned}):
        assert sum(units for start, end, units in planned if start <= at_s < end) <= count
