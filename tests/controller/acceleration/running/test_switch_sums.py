"""Sums as 32-bit lanes are exact for any 64-bit values, and groups are numbered the same everywhere."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.acceleration.network.switches import LANE_BITS, Sums
from controller.acceleration.running.statements.splitting import split_statement
from controller.acceleration.running.switch_sums import keys_of, lanes_of, problem_of, united, values_of

_INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.lists(_INT64, min_size=3, max_size=3), min_size=1, max_size=9))
def test_summed_lanes_are_the_sums_of_all_workers(values: list[list[int]]) -> None:
    workers = len(values)
    lanes = [lanes_of(np.array(each, np.int64), workers) for each in values]
    wide = np.sum([each.astype(np.int64) for each in lanes], axis=0)
    assert np.abs(wide).max() < 1 << LANE_BITS
    total = wide.astype(np.int32)
    assert values_of(total, workers, 3) == [sum(each[index] for each in values) for index in range(3)]
    assert len(total) == Sums(groups=3, columns=1).lanes(workers)


def test_groups_of_all_workers_are_united() -> None:
    parts = [pa.table({"c0": [1, None], "c1": ["a", "b"]}), pa.table({"c0": [None, 2], "c1": ["b", "b"]})]
    assert sorted(united(parts).to_pylist(), key=str) == [
        {"c0": 1, "c1": "a"}, {"c0": 2, "c1": "b"}, {"c0": None, "c1": "b"}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "kind", "problem"),
    [
        ([1, 2], pa.int64(), ""),
        ([1, 2], pa.decimal128(38, 0), ""),
        ([1, None], pa.int64(), "a sum is NULL on some machine"),
        ([1.0, 2.0], pa.float64(), "a sum is double: switches add up whole numbers"),
        ([1 << 70, 1], pa.decimal128(38, 0), "a sum exceeds 64 bits"),
    ],
)
def test_what_switches_cannot_add_up_exactly_is_told(values: list[object], kind: pa.DataType, problem: str) -> None:
    partial = pa.table({"c0": [1, 2], "c1": pa.array(values, kind)})
    assert problem_of(partial, 1) == problem
    assert keys_of(partial, 1).column_names == ["c0"]


@pytest.mark.parametrize(
    ("sql", "sums"),
    [
        ("SELECT k, sum(v), count(*), count(v) FROM t GROUP BY k", 3),
        ("SELECT avg(v) FROM t", 2),
        ("SELECT k, max(v), sum(v) FROM t GROUP BY k", 0),
        ("SELECT count(DISTINCT v) FROM t", 0),
        ("SELECT k FROM t", 0),
    ],
)
def test_a_split_tells_which_columns_are_sums(sql: str, sums: int) -> None:
    assert split_statement(sql, {"t": pa.table({"k": [1], "v": [2]})}).sums == sums
