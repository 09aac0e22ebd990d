"""The model of a unit: resting points by the formulas, queued work, precision, power, delay and noise."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from controller.balance.errors import PlantError
from controller.balance.plants import HEAVY, LIGHT, Application, Member, Plant, PlantState, Power, rest_at, run
from controller.balance.plants.formulas import bus_tops, compute_tops
from controller.balance.plants.loads import constant
from controller.balance.plants.power import UNITS_BY_FREQUENCY
from controller.balance.rules import IntervalRule, IntervalTable, Limits, Row
from controller.balance.values import LeverKind, Precision, Sample, UnitState
from dataplane.config import loads
from dataplane.errors import ConfigError

UNIT = UnitState(Precision.INT8, 1000.0, 100)


def after(plant: Plant, unit: UnitState, tops: float, steps: int = 400, dt_s: float = 0.5) -> tuple[Sample, float]:
    """Return the last report and the work per second once the unit is at rest."""
    state, rates = PlantState(), plant.rates(unit)
    for _ in range(steps):
        state, sample, work, _ = plant.advance(state, rates, tops, dt_s)
    return sample, work / dt_s


@settings(max_examples=60, deadline=None)
@given(
    st.floats(1, 1e6), st.floats(1, 1000), st.integers(1, 400), st.floats(200, 3000), st.sampled_from(list(Precision))
)
def test_slowest_part_sets_the_resting_point(
    ops_per_byte: float, tops: float, sub_units: int, mhz: float, precision: Precision
) -> None:
    plant = Plant(application=Application(ops_per_byte=ops_per_byte), queue_gb=1e-6)
    unit = UnitState(precision, mhz, sub_units)
    offered = tops * plant.bus_can_tops(precision) / 500
    assume(abs(offered / plant.cores_can_tops(unit) - 1) > 1e-3)  # otherwise its queue fills for hours
    sample, work = after(plant, unit, offered)
    rest = plant.rest(unit, offered)
    assert work == pytest.approx(rest.work_tops)
    assert (sample.bus, sample.load) == pytest.approx((rest.bus, rest.load))


def test_rest_is_exact_in_fractions() -> None:
    bus, cores = (
        bus_tops(Fraction(25), Fraction(200_000), Fraction(1)),
        compute_tops(150, Fraction(100), Fraction(1100), Fraction(1000), Fraction(1)),
    )
    assert (bus, cores) == (Fraction(5000), Fraction(16_500))
    rest = rest_at(Fraction(10**6), Fraction(20_000), cores)
    assert (rest.work_tops, rest.bus, rest.load) == (Fraction(16_500), Fraction(33, 40), Fraction(1))
    assert rest.error == Fraction(-7, 40)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 20_000), min_size=1, max_size=40), st.floats(0.05, 5), st.integers(0, 2**32 - 1))
def test_work_is_neither_made_nor_lost(offered: list[float], dt_s: float, seed: int) -> None:
    plant, rng = Plant(queue_gb=2, backlog_gb=1), np.random.default_rng(seed)
    state, done = PlantState(), 0.0
    for tops in offered:
        unit = UnitState(Precision.INT8, 1000.0, int(rng.integers(1, 120)))
        state, _, work, _ = plant.step(state, unit, tops, dt_s)
        done += work
    total = done + state.backlog_tera + state.queue_tera + state.refused_tera
    assert total == pytest.approx(sum(offered) * dt_s, abs=1e-6)
    assert state.queue_tera <= 2 * 200 + 1e-6
    assert state.backlog_tera <= 200 + 1e-6


def test_light_load_waits_for_the_bus_and_heavy_for_the_cores() -> None:
    """The same unit of 25 sub-units under full load."""
    unit = UnitState(Precision.INT8, 1000.0, 25)
    assert Plant(application=LIGHT).rest(unit, 1e9).error == pytest.approx(0.5)
    assert Plant(application=HEAVY).rest(unit, 1e9).error == pytest.approx(-0.5)


def test_lower_precision_doubles_speed_and_saves_its_bytes() -> None:
    for share, ratio in ((0.0, 1.0), (0.5, 0.75), (1.0, 0.5)):
        plant = Plant(application=Application(sent_in_precision=share))
        down = UnitState(Precision.INT4, 1000.0, 100)
        assert plant.rates(down).cores_tops == 2 * plant.rates(UNIT).cores_tops
        assert plant.rates(down).bus_tops == pytest.approx(plant.rates(UNIT).bus_tops / ratio)


def test_power_is_of_units_clock_voltage_and_activity() -> None:
    power = Power(
        dynamic_w=40, static_w=10, idle_activity=0.25, low_mhz=500, low_v=0.5, high_mhz=1500, high_v=1.5, bus_w=7
    )
    rates = Plant(power=power).rates(UNIT)
    assert rates.watts(0, 1) == pytest.approx(100 * 50)
    assert rates.watts(0, 0) == pytest.approx(100 * 20)
    assert rates.watts(1, 0.5) == pytest.approx(100 * (40 * 0.625 + 10) + 7)
    doubled = Plant(power=power).rates(UnitState(Precision.INT8, 2000.0, 1))
    assert doubled.watts(0, 1) == pytest.approx(40 * 2 * 2**2 + 10 * 2)
    assert power.volts(100) == power.volts(500) == 0.5


def test_power_as_units_times_frequency() -> None:
    rates = Plant(power=UNITS_BY_FREQUENCY).rates(UnitState(Precision.INT8, 1100.0, 150))
    assert rates.watts(0.3, 0.0) == rates.watts(1.0, 1.0) == pytest.approx(165)


def test_energy_is_power_over_the_step() -> None:
    plant = Plant()
    _, sample, _, energy_j = plant.step(PlantState(), UNIT, 1000.0, 2.0)
    assert energy_j == pytest.approx(2.0 * plant.rates(UNIT).watts(sample.bus, sample.load))


def test_reports_come_late_by_the_delay() -> None:
    plant, state, seen = Plant(delay_s=3), PlantState(), []
    for _ in range(6):
        state, sample, _, _ = plant.step(state, UNIT, 1000.0, 1.0)
        seen.append((sample.time_s, sample.bus > 0))
    assert seen == [(-2, False), (-1, False), (0, False), (1, True), (2, True), (3, True)]


def test_reports_that_never_come_are_an_error() -> None:
    with pytest.raises(PlantError, match="a report delay of 2000 s is 2000 steps, at most 1000"):
        Plant(delay_s=2000).step(PlantState(), UNIT, 1000.0, 1.0)


def test_noise_is_of_its_spread_and_reports_stay_occupancies() -> None:
    plant, rng, state = Plant(noise=0.05), np.random.default_rng(1), PlantState()
    seen = []
    for _ in range(2000):
        state, sample, _, _ = plant.step(state, UNIT, 2500.0, 1.0, rng)
        seen.append(sample.bus)
    assert np.mean(seen) == pytest.approx(0.5, abs=0.01)
    assert np.std(seen) == pytest.approx(0.05, rel=0.1)
    noisy = Plant(noise=1)
    assert all(0 <= noisy.step(PlantState(), UNIT, 1e4, 1.0, rng)[1].bus <= 1 for _ in range(50))
    quiet = [plant.step(PlantState(), UNIT, 2500.0, 1.0)[1] for _ in range(2)]
    assert quiet[0] == quiet[1]


@pytest.mark.parametrize(
    ("unit", "tops", "dt_s", "problem"),
    [
        (UnitState(Precision.INT8, 1000.0, 0), 1.0, 1.0, "0 sub-units at 1000 MHz computes nothing"),
        (UnitState(Precision.INT8, math.nan, 5), 1.0, 1.0, "computes nothing"),
        (UNIT, 1.0, 0.0, "invalid step of 0 s"),
        (UNIT, -1.0, 1.0, "a load of -1 TOPS"),
        (UNIT, math.nan, 1.0, "a load of nan TOPS"),
    ],
)
def test_impossible_plant_step_is_an_error(unit: UnitState, tops: float, dt_s: float, problem: str) -> None:
    with pytest.raises(PlantError, match=problem):
        Plant().step(PlantState(), unit, tops, dt_s)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bus_gb_per_s: 0", ">= 1e-09"),
        ("speeds: {int8: 1}", "none for int4, int16"),
        ("power: {low_mhz: 1000, high_mhz: 900}", "low_mhz is not below high_mhz"),
        ("power: {low_v: 2}", "low_v is above high_v"),
        ("application: {sent_in_precision: 2}", "<= 1"),
        ("application: {precisions: []}", "the application heavy must allow at least one"),
        ("bus_gb_per_s: .inf", "<= 1000000000000"),
        ("unit_tops: 1.0e-320", ">= 1e-09"),
        ("delay_s: .inf", "<= 1000000"),
        ("noise: 2", "<= 1"),
        ("buss: 1", "unknown key"),
    ],
)
def test_settings_of_a_plant_that_cannot_be_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        loads(text, Plant)


def test_cores_idle_in_part_below_their_full_concurrency() -> None:
    plant, unit = Plant(concurrency_full=4), UnitState(Precision.INT8, 1000.0, 10)
    capacities = [plant.cores_can_tops(replace(unit, concurrency=concurrency)) for concurrency in (1, 2, 4, 8)]
    assert capacities == [250.0, 500.0, 1000.0, 1000.0]


def test_item_16_concurrency_follows_the_load_in_the_model() -> None:
    """The table raises it until the cores are full, and no further than the error asks."""
    rows = [("[-1, -0.1)", 1), ("[-0.1, 0.1]", 0), ("(0.1, 1]", -1)]
    table = IntervalTable(rows=tuple(Row(interval=interval, concurrency=by) for interval, by in rows))
    rule = IntervalRule(table=table, levers=(LeverKind.CONCURRENCY,))
    plant = Plant(application=Application(ops_per_byte=200_000), concurrency_full=8)
    start = UnitState(Precision.INT8, 1000.0, 100)
    (found,) = run([Member("u", plant, start, constant(40, 100_000.0), rule, limits=Limits(concurrency_high=8))])
    assert found.concurrency.tolist() == sorted(found.concurrency.tolist())
    assert found.concurrency[-1] == 4  # four eighths of 10000 TOPS are what the bus can feed
    assert abs(found.error[-1]) < 0.1
