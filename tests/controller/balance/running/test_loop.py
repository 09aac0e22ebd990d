"""The loop of one unit: levers moved, held, released and handed on; quotas on a tree of files, virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from controller.balance.control.controller import Controller, ControlSettings
from controller.balance.control.pid import PidSettings
from controller.balance.errors import LeverError
from controller.balance.levers.values import Lever
from controller.balance.rules import IntervalRule, PlatformRule, Rule
from controller.balance.running.board import Board
from controller.balance.running.loop import Loop, Tick
from controller.balance.running.silence import SilenceSettings, Watch, watch
from controller.balance.values import Change, Form, LeverKind, Sample
from tests.controller.balance.running.parts import Machine, Written

UNITS = IntervalRule(levers=(LeverKind.SUB_UNITS,))
HALF = (0.75, 0.25)
"""e = +0.5: the table frees two units."""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def ticks(
    machine: Machine,
    samples: Sequence[tuple[float, float] | Sample | None],
    levers: Sequence[Lever],
    rule: Rule = UNITS,
    every_s: float = 1.0,
) -> list[Tick]:
    board = Board(levers, machine.clock, rest_s=3.0)
    silence = SilenceSettings(stale_s=3.0, release_s=6.0)
    loop = Loop(Written(samples), Controller(ControlSettings()), rule, board, silence=silence, clock=machine.clock)
    history = []
    for _ in samples:
        machine.pass_s(every_s)
        history.append(loop.tick())
    return history


def test_the_table_moves_the_quota_step_by_step(machine: Machine) -> None:
    history = ticks(machine, [HALF, HALF, (0.5, 0.45), (0.2, 0.9)], [machine.units()])
    assert [tick.change.sub_units for tick in history] == [-2, -2, 0, 3]
    assert [tick.state.sub_units for tick in history] == [48, 46, 46, 49]
    assert machine.quota() == "49000"


def test_the_platforms_rule_frees_all_that_is_idle_at_once(machine: Machine) -> None:
    history = ticks(machine, [(0.5, 0.25), (0.5, 0.5)], [machine.units()], PlatformRule())
    assert [tick.state.sub_units for tick in history] == [25, 25]


def test_silent_unit_is_held_then_released_then_restarts(machine: Machine) -> None:
    history = ticks(machine, [HALF, None, None, None, None, None, None, HALF], [machine.units()])
    watched = [tick.watch for tick in history]
    assert watched == [Watch.FRESH] * 3 + [Watch.HELD] * 3 + [Watch.RELEASED, Watch.FRESH]
    assert [tick.state.sub_units for tick in history] == [48, 48, 48, 48, 48, 48, 48, 48]
    assert history[3].problem == "unit u: it says nothing"
    assert history[7].moves[-1].moved.done == -2
    assert machine.quota() == "48000"  # released to the initial 50


def test_a_stale_sample_moves_nothing(machine: Machine) -> None:
    late = Sample(100.5, 0.75, 0.25, "u")
    machine.pass_s(0)
    history = ticks(machine, [late], [machine.units()], every_s=4.0)
    assert (history[0].watch, history[0].moves, machine.quota()) == (Watch.HELD, (), "50000")


def test_a_sample_that_comes_twice_moves_once(machine: Machine) -> None:
    same = Sample(101.0, 0.75, 0.25, "u")
    history = ticks(machine, [same, same], [machine.units()])
    assert [tick.has_moved for tick in history] == [True, False]
    assert history[1].problem == "unit u: no sample newer than 1.0 s"


def test_future_sample_moves_nothing(machine: Machine) -> None:
    history = ticks(machine, [Sample(200.0, 0.75, 0.25, "u")], [machine.units()])
    assert (history[0].watch, history[0].has_moved) == (Watch.HELD, False)


def test_an_exhausted_lever_hands_on_to_the_next(machine: Machine) -> None:
    history = ticks(machine, [HALF, HALF], [machine.units(low=49), machine.clocks()], IntervalRule())
    assert history[0].state.sub_units == 49
    # The table's own -100 MHz, and the part that one of 48 units did not cover.
    assert history[0].state.frequency_mhz == pytest.approx(900 * 48 / 49, abs=1)
    assert history[1].state.sub_units == 49
    assert history[1].state.frequency_mhz < history[0].state.frequency_mhz


def test_change_for_an_absent_lever_is_not_handed_on(machine: Machine) -> None:
    history = ticks(machine, [HALF], [machine.clocks()], IntervalRule())
    assert history[0].change == Change(frequency_mhz=-100, sub_units=-2)
    assert history[0].state.frequency_mhz == 900


def test_a_lever_that_may_not_be_set_hands_on_to_the_next(machine: Machine) -> None:
    history = ticks(machine, [HALF], [machine.units(may_set=False), machine.clocks()])
    assert history[0].state.sub_units == 50
    assert history[0].state.frequency_mhz == pytest.approx(1000 * 48 / 50, abs=1)
    assert machine.quota() == "50000"


def test_failing_lever_is_named_handed_on_and_retried_later(machine: Machine) -> None:
    levers = [machine.units(), machine.clocks()]
    board = Board(levers, machine.clock, rest_s=3.0)
    silence = SilenceSettings()
    loop = Loop(Written([HALF] * 6), Controller(ControlSettings()), UNITS, board, silence=silence, clock=machine.clock)
    machine.pass_s(1)
    loop.tick()
    machine.break_group("unit")
    history = []
    for second in range(5):
        machine.pass_s(1)
        if second == 3:
            machine.mend_group("unit", 48_000)
        history.append(loop.tick())
    failed = [[move.moved.reason for move in tick.moves if move.failed] for tick in history]
    problem = "lever cpu quota of /unit: no such control group with a CPU quota"
    assert failed == [[problem], [], [], [], []]
    assert history[0].state.frequency_mhz < 1000
    assert [tick.state.sub_units for tick in history] == [48, 48, 48, 46, 44]


def test_failing_lever_does_not_block_the_release_of_others(machine: Machine) -> None:
    levers = [machine.units(), machine.clocks()]
    board = Board(levers, machine.clock)
    board.read()
    board.apply(Change(sub_units=-2, frequency_mhz=-100))
    machine.break_group("unit")
    failed = board.release()
    assert [move.lever for move in failed] == ["cpu quota of /unit"]
    assert machine.quota("other") == "100000"


def test_two_levers_of_a_kind_are_refused(machine: Machine) -> None:
    with pytest.raises(LeverError, match="the unit has another lever of the kind sub-units: cpu quota of /unit"):
        Board([machine.units(), machine.units()], machine.clock)


def test_controller_is_notified_at_the_ends_of_levers(machine: Machine) -> None:
    settings = PidSettings(form=Form.PI, kp=1.0, ki=0.2)
    board = Board([machine.units(low=50)], machine.clock)
    silence = SilenceSettings(stale_s=100, release_s=1000)
    loop = Loop(
        Written([HALF] * 50),
        Controller(ControlSettings(pid=settings)),
        UNITS,
        board,
        silence=silence,
        clock=machine.clock,
    )
    outputs = []
    for _ in range(50):
        machine.pass_s(1)
        outputs.append(loop.tick().output)
    assert outputs[-1] == outputs[1]


@pytest.mark.parametrize(
    ("last_s", "now_s", "expected"),
    [
        (10, 10, Watch.FRESH),
        (10, 14.9, Watch.FRESH),
        (10, 15, Watch.HELD),
        (10, 70, Watch.RELEASED),
        (10, 9, Watch.HELD),
    ],
)
def test_watch_is_fresh_held_or_released_by_sample_age(last_s: float, now_s: float, expected: Watch) -> None:
    assert watch(SilenceSettings(stale_s=5, release_s=60), last_s, now_s) is expected


def test_times_of_silence_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="0 < stale <= release required, got 9 s and 5 s"):
        SilenceSettings(stale_s=9, release_s=5)
