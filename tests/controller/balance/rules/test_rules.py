"""The table's and the platform's rule, each alone, and what an exhausted lever hands on."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from controller.balance.errors import RuleError
from controller.balance.rules import (
    ORDER,
    IntervalRule,
    IntervalTable,
    Limits,
    PlatformRule,
    Row,
    hand_on,
    wanted_units,
)
from controller.balance.rules.capacity import stepped
from controller.balance.values import Change, LeverKind, Precision, Sample, UnitState
from dataplane.config import loads
from dataplane.errors import ConfigError

INT8_ONLY = (Precision.INT8,)


def unit(sub_units: int = 100, mhz: float = 1000.0, precision: Precision = Precision.INT8) -> UnitState:
    return UnitState(precision, mhz, sub_units)


def sample(bus: float, load: float) -> Sample:
    return Sample(0.0, bus, load)


def test_table_frees_two_units_and_platform_fifty_at_half_error() -> None:
    seen = sample(1.0, 0.5)
    assert IntervalRule().change(0.5, seen, unit()) == Change(0, -100, -2)
    assert PlatformRule().change(0.5, seen, unit()) == Change(sub_units=-50)


def test_at_a_quarter_too_little_the_table_keeps_the_frequency() -> None:
    assert IntervalRule().change(-0.25, sample(0.75, 1.0), unit(150)) == Change(sub_units=1)


def test_levers_alone_or_combined() -> None:
    seen = sample(1.0, 0.2)
    for lever, change in (
        (LeverKind.PRECISION, Change(precision_steps=2)),
        (LeverKind.FREQUENCY, Change(frequency_mhz=-300)),
        (LeverKind.SUB_UNITS, Change(sub_units=-4)),
    ):
        assert IntervalRule(levers=(lever,)).change(0.8, seen, unit()) == change
    both = IntervalRule(levers=(LeverKind.SUB_UNITS, LeverKind.FREQUENCY))
    assert both.change(0.8, seen, unit()) == Change(frequency_mhz=-300, sub_units=-4)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("levers: []", "at least one"),
        ("levers: [frequency, frequency]", "duplicate"),
        ("levers: [volts]", "not one of"),
    ],
)
def test_unknown_levers_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        loads(text, IntervalRule)


def test_a_step_that_would_swing_past_the_band_is_left_out() -> None:
    """With work for 3.5 of 4 units, no unit is too many or too few."""
    few, many = sample(1.0, 0.875), sample(3 / 3.5, 1.0)
    loose = IntervalRule(levers=(LeverKind.SUB_UNITS,), guarded=False)
    assert loose.change(few.error, few, unit(4)) == Change(sub_units=-1)
    assert loose.change(many.error, many, unit(3)) == Change(sub_units=1)
    guarded = IntervalRule(levers=(LeverKind.SUB_UNITS,))
    moves = [guarded.change(sample.error, sample, unit(count)) for sample, count in ((few, 4), (many, 3))]
    assert Change() in moves


def test_the_platform_wants_n_times_load_over_bus_exactly() -> None:
    assert wanted_units(100, Fraction(1), Fraction(1, 2)) == 50
    assert wanted_units(100, Fraction(1, 2), Fraction(1)) == 200
    assert wanted_units(150, Fraction(3, 4), Fraction(1)) == 200
    assert wanted_units(7, Fraction(1, 3), Fraction(1, 9)) == Fraction(7, 3)


@pytest.mark.parametrize(
    ("bus", "load", "here", "by"),
    [
        (1.0, 0.95, 100, 0),  # below the threshold
        (1.0, 0.499, 100, -50),  # 49.9: the fiftieth has work
        (1.0, 0.0, 100, -75),  # no computation: at least a quarter is kept
        (0.0, 1.0, 100, 300),  # no transfers: at most four times as many
        (0.0, 0.0, 100, 0),
        (0.3, 0.6, 100, 100),
        (1.0, 0.3, 1, 0),  # the last one stays
    ],
)
def test_the_platform_rule_rounds_up_and_is_bounded(bus: float, load: float, here: int, by: int) -> None:
    assert PlatformRule().change(bus - load, sample(bus, load), unit(here)) == Change(sub_units=by)


@pytest.mark.parametrize("rule", [IntervalRule(asks_from_load=0.9), PlatformRule(asks_from_load=0.9)])
def test_idle_cores_get_nothing_if_settings_say_so(rule: IntervalRule | PlatformRule) -> None:
    light, full = sample(0.25, 0.5), sample(0.5, 1.0)
    assert rule.change(-0.25, light, unit()) == Change()
    assert rule.change(-0.5, full, unit()).sub_units > 0
    assert rule.change(0.25, sample(0.5, 0.25), unit()).sub_units < 0
    assert IntervalRule().change(-0.25, light, unit()) == Change(sub_units=1)
    assert PlatformRule().change(-0.25, light, unit()) == Change(sub_units=100)


def test_platform_rule_holds_when_controller_and_sample_disagree() -> None:
    assert PlatformRule().change(-0.5, sample(1.0, 0.5), unit()) == Change()


def test_change_within_the_limits_is_not_handed_on() -> None:
    change = Change(-1, 100.0, 4)
    assert hand_on(change, unit(), Limits()).change == change
    assert hand_on(change, unit(), Limits()).left == 1.0


def test_an_exhausted_lever_hands_on_to_the_next() -> None:
    """From sub-units to the clock to precision, all in terms of speed."""
    limits = Limits(sub_units_high=150, frequency_high_mhz=2000)
    assert hand_on(Change(sub_units=50), unit(150), limits).change.frequency_mhz == pytest.approx(1000 / 3)
    capped = Limits(sub_units_high=150, frequency_high_mhz=1100, precisions=INT8_ONLY)
    step = hand_on(Change(sub_units=50), unit(150), capped)
    assert step.change == Change(frequency_mhz=100.0)
    assert step.left == pytest.approx(200 / 150 / 1.1)
    to_precision = hand_on(Change(sub_units=150), unit(150), replaced(capped, tuple(Precision)))
    assert to_precision.change == Change(-1, 100.0, 0)
    assert to_precision.left == pytest.approx(1 / 1.1)


def replaced(limits: Limits, precisions: tuple[Precision, ...]) -> Limits:
    return Limits(
        precisions=precisions, sub_units_high=limits.sub_units_high, frequency_high_mhz=limits.frequency_high_mhz
    )


def test_a_precision_that_would_be_further_off_is_not_taken() -> None:
    """A fifth more speed is wanted; a step would double it."""
    limits = Limits(sub_units_high=150, frequency_high_mhz=1100)
    assert hand_on(Change(sub_units=50), unit(150), limits).change.precision_steps == 0


def test_an_exhausted_lever_hands_on_downwards_too() -> None:
    limits = Limits(sub_units_low=100, frequency_low_mhz=800)
    step = hand_on(Change(sub_units=-50), unit(), limits)
    assert step.change.frequency_mhz == -200
    assert step.change.precision_steps == 1  # half the speed is nearer to 5/8 than the whole
    assert step.left == pytest.approx(0.5 / 0.8 / 0.5)


def test_handed_on_change_is_bounded_by_the_largest_step() -> None:
    limits = Limits(sub_units_high=100)
    most = Change(2, 300, 4)
    assert hand_on(Change(sub_units=100), unit(), limits, most=most).change.frequency_mhz == 300


def test_item_16_concurrency_and_power_take_what_units_lack() -> None:
    limits = Limits(precisions=INT8_ONLY, sub_units_high=100, concurrency_high=4, power_low_w=100, power_high_w=250)
    before = replace(unit(), concurrency=2, power_w=200.0)
    made = hand_on(Change(sub_units=150), before, limits, order=(*ORDER[:2], LeverKind.POWER))
    assert made.change == Change(concurrency=2, power_w=50.0)
    assert made.left == pytest.approx(1.0)
    own = IntervalRule(
        table=IntervalTable(
            rows=(
                Row(interval="[-1, -0.1)", concurrency=1, power_w=20),
                Row(interval="[-0.1, 0.1]"),
                Row(interval="(0.1, 1]", concurrency=-1, power_w=-20),
            )
        )
    )
    assert own.change(0.5, Sample(1.0, 0.9, 0.1), before) == Change(concurrency=-1, power_w=-20)
    with pytest.raises(ValueError, match="power_w makes cores faster where u is above 0"):
        Row(interval="(0.1, 1]", power_w=20)
    with pytest.raises(RuleError, match="a concurrency of 0 and 200 W has nothing to move"):
        hand_on(Change(), replace(before, concurrency=0), limits)


def test_order_of_levers_and_levers_outside_it() -> None:
    limits = Limits(sub_units_high=100)
    alone = hand_on(Change(sub_units=100), unit(), limits, order=(LeverKind.SUB_UNITS,))
    assert (alone.change, alone.left) == (Change(), 2.0)
    accuracy_first = (LeverKind.SUB_UNITS, LeverKind.PRECISION, LeverKind.FREQUENCY)
    assert hand_on(Change(sub_units=100), unit(), limits, order=accuracy_first).change == Change(precision_steps=-1)


def test_lever_beyond_its_limits_is_not_pulled_back() -> None:
    limits = Limits(sub_units_high=100, frequency_high_mhz=900)
    assert hand_on(Change(), unit(120, 1000), limits).change == Change()
    assert hand_on(Change(sub_units=2), unit(120, 1000), limits, order=(LeverKind.SUB_UNITS,)).change == Change()


def test_clock_moves_on_its_grid_and_never_beyond_the_request() -> None:
    limits = Limits(frequency_low_mhz=210, frequency_high_mhz=1410, frequency_step_mhz=15)
    assert hand_on(Change(frequency_mhz=100), unit(mhz=1005), limits).change.frequency_mhz == 90
    assert hand_on(Change(frequency_mhz=-100), unit(mhz=1005), limits).change.frequency_mhz == -90
    assert hand_on(Change(frequency_mhz=-5), unit(mhz=1005), limits).change.frequency_mhz == 0


def test_a_unit_with_nothing_to_move_is_an_error() -> None:
    with pytest.raises(RuleError, match="0 sub-units at 1000 MHz has nothing to move"):
        hand_on(Change(sub_units=1), unit(0), Limits())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("precisions: []", "at least one"),
        ("{frequency_low_mhz: 2000, frequency_high_mhz: 1000}", "above frequency_high_mhz"),
        ("{sub_units_low: 5, sub_units_high: 4}", "above sub_units_high"),
        ("sub_units_low: 0", ">= 1"),
    ],
)
def test_limits_that_cannot_be_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        loads(text, Limits)


@pytest.mark.parametrize(
    ("steps", "allowed", "to"),
    [
        (2, tuple(Precision), Precision.INT32),
        (-1, tuple(Precision), Precision.INT4),
        (-2, tuple(Precision), Precision.INT4),
        (1, (Precision.INT8, Precision.FP16, Precision.FP32), Precision.FP16),
        (2, (Precision.INT8, Precision.FP16, Precision.FP32), Precision.FP32),
        (1, (Precision.FP16, Precision.FP32), Precision.FP16),  # starts at a disallowed one
        (-1, (Precision.FP16,), Precision.INT8),
        (0, (Precision.FP16,), Precision.INT8),
    ],
)
def test_precision_steps_within_the_applications_limits(
    steps: int, allowed: tuple[Precision, ...], to: Precision
) -> None:
    assert stepped(Precision.INT8, steps, allowed) is to


def test_samples_at_an_end_guard_nothing() -> None:
    seen = replace(sample(1.0, 0.0))
    assert IntervalRule().change(1.0, seen, unit()) == Change(2, -300, -4)
    assert math.isinf(Limits().frequency_high_mhz)
