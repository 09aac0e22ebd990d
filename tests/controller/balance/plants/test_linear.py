"""Plant figures for a controller's margin: the steepest step of the table, and the delay of reports."""

from __future__ import annotations

import math

import pytest

from controller.balance.control.stability import margin_of
from controller.balance.errors import PlantError
from controller.balance.plants import Application, Member, Plant, run
from controller.balance.plants.linear import linearised
from controller.balance.plants.loads import constant
from controller.balance.rules import IntervalRule
from controller.balance.values import Gains, LeverKind, Precision, UnitState

SUB_UNITS = IntervalRule(levers=(LeverKind.SUB_UNITS,))


def at(sub_units: int) -> UnitState:
    return UnitState(Precision.INT8, 1000.0, sub_units)


def test_gain_is_the_first_step_beyond_the_dead_band() -> None:
    plant = Plant(application=Application(ops_per_byte=400_000), delay_s=2.5)
    linear = linearised(plant, at(100), 1e6, SUB_UNITS)
    assert linear.gain == pytest.approx(-math.log(0.99) / 0.1)
    assert linear.delay_samples == 3
    assert linear.accumulates


def test_a_lighter_load_answers_less() -> None:
    plant = Plant(application=Application(ops_per_byte=400_000))
    assert linearised(plant, at(100), 2500.0, SUB_UNITS).gain == pytest.approx(-math.log(0.99) / 0.1 / 4)


def test_all_levers_together_answer_more_than_one() -> None:
    plant = Plant(application=Application(ops_per_byte=400_000))
    both = IntervalRule(levers=(LeverKind.SUB_UNITS, LeverKind.FREQUENCY))
    assert linearised(plant, at(100), 1e6, both).gain > linearised(plant, at(100), 1e6, SUB_UNITS).gain


def test_nothing_that_moves_is_an_error() -> None:
    with pytest.raises(PlantError, match="no step of the rule moves the error"):
        linearised(Plant(), at(100), 0.0, SUB_UNITS)


@pytest.mark.parametrize("delay_s", [0, 2, 5])
def test_gains_with_a_margin_do_not_swing_in_the_loop(delay_s: int) -> None:
    """The linear margin of the steepest step is conservative for the real staircase."""
    plant = Plant(application=Application(ops_per_byte=200_000), delay_s=delay_s)
    margin = margin_of(Gains(1.0), linearised(plant, at(50), 1e6, SUB_UNITS))
    assert margin.is_stable
    (trajectory,) = run([Member("unit", plant, at(100), constant(300, 1e6), SUB_UNITS)])
    assert not trajectory.moves[-50:].any()
