"""The interval table: each row, clamps, and invalid tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.balance.errors import RuleError
from controller.balance.rules import TABLE, IntervalTable
from controller.balance.values import Change
from dataplane.config import load, loads
from dataplane.errors import ConfigError

ROWS = (
    (-0.9, Change(-2, 300, 4)),
    (-0.8, Change(-2, 300, 4)),
    (-0.7, Change(-1, 200, 3)),
    (-0.5, Change(0, 100, 2)),
    (-0.3, Change(0, 0, 1)),
    (-0.1, Change()),
    (0.0, Change()),
    (0.1, Change()),
    (0.2, Change(0, 0, -1)),
    (0.3, Change(0, 0, -1)),
    (0.31, Change(0, -100, -2)),
    (0.5, Change(0, -100, -2)),
    (0.7, Change(1, -200, -3)),
    (0.9, Change(2, -300, -4)),
)


@pytest.mark.parametrize(("u", "change"), ROWS)
def test_each_row_of_the_table(u: float, change: Change) -> None:
    assert TABLE.change_at(u) == change
    assert TABLE.row_of(u).change == change


@pytest.mark.parametrize(("u", "change"), [(-0.9001, Change(-2, 300, 4)), (-9, Change(-2, 300, 4)), (1, ROWS[-1][1])])
def test_beyond_the_last_row_it_clamps(u: float, change: Change) -> None:
    assert TABLE.change_at(u) == change
    with pytest.raises(RuleError):
        TABLE.row_of(u)


def test_ends_of_intervals_ignore_binary_rounding() -> None:
    assert 1 - 0.7 != 0.3
    assert TABLE.change_at(1 - 0.7) == TABLE.change_at(0.3)


def test_an_output_that_is_no_number_is_an_error() -> None:
    with pytest.raises(RuleError, match="nan, not a number"):
        TABLE.change_at(float("nan"))


@given(st.floats(-0.9, 0.9))
def test_the_quick_way_finds_the_row_that_holds_the_output(u: float) -> None:
    assert TABLE.change_at(u) == TABLE.row_of(u).change


def test_dead_band_and_largest_steps() -> None:
    assert TABLE.dead_band == (-0.1, 0.1)
    assert TABLE.most == Change(2, 300, 4)


def test_a_dead_band_of_several_rows_is_one() -> None:
    table = loads(
        "rows: [{interval: '[-1, 0)'}, {interval: '[0, 0.2]'}, {interval: '(0.2, 1]', sub_units: -1}]", IntervalTable
    )
    assert table.dead_band == (-1, 0.2)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("[]", "rows: at least one needed"),
        ("[{interval: '[-1, 0)'}, {interval: '(0, 1]'}]", r"rows: gap between \[-1, 0\) and \(0, 1\]"),
        ("[{interval: '[-1, -0.1]'}, {interval: '[0, 1]'}]", "gap between"),
        ("[{interval: '[-1, 0]'}, {interval: '[0, 1]'}]", "overlap"),
        ("[{interval: '[-1, 0.1]'}, {interval: '[0, 1]'}]", "overlap"),
        ("[{interval: '(0, 1]'}, {interval: '[-1, 0]'}]", "overlap or are not in rising order"),
        ("[{interval: '[0.1, 1]', sub_units: -1}]", "none for u = 0"),
        ("[{interval: '[-1, 1]', sub_units: 1}]", "sub_units makes cores faster where u is above 0"),
        ("[{interval: '[-1, 0)', sub_units: -1}, {interval: '[0, 1]'}]", "sub_units makes cores slower"),
        ("[{interval: '[-1, 0)', precision_steps: 1}, {interval: '[0, 1]'}]", "precision_steps makes cores slower"),
        ("[{interval: '[-1, 0]', frequency_mhz: 100}, {interval: '(0, 1]'}]", "frequency_mhz moves at u = 0"),
        ("[{interval: '[1, -1]'}]", "empty interval"),
        ("[{interval: '(0, 0]'}]", "empty interval"),
        ("[{interval: '[0, 1]', frequency_mhz: .nan}]", ">= -1000000"),
        ("[{interval: '[-1, 0)', sub_units: 10000000}, {interval: '[0, 1]'}]", "<= 1000000"),
        ("[{interval: '[0, 1000000000000]'}]", "no output lies beyond 1000"),
        ("[{interval: '0 to 1'}]", "invalid interval '0 to 1': write it as"),
        ("[{interval: '[1/0, 1]'}]", "its ends must be numbers"),
        ("[{interval: '[0, 1]', subunits: 1}]", "unknown key; did you mean `sub_units`"),
    ],
)
def test_gaps_overlaps_and_wrong_signs_are_refused_by_line(rows: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "table.yaml").write_text(f"rows: {rows}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=problem) as raised:
        load(tmp_path / "table.yaml", IntervalTable)
    assert "table.yaml:1" in str(raised.value)
