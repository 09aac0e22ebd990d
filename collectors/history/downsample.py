"""Files of fine rows to one file of coarser rows, each column as `schema` says; DuckDB adds up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from collectors.errors import HistoryError
from collectors.history import files
from collectors.history.files import HistoryFile
from collectors.history.parquet import first_line, write_whole
from collectors.history.schema import Column, Merge, Table
from collectors.history.views import connect, define_view

_BATCH_ROWS: Final = 65_536
_MEMORY: Final = "512MB"
_US_NS: Final = 1000


def merge(table: Table, sources: Sequence[HistoryFile], interval_ns: int) -> Path:
    """Write one file in the place of some successive ones, and delete those; raise HistoryError, and all is as before.

    Rows of `interval_ns` or coarser come out; a table whose rows are never merged keeps them.
    """
    first, last = sources[0], sources[-1]
    end_s = max(source.end_s for source in sources)
    interval_ns = max(interval_ns, *(source.interval_ns for source in sources))
    path = first.path.with_name(files.name_of(first.first, last.last, interval_ns, end_s))
    try:
        with connect() as connection:
            connection.execute(f"SET memory_limit='{_MEMORY}'")
            connection.execute("SET threads=1")
            define_view(connection, table, [source.path for source in sources], table.schema.empty_table())
            write_whole(path, table.schema, _merged(connection, table, interval_ns))
    except duckdb.Error as error:
        raise HistoryError(f"{path}: cannot be merged: {first_line(error)}") from error
    for source in sources:
        source.path.unlink(missing_ok=True)
    return path


def _merged(connection: duckdb.DuckDBPyConnection, table: Table, interval_ns: int) -> Iterator[pa.RecordBatch]:
    for batch in connection.sql(statement(table, interval_ns)).to_arrow_reader(_BATCH_ROWS):
        yield from pa.Table.from_batches([batch]).cast(table.schema).to_batches()


def statement(table: Table, interval_ns: int) -> str:
    """Return the SELECT that makes rows of `interval_ns` of a view's finer ones."""
    if not table.is_merged:
        return f"FROM {table.name} ORDER BY time"
    bucket_us = interval_ns // _US_NS
    bucket = f"epoch_us(time) // {bucket_us} * {bucket_us}"
    keys = [column.name for column in table.columns if column.merge is Merge.KEY]
    values = ", ".join(f"{_value(column, table, interval_ns)} AS {column.name}" for column in table.columns)
    grouping = ", ".join(["bucket_us", *keys])
    rows = f"FROM (FROM {table.name} SELECT *, {bucket} AS bucket_us)"
    return f"{rows} SELECT {values} GROUP BY {grouping} ORDER BY bucket_us"


def _value(column: Column, table: Table, interval_ns: int) -> str:
    """Return the expression for a column of a merged row."""
    name = column.name
    match column.merge:
        case Merge.KEY:
            return name
        case Merge.BUCKET:
            return "make_timestamptz(bucket_us)" if name == "time" else str(interval_ns)
        case Merge.SUM:
            return f"sum({name})::BIGINT"
        case Merge.LEAST:
            return f"min({name})"
        case Merge.GREATEST:
            return f"max({name})"
        case Merge.MEASURED_GREATEST:
            return f"coalesce(max({name}) FILTER (samples > 0), max({name}))"
        case Merge.NEWEST:
            newest = f"arg_max({name}, time)"
            return f"coalesce({newest} FILTER (samples > 0), {newest})" if table.has_samples else newest
        case Merge.BY_SNAPSHOTS:
            return _rounded(column, _mean(name, "snapshots"))
        case Merge.BY_SAMPLES:
            return _rounded(column, f"coalesce({_mean(name, 'samples')}, {_mean(name, 'snapshots')})")


def _mean(name: str, weight: str) -> str:
    """Return a weighted mean of the rows in which the column is not null; null if they weigh nothing."""
    return f"sum({name}::DOUBLE * {weight}) / nullif(sum({weight}) FILTER ({name} IS NOT NULL), 0)"


def _rounded(column: Column, expression: str) -> str:
    return f"round({expression})::BIGINT" if pa.types.is_integer(column.kind) else expression
