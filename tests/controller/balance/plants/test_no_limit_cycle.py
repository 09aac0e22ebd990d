"""No limit cycle from the interval table: under any constant load all levers come to rest, near the dead band or at
their stops; and where late samples or a rule without its guard do swing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.balance.plants import Application, Member, Pace, Plant, Trajectory, run
from controller.balance.plants.loads import constant
from controller.balance.rules import ORDER, TABLE, IntervalRule, Limits, PlatformRule, Rule
from controller.balance.values import LeverKind, Precision, UnitState

STEPS = 400
TAIL = 100
SUB_UNITS = (LeverKind.SUB_UNITS,)
LEVERS = st.lists(st.sampled_from(ORDER), min_size=1, max_size=3, unique=True).map(tuple)
PRECISIONS = st.lists(st.sampled_from(list(Precision)), min_size=1, unique=True).map(tuple)


def swings(trajectory: Trajectory) -> bool:
    """Return whether levers move at the end."""
    return bool(trajectory.moves[-TAIL:].any())


def rests_inside(trajectory: Trajectory) -> bool:
    low, high = TABLE.dead_band
    return bool(low <= round(float(trajectory.error[-1]), 9) <= high)


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.02, 3),
    st.floats(0.05, 2),
    st.integers(1, 60),
    st.floats(500, 2000),
    PRECISIONS,
    LEVERS,
    st.integers(0, 30),
    st.floats(0, 1),
    st.booleans(),
)
def test_table_has_no_limit_cycle_on_any_plant(
    ratio: float,
    load: float,
    sub_units: int,
    mhz: float,
    precisions: tuple[Precision, ...],
    levers: tuple[LeverKind, ...],
    more: int,
    sent: float,
    platform: bool,
) -> None:
    """Bus over cores from 1/50 to 3, light loads to overload, few to many sub-units, levers in any order."""
    application = Application(ops_per_byte=ratio * sub_units * 100 * 1000 / 25, sent_in_precision=sent)
    plant = Plant(application=application, queue_gb=0.01, backlog_gb=1)
    unit = UnitState(precisions[0], mhz, sub_units)
    limits = Limits(
        precisions=precisions,
        frequency_low_mhz=400,
        frequency_high_mhz=2200,
        frequency_step_mhz=15,
        sub_units_high=sub_units + more,
    )
    rule: Rule = PlatformRule() if platform else IntervalRule(levers=levers)
    offered = constant(STEPS, load * plant.cores_can_tops(unit))
    (trajectory,) = run([Member("unit", plant, unit, offered, rule, limits=limits, order=levers)])
    assert not swings(trajectory)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.05, 2), st.floats(0.1, 2), st.integers(1, 40), st.booleans()), min_size=2, max_size=4
    ),
    st.integers(0, 30),
)
def test_pooled_units_settle_and_no_sub_unit_is_held_twice(
    units: list[tuple[float, float, int, bool]], free: int
) -> None:
    """Some free what others request, by either rule; holdings stay within limits."""
    members = []
    for index, (ratio, load, count, platform) in enumerate(units):
        plant = Plant(application=Application(ops_per_byte=ratio * count * 4000), queue_gb=0.01, backlog_gb=1)
        unit = UnitState(Precision.INT8, 1000.0, count)
        rule: Rule = PlatformRule() if platform else IntervalRule()
        limits = Limits(precisions=(Precision.INT8,), frequency_low_mhz=800, frequency_high_mhz=1100, sub_units_high=60)
        offered = constant(STEPS, load * count * 100)
        members.append(Member(f"unit {index}", plant, unit, offered, rule, limits=limits))
    trajectories = run(members, free=free)
    held = np.array([trajectory.sub_units for trajectory in trajectories])
    assert held.min() >= 1
    assert held.max() <= 60
    assert held.sum(axis=0).max() <= held[:, 0].sum() + free
    assert not any(swings(trajectory) for trajectory in trajectories)


@pytest.mark.parametrize("ratio", [0.05, 0.3, 0.5, 0.9, 1.0, 1.5, 3.0])
def test_with_enough_sub_units_it_rests_inside_the_dead_band(ratio: float) -> None:
    plant = Plant(application=Application(ops_per_byte=ratio * 400_000))
    member = Member(
        "unit", plant, UnitState(Precision.INT8, 1000.0, 100), constant(STEPS, 1e6), IntervalRule(levers=SUB_UNITS)
    )
    (trajectory,) = run([member])
    assert rests_inside(trajectory)
    assert not swings(trajectory)


def test_few_coarse_sub_units_would_swing_without_the_guard() -> None:
    """Four units with work for three and a half: one unit exceeds the dead band."""
    plant = Plant(application=Application(ops_per_byte=3.5 * 4000))
    unit = UnitState(Precision.INT8, 1000.0, 4)

    def tried(guarded: bool) -> Trajectory:
        rule = IntervalRule(levers=SUB_UNITS, guarded=guarded)
        (trajectory,) = run([Member("unit", plant, unit, constant(STEPS, 1e4), rule, order=SUB_UNITS, guarded=guarded)])
        return trajectory

    assert swings(tried(guarded=False))
    assert not swings(tried(guarded=True))


def test_precision_hand_on_swings_without_the_guard() -> None:
    """Sub-units and clock at their stops; a precision step doubles the speed where three tenths are missing."""
    plant = Plant(application=Application(ops_per_byte=2.6 * 4000, sent_in_precision=0))
    unit = UnitState(Precision.INT8, 1000.0, 2)
    limits = Limits(
        precisions=(Precision.INT4, Precision.INT8),
        frequency_low_mhz=1000,
        frequency_high_mhz=1000,
        sub_units_low=2,
        sub_units_high=2,
    )

    def tried(guarded: bool) -> Trajectory:
        (trajectory,) = run(
            [Member("unit", plant, unit, constant(STEPS, 1e4), IntervalRule(), limits=limits, guarded=guarded)]
        )
        return trajectory

    assert swings(tried(guarded=False))
    assert not swings(tried(guarded=True))


def test_late_samples_do_not_swing_within_a_wide_dead_band() -> None:
    application = Application(ops_per_byte=200_000)
    unit = UnitState(Precision.INT8, 1000.0, 100)
    for delay_s in (1, 3, 6):
        plant = Plant(application=application, delay_s=delay_s)
        (trajectory,) = run([Member("unit", plant, unit, constant(STEPS, 1e5), IntervalRule(levers=SUB_UNITS))])
        assert not swings(trajectory)


def test_late_samples_swing_few_sub_units_unless_it_waits() -> None:
    plant = Plant(application=Application(ops_per_byte=20_000), delay_s=8)
    unit = UnitState(Precision.INT8, 1000.0, 10)

    def tried(pace: Pace) -> Trajectory:
        (trajectory,) = run(
            [Member("unit", plant, unit, constant(STEPS, 1e4), IntervalRule(levers=SUB_UNITS), pace=pace)]
        )
        return trajectory

    assert swings(tried(Pace()))
    assert not swings(tried(Pace(wait=8)))


def test_noise_inside_the_dead_band_moves_nothing() -> None:
    plant = Plant(application=Application(ops_per_byte=400_000), noise=0.015)
    unit = UnitState(Precision.INT8, 1000.0, 100)
    (trajectory,) = run(
        [Member("unit", plant, unit, constant(2000, 1e5), IntervalRule(levers=SUB_UNITS))],
        rng=np.random.default_rng(5),
    )
    assert np.count_nonzero(trajectory.moves) == 0
