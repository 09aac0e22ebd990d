"""The way of a statement: split, on Spark with the reason, or refused with the reasons of both."""

from __future__ import annotations

import pytest

from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.spark.choosing import way_of
from tests.controller.acceleration.running.tables import small_tables


def test_statement_that_can_be_split_is_split() -> None:
    way = way_of("SELECT max(value) FROM data", small_tables())
    assert way.split is not None
    assert way.spark is None
    assert way.words == "split by rows of data"


def test_statement_that_cannot_be_split_is_for_spark() -> None:
    way = way_of("SELECT median(value) FROM data", {name: table.schema for name, table in small_tables().items()})
    assert way.split is None
    assert way.spark is not None
    assert way.words == "on Spark: SQL: aggregate median cannot be split across workers"


@pytest.mark.parametrize(
    ("sql", "has_spark", "line"),
    [
        ("SELECT mode(value) FROM data", True, "workers; aggregate mode(BIGINT) cannot be run on Spark"),
        ("SELECT mode(value) FROM data", False, "SQL: aggregate mode cannot be split across workers"),
        ("SELECT median(value) FROM data", False, "workers; with --spark it runs on Apache Spark"),
        ("SELECT no FROM data", True, 'SQL: Referenced column "no" not found in FROM clause!'),
    ],
)
def test_statement_that_neither_takes(sql: str, has_spark: bool, line: str) -> None:
    with pytest.raises(StatementError) as caught:
        way_of(sql, small_tables(), has_spark=has_spark)
    assert str(caught.value).endswith(line)
