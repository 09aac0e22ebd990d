"""Engines are twins: numpy and torch computing an operator in parts equal one DuckDB over all the data."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from controller.acceleration.running.engines import backend_of
from controller.acceleration.running.errors import RunError
from controller.acceleration.running.operators import plan_of_operator, sql_of
from controller.acceleration.running.values import Engine, Operator, OperatorKind
from tests.controller.acceleration.running.tables import (
    MEMORY,
    merged,
    numbers,
    of_one_duckdb,
    rows_of,
    small_tables,
)

FILTER = Operator(kind=OperatorKind.FILTER, column="value", below=100.0)
OPERATORS = (
    FILTER,
    Operator(kind=OperatorKind.AGGREGATE, column="place", sums=("value", "part")),
    Operator(kind=OperatorKind.AGGREGATE, column="part", sums=("value",)),
    Operator(kind=OperatorKind.AGGREGATE, sums=("value", "place")),
    Operator(kind=OperatorKind.JOIN, column="place", other="places"),
    Operator(kind=OperatorKind.SORT, column="value"),
    Operator(kind=OperatorKind.SORT, column="value", limit=30),
)


def computed(operator: Operator, engine: Engine, tables: dict[str, pa.Table], count: int) -> pa.Table:
    if engine in {Engine.TORCH, Engine.CUDA}:
        pytest.importorskip("torch")
    return merged(plan_of_operator(operator, tables, engine), tables, count)


@pytest.mark.parametrize("engine", [Engine.DUCKDB, Engine.NUMPY, Engine.TORCH])
@pytest.mark.parametrize(
    "operator", OPERATORS, ids=lambda operator: f"{operator.kind}-{operator.column or 'all'}-{operator.limit}"
)
def test_every_engine_equals_one_duckdb(operator: Operator, engine: Engine) -> None:
    tables = numbers(small_tables())
    actual, wanted = computed(operator, engine, tables, 3), of_one_duckdb(sql_of(operator), tables)
    if operator.kind is OperatorKind.SORT:  # rows with equal values have no order
        assert actual.column("value").to_pylist() == wanted.column("value").to_pylist()
        if operator.limit:
            return
    assert actual.column_names == wanted.column_names
    assert rows_of(actual, is_ordered=False) == rows_of(wanted, is_ordered=False)


def test_groups_far_apart_are_added_up_as_those_near_one_another() -> None:
    keys = np.array([1 << 60, 5, -(1 << 60), 5])
    tables = {"data": pa.table({"place": keys, "value": np.array([1, 2, 3, 4])})}
    operator = Operator(kind=OperatorKind.AGGREGATE, column="place", sums=("value",))
    table = computed(operator, Engine.NUMPY, tables, 2)
    assert table.to_pydict() == {"place": [-(1 << 60), 5, 1 << 60], "value": [3, 6, 1], "number": [1, 2, 1]}


@pytest.mark.parametrize("engine", [Engine.NUMPY, Engine.TORCH])
def test_sums_beyond_64_bits_are_an_error(engine: Engine) -> None:
    tables = {"data": pa.table({"place": np.array([1, 1]), "value": np.array([1 << 62, 1 << 62])})}
    operator = Operator(kind=OperatorKind.AGGREGATE, column="place", sums=("value",))
    with pytest.raises(RunError, match="column value: sums may exceed 64 bits"):
        computed(operator, engine, tables, 1)


def test_text_and_absent_columns_and_tables_are_refused_by_name() -> None:
    tables = small_tables(10)
    with pytest.raises(RunError, match="table data: column text is string"):
        plan_of_operator(FILTER, tables, Engine.NUMPY)
    with pytest.raises(RunError, match="table data has no column 'absent'; it has place"):
        plan_of_operator(Operator(kind=OperatorKind.FILTER, column="absent"), tables, Engine.DUCKDB)
    with pytest.raises(RunError, match="no table 'other'"):
        plan_of_operator(Operator(kind=OperatorKind.JOIN, column="place", other="other"), tables, Engine.DUCKDB)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "operator", OPERATORS, ids=lambda operator: f"{operator.kind}-{operator.column or 'all'}-{operator.limit}"
)
def test_gpu_equals_one_duckdb_over_all_the_data(operator: Operator) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    test_every_engine_equals_one_duckdb(operator, Engine.CUDA)


def test_missing_gpu_is_reported() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    plan = plan_of_operator(FILTER, numbers(small_tables(10)), Engine.CUDA)
    with pytest.raises(RunError, match="no GPU"):
        backend_of(plan, MEMORY, 1)


def test_duckdb_on_a_worker_reads_no_files() -> None:
    tables = numbers(small_tables(10))
    plan = plan_of_operator(FILTER, tables, Engine.DUCKDB)
    split = type(plan.split)(
        partial="SELECT * FROM read_text('/etc/hostname')", merge="", final="", sharded="", grows=True
    )
    backend = backend_of(type(plan)(engine=Engine.DUCKDB, split=split), MEMORY, 1)
    with pytest.raises(RunError, match="Permission Error"):
        backend.partial()
