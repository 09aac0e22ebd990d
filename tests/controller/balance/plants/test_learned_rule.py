"""The rule learned from history: on plants with known effects, and from uninformative histories."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.apps.cli.shared.output import Format, show, utc
from controller.balance.errors import RuleError
from controller.balance.plants import Application, Member, Plant, PlantState, run
from controller.balance.plants.loads import constant, noisy
from controller.balance.rules import TABLE, IntervalRule
from controller.balance.rules.history import COLUMNS, Record, read_history
from controller.balance.rules.learned import Effect, Learned, Learning, learn
from controller.balance.running.process import RECORDED
from controller.balance.serving.history import ReportRow
from controller.balance.values import Change, LeverKind, Precision, Sample, UnitState
from dataplane.config import load

SENT = 0.2
UNIT = UnitState(Precision.INT8, 1000.0, 100)


def tried(
    delay_s: float, *, seed: int = 4, steps: int = 800, kinds: Sequence[LeverKind] = tuple(LeverKind)
) -> list[Record]:
    """Return a history of random lever moves under random loads, with noise."""
    rng, state, unit, records = np.random.default_rng(seed), PlantState(), UNIT, []
    plant = Plant(application=Application(ops_per_byte=400_000, sent_in_precision=SENT), delay_s=delay_s, noise=0.01)
    for step in range(steps):
        if step % 6 == 3:
            unit = UnitState(
                Precision(rng.choice([Precision.INT4, Precision.INT8]))
                if LeverKind.PRECISION in kinds
                else unit.precision,
                float(rng.choice([800, 1000, 1200])) if LeverKind.FREQUENCY in kinds else unit.frequency_mhz,
                int(rng.integers(80, 121)) if LeverKind.SUB_UNITS in kinds else unit.sub_units,
            )
        state, sample, _, _ = plant.step(state, unit, 3000 + 3000 * rng.random(), 1.0, rng)
        records.append(Record(sample, unit))
    return records


@pytest.mark.parametrize("delay", [0, 3])
def test_effects_of_levers_and_the_delay_are_found(delay: int) -> None:
    """At least 80 % of the 95 % intervals contain the true value."""
    a_step = math.log(2) + math.log(1 - SENT / 2)  # twice the speed, and a tenth fewer bytes
    truth = {LeverKind.SUB_UNITS: 1.0, LeverKind.FREQUENCY: 1.0, LeverKind.PRECISION: a_step}
    off = []
    for seed in range(8):
        learned = learn(tried(delay, seed=seed, steps=500))
        assert learned.delay == delay
        assert not learned.unknown
        off += [abs(effect.value - truth[kind]) / effect.error for kind, effect in learned.effects.items()]
        assert max(effect.error for effect in learned.effects.values()) < 0.1
    assert np.mean(np.array(off) < 1.96) >= 0.8
    assert max(off) < 4


def test_a_lever_that_never_moved_is_unknown_with_the_reason() -> None:
    learned = learn(tried(0, kinds=(LeverKind.SUB_UNITS,)))
    assert set(learned.effects) == {LeverKind.SUB_UNITS}
    assert learned.unknown[LeverKind.FREQUENCY] == "it moved in 0 windows, 8 needed"
    table = learned.table()
    assert all(row.frequency_mhz == 0 and row.precision_steps == 0 for row in table.rows)
    assert table.most.sub_units > TABLE.most.sub_units


def test_lever_without_an_effect_is_unknown() -> None:
    """The history has moves of the clock that the device did not make."""
    rng = np.random.default_rng(0)
    lied = [
        Record(record.sample, UnitState(record.state.precision, float(rng.choice([900, 1100])), record.state.sub_units))
        for record in tried(0, kinds=(LeverKind.SUB_UNITS,))
    ]
    learned = learn(lied)
    assert "show no effect" in learned.unknown[LeverKind.FREQUENCY]
    assert learned.effects[LeverKind.SUB_UNITS].value == pytest.approx(1, abs=0.1)


def test_learned_table_settles_sooner_than_the_given_one() -> None:
    plant = Plant(application=Application(ops_per_byte=200_000))
    alone = (LeverKind.SUB_UNITS,)
    table = learn(tried(0), Learning(levers=alone)).table()

    def settled(rule: IntervalRule, tops: float) -> tuple[int, float]:
        (trajectory,) = run([Member("unit", plant, UNIT, constant(120, tops), rule)])
        assert not trajectory.moves[-40:].any()
        return int(np.flatnonzero(trajectory.moves)[-1]), abs(float(trajectory.error[-1]))

    for tops in (3000.0, 1e5):
        learned, given = (
            settled(IntervalRule(table=table, levers=alone), tops),
            settled(IntervalRule(levers=alone), tops),
        )
        assert learned[0] < given[0]
        assert learned[1] <= 0.1


def test_no_learned_step_is_worth_more_than_four_times_the_speed() -> None:
    """However small a lever's observed effect."""
    little = Learned({kind: Effect(1e-3, 1e-5, 99) for kind in LeverKind}, {}, 0, UNIT, 99)
    table = little.table()
    assert table.most == Change(6, 3000.0, 300, 3, 3.0)
    assert table.change_at(0.8) == Change(6, -750.0, -75, -1, -1.0)


def test_it_learns_from_the_record_of_a_loop() -> None:
    """The table's own steps from too many sub-units are enough moves."""
    rng = np.random.default_rng(8)
    plant = Plant(application=Application(ops_per_byte=200_000), noise=0.005)
    many = UnitState(Precision.INT8, 1000.0, 200)
    tops = noisy(constant(120, 12_000.0), 0.1, rng)
    (done,) = run([Member("unit", plant, many, tops, IntervalRule(levers=(LeverKind.SUB_UNITS,)))], rng=rng)
    learned = learn(done.records())
    assert set(learned.effects) == {LeverKind.SUB_UNITS}
    assert learned.effects[LeverKind.SUB_UNITS].value == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        (tried(0)[:5], "5 samples is too short to learn from"),
        ([Record(Sample(float(at), 0.5, 0.5), UNIT) for at in range(100)], "moved too little"),
        ([*tried(0)[:50], tried(0)[3]], "is not later than the one before it"),
    ],
)
def test_uninformative_history_is_an_error(records: list[Record], problem: str) -> None:
    with pytest.raises(RuleError, match=problem):
        learn(records)


def test_levers_that_always_move_together_are_inseparable() -> None:
    both = [
        Record(record.sample, UnitState(Precision.INT8, 10.0 * record.state.sub_units, record.state.sub_units))
        for record in tried(0, kinds=(LeverKind.SUB_UNITS,))
    ]
    with pytest.raises(RuleError, match="always moved together"):
        learn(both)


def written(path: Path, rows: Sequence[Sequence[object]], columns: Sequence[str] = (*COLUMNS, "unit")) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


ROW = (1.0, 0.5, 0.25, "int8", 1000.0, 100, "gpu0")


def test_a_history_is_read_from_csv(tmp_path: Path) -> None:
    path = written(tmp_path / "history.csv", [ROW, (2.0, 0.6, 0.3, "int4", 900.0, 90, "gpu1")])
    (record,) = read_history(path, "gpu0")
    assert record == Record(Sample(1.0, 0.5, 0.25, "gpu0"), UNIT)


@pytest.mark.parametrize(
    ("rows", "unit", "problem"),
    [
        ([ROW, (*ROW[:-1], "gpu1")], "", "has several units, gpu0 and gpu1: name one"),
        ([ROW], "gpu7", "no lines of unit gpu7"),
        ([], "", "no lines"),
        ([(1.0, 1.5, 0.25, "int8", 1000.0, 100, "gpu0")], "", "history.csv:2: unit gpu0: bus occupancy 1.5"),
        ([(1.0, "x", 0.25, "int8", 1000.0, 100, "gpu0")], "", "history.csv:2: could not convert string to float: 'x'"),
        ([(1.0, 0.5, 0.25, "int7", 1000.0, 100, "gpu0")], "", "history.csv:2: 'int7' is not a valid Precision"),
        (
            [(1.0, 0.5, 0.25, "int8", 1000.0, 0, "gpu0")],
            "",
            "history.csv:2: not 1 to 100000 sub-units at more than 0 and up to 100000 MHz",
        ),
        ([(1.0, 0.5, 0.25, "int8", 1000.0, 10**40, "gpu0")], "", "not 1 to 100000 sub-units"),
        ([(1.0, 0.5, 0.25, "int8", "1e400", 100, "gpu0")], "", "not 1 to 100000 sub-units"),
        ([(1.0, 0.5)], "", "history.csv:2: could not convert string to float: ''"),
        ([("noon", *ROW[1:])], "", "history.csv:2: Invalid isoformat string: 'noon'"),
    ],
)
def test_invalid_history_is_refused_with_file_and_line(
    rows: Sequence[Sequence[object]], unit: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(RuleError, match=problem):
        read_history(written(tmp_path / "history.csv", rows), unit)


def test_a_history_without_a_column_or_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="no column load, precision"):
        read_history(written(tmp_path / "a.csv", [], ("time_s", "bus", "frequency_mhz", "sub_units")))
    with pytest.raises(RuleError, match="No such file"):
        read_history(tmp_path / "none.csv")


def test_recorded_history_reads_back_from_its_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Times as dates, holders and units; a holder without a clock, reports without figures or units."""
    reports = ((1, 0.5, 0.25, 7), (2, None, None, 7), (3, 0.25, 0.5, 7), (4, 0.25, None, 7), (5, 0.25, 0.5, 0))
    rows = [
        ReportRow(at_s * 10**9, "pool", "gpu0", bus, load, None, None, 0, units, 0, "", None, 0.0, "")
        for at_s, bus, load, units in reports
    ]
    columns = ["time" if field.name == "time_ns" else field.name for field in dataclasses.fields(ReportRow)]
    show(columns, ([utc(row.time_ns), *dataclasses.astuple(row)[1:]] for row in rows), Format.CSV)
    (tmp_path / "history.csv").write_text(capsys.readouterr().out, encoding="utf-8")
    unit = UnitState(Precision.INT8, 1000.0, 7)
    assert read_history(tmp_path / "history.csv") == (
        Record(Sample(1.0, 0.5, 0.25, "gpu0"), unit),
        Record(Sample(3.0, 0.25, 0.5, "gpu0"), unit),
    )


def test_recorded_columns_include_all_that_is_read() -> None:
    assert {*COLUMNS, "unit"} <= set(RECORDED)


def write_history(path: Path, records: Sequence[Record]) -> Path:
    return written(
        path,
        [
            (record.sample.time_s, record.sample.bus, record.sample.load, *dataclasses.astuple(record.state), "gpu0")
            for record in records
        ],
    )


def test_the_command_writes_settings_of_the_rule_that_it_shows(tmp_path: Path) -> None:
    path = write_history(tmp_path / "history.csv", tried(2, kinds=(LeverKind.SUB_UNITS,)))
    result = CliRunner().invoke(
        app, ["balance", "learn", str(path), "--write", str(tmp_path / "rule.yaml"), "-f", "csv"]
    )
    assert result.exit_code == 0
    rule = load(tmp_path / "rule.yaml", IntervalRule)
    assert rule.levers == (LeverKind.SUB_UNITS,)
    assert rule.table == learn(tried(2, kinds=(LeverKind.SUB_UNITS,))).table()
    assert f'"[-0.9, -0.7)",0,0.0,{rule.table.rows[0].sub_units}' in result.stdout
    assert "frequency: unknown, it moved in 0 windows, 8 needed" in result.stderr
    assert "2 samples late" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--lever", "volts"], "expected precision, frequency, sub-units"),
        (["--unit", "gpu9"], "no lines of unit gpu9"),
        (["--lever", "frequency"], "frequency moved too little to show an effect"),
        (["--write", "/nowhere/at/all.yaml"], "No such file or directory"),
    ],
)
def test_errors_of_the_command_are_one_line(arguments: list[str], problem: str, tmp_path: Path) -> None:
    path = write_history(tmp_path / "history.csv", tried(0, steps=200, kinds=(LeverKind.SUB_UNITS,)))
    result = CliRunner().invoke(app, ["balance", "learn", str(path), *arguments])
    assert result.exit_code
    assert problem in f"{result.output}{result.exception}"
