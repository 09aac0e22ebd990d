"""The way of a statement: split over workers, or else on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.spark.translating import SparkStatement, Table, spark_statement
from controller.acceleration.running.statements.splitting import split_statement
from controller.acceleration.running.values import Split


@dataclass(frozen=True, slots=True)
class Way:
    """A statement in parts, or one for Spark with the reason why it is not split."""

    split: Split | None = None
    spark: SparkStatement | None = None
    reason: str = ""

    @property
    def words(self) -> str:
        """The way in words, for an answer."""
        return f"split by rows of {self.split.sharded}" if self.split is not None else f"on Spark: {self.reason}"


def way_of(sql: str, tables: Mapping[str, Table], sharded: str | None = None, *, has_spark: bool = True) -> Way:
    """Return the way of a SELECT; raise StatementError, with the reasons of both, if neither takes it.

    Without Spark the error of a statement that Spark would take says so in its last words.
    """
    sized = {name: table.empty_table() if isinstance(table, pa.Schema) else table for name, table in tables.items()}
    try:
        return Way(split=split_statement(sql, sized, sharded))
    except StatementError as reason:
        if not has_spark:
            raise hinted(sql, tables, reason) from None
        return Way(spark=spark_instead(sql, tables, reason), reason=str(reason))


def spark_instead(sql: str, tables: Mapping[str, Table], reason: StatementError) -> SparkStatement:
    """Return a statement that is not split, for this reason, for Spark; StatementError with both reasons."""
    try:
        return spark_statement(sql, tables)
    except StatementError as error:
        if str(error) == str(reason):
            raise
        raise StatementError(f"{reason}; {str(error).removeprefix('SQL: ')}") from None


def hinted(sql: str, tables: Mapping[str, Table], reason: StatementError) -> StatementError:
    """Return the error of a statement that is not split, with a hint if Spark would run it."""
    try:
        spark_statement(sql, tables)
    except StatementError:
        return reason
    return StatementError(f"{reason}; with --spark it runs on Apache Spark")
