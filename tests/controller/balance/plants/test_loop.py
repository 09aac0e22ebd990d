"""The closed loop in virtual time: resting points of rules, with and without a pool, late and lost samples."""

from __future__ import annotations

import numpy as np
import pytest

from controller.balance.control.controller import Controller, ControlSettings
from controller.balance.control.pid import PidSettings
from controller.balance.errors import PlantError
from controller.balance.plants import Application, Member, Pace, Plant, run
from controller.balance.plants.loads import constant
from controller.balance.rules import IntervalRule, Limits, PlatformRule, Rule
from controller.balance.values import Form, LeverKind, Precision, UnitState

UNIT = UnitState(Precision.INT8, 1000.0, 100)
TRANSFER = Plant(application=Application(name="transfer", ops_per_byte=200_000))
COMPUTE = Plant(application=Application(name="compute", ops_per_byte=800_000))
INT8 = Limits(precisions=(Precision.INT8,), frequency_high_mhz=1100)
SUB_UNITS = (LeverKind.SUB_UNITS,)


def member(plant: Plant, rule: Rule, *, steps: int = 60, pace: Pace | None = None, missed: float = 0.0) -> Member:
    return Member(
        plant.application.name, plant, UNIT, constant(steps, 1e5), rule, limits=INT8, pace=pace or Pace(), missed=missed
    )


def test_the_table_frees_two_units_a_step_and_rests_at_55_of_100() -> None:
    (trajectory,) = run([member(TRANSFER, IntervalRule(levers=SUB_UNITS))])
    counts = trajectory.sub_units.tolist()
    assert counts[:16] == list(range(100, 69, -2))  # two per step while the error is above 0.3, then one
    assert counts[15:31] == list(range(70, 54, -1))
    assert set(counts[30:]) == {55}
    assert trajectory.error[-1] == pytest.approx(1 - 50 / 55)
    assert round(float(trajectory.error[-1]), 3) == 0.091


def test_platform_rule_frees_fifty_units_for_the_other_unit() -> None:
    first, second = run([member(TRANSFER, PlatformRule()), member(COMPUTE, PlatformRule())], free=0)
    assert first.sub_units[:3].tolist() == [100, 50, 50]
    assert second.state_at(-1) == UnitState(Precision.INT8, 1100.0, 150)
    assert (second.bus[-1], second.load[-1], second.work_tera[-1]) == pytest.approx((0.825, 1.0, 16_500))


def test_sub_units_are_nowhere_twice_and_none_is_lost() -> None:
    units = [
        member(TRANSFER, PlatformRule()),
        member(COMPUTE, IntervalRule(levers=SUB_UNITS)),
        member(COMPUTE, PlatformRule()),
    ]
    trajectories = run(units, free=7)
    total = np.sum([trajectory.sub_units for trajectory in trajectories], axis=0)
    assert total.max() <= 307
    assert total[-1] == 307


def test_the_open_loop_moves_nothing() -> None:
    (trajectory,) = run([Member("unit", TRANSFER, UNIT, constant(20, 1e5))])
    assert not trajectory.moves.any()
    assert trajectory.output[-1] == pytest.approx(0.5)


def test_levers_wait_for_their_pace() -> None:
    (trajectory,) = run([member(TRANSFER, IntervalRule(levers=SUB_UNITS), pace=Pace(every=5, wait=9))])
    assert np.flatnonzero(trajectory.moves).tolist() == [5, 15, 25, 35, 45, 55]


def test_late_samples_double_the_request_unless_the_rule_waits() -> None:
    late = Plant(application=TRANSFER.application, delay_s=3)
    (hasty,) = run([member(late, PlatformRule())])
    (patient,) = run([member(late, PlatformRule(), pace=Pace(wait=3))])
    assert hasty.sub_units.min() < 40
    assert patient.sub_units.min() == 50


def test_a_lost_sample_moves_nothing() -> None:
    (none,) = run([member(TRANSFER, PlatformRule(), missed=1.0)])
    assert not none.moves.any()
    (some,) = run([member(TRANSFER, IntervalRule(levers=SUB_UNITS), missed=0.5)], rng=np.random.default_rng(3))
    assert 55 <= some.sub_units[40] < 85
    assert 0 < np.count_nonzero(some.moves[:40]) < 30


def test_a_loop_of_nothing_and_a_pace_of_nothing_are_errors() -> None:
    with pytest.raises(PlantError, match="a loop needs at least one unit"):
        run([])
    with pytest.raises(PlantError, match="every 0 steps"):
        Pace(every=0)


def test_a_sample_is_the_mean_of_its_interval() -> None:
    """Work in half of each interval."""
    tops = np.tile([1250.0, 1250.0, 0.0, 0.0], 15)
    (trajectory,) = run([Member("unit", TRANSFER, UNIT, tops, pace=Pace(every=4))])
    assert set(trajectory.bus[3:].round(9)) == {0.125}
    assert set(trajectory.bus[:3]) == {0.0}


def test_integral_does_not_wind_up_at_stops_or_while_waiting() -> None:
    control = Controller(ControlSettings(pid=PidSettings(form=Form.PI, kp=0.1, ki=0.1, high=100)))
    offered = constant(200, 1e5)

    def last_output(limits: Limits, pace: Pace) -> float:
        rule = IntervalRule(levers=SUB_UNITS)
        member = Member("unit", TRANSFER, UNIT, offered, rule, control, limits, SUB_UNITS, pace=pace)
        return float(run([member])[0].output[-1])

    pinned = Limits(sub_units_low=100, sub_units_high=100)
    assert last_output(pinned, Pace()) < 0.25
    assert last_output(Limits(), Pace(wait=1000)) < 0.25
