"""Merging of files of fine rows into one file of coarser rows, each column as `schema` says; DuckDB does the sums."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from collectors.errors import HistoryError
from collectors.figures import Merge
from collectors.history import files
from collectors.history.files import HistoryFile
from collectors.history.parquet import first_line, write_whole
from collectors.history.schema import Column, Table
from collectors.history.views import connect, define_view

_BATCH_ROWS: Final = 65_536
_MEMORY: Final = "512MB"
_US_NS: Final = 1000
_PORTION_ROWS: Final = 200_000


class Halt:
    """Lets another thread stop merging for good: a merge may take minutes, and can be done later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._merging: duckdb.DuckDBPyConnection | None = None
        self.asked = False

    def ask(self) -> None:
        """End the statement under way, if there is one, and refuse merges to come."""
        with self._lock:
            self.asked = True
            if self._merging is not None:
                self._merging.interrupt()

    @contextmanager
    def watching(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Let `ask` interrupt a connection; raises HistoryError if it was called already."""
        with self._lock:
            if self.asked:
                raise HistoryError("merging has ended")
            self._merging = connection
        try:
            yield
        finally:
            with self._lock:
                self._merging = None


def merge(table: Table, sources: Sequence[HistoryFile], interval_ns: int, halt: Halt) -> Path:
    """Replace several successive files with one; raise HistoryError, leaving everything as before.

    The rows written are of `interval_ns` or coarser; a table whose rows are never merged keeps them.
    """
    first, last = sources[0], sources[-1]
    end_s = max(source.end_s for source in sources)
    interval_ns = max(interval_ns, *(source.interval_ns for source in sources))
    path = first.path.with_name(files.name_of(first.first, last.last, interval_ns, end_s))
    try:
        with connect() as connection, halt.watching(connection):
            connection.execute(f"SET memory_limit='{_MEMORY}'")
            connection.execute("SET threads=1")
            define_view(connection, table, [source.path for source in sources], table.schema.empty_table())
            write_whole(path, table.schema, _merged(connection, table, interval_ns))
    except duckdb.Error as error:
        raise HistoryError(f"{path}: cannot be merged: {first_line(error)}") from error
    # Only once the merged file is complete; after a crash its name shows which files it replaces.
    for source in sources:
        source.path.unlink(missing_ok=True)
    return path


def _merged(connection: duckdb.DuckDBPyConnection, table: Table, interval_ns: int) -> Iterator[pa.RecordBatch]:
    """Yield merged rows, as many intervals at a time as fit into memory."""
    for condition in _portions(connection, table, interval_ns):
        for batch in connection.sql(statement(table, interval_ns, condition)).to_arrow_reader(_BATCH_ROWS):
            yield from pa.Table.from_batches([batch]).cast(table.schema).to_batches()


def _portions(connection: duckdb.DuckDBPyConnection, table: Table, interval_ns: int) -> Iterator[str]:
    """Yield conditions on the time that part a table's rows, never inside an interval."""
    question = f"FROM {table.name} SELECT count(*), min(epoch_us(time)), max(epoch_us(time))"
    [(rows, first_us, last_us)] = connection.execute(question).fetchall()
    if not rows:
        return
    step_us = interval_ns // _US_NS
    intervals = (last_us // step_us) - (first_us // step_us) + 1
    span_us = max(intervals * _PORTION_ROWS // rows, 1) * step_us
    begin_us = first_us // step_us * step_us
    while begin_us <= last_us:
        yield f"epoch_us(time) >= {begin_us} AND epoch_us(time) < {begin_us + span_us}"
        begin_us += span_us


def statement(table: Table, interval_ns: int, condition: str = "true") -> str:
    """Return the SELECT that makes rows of `interval_ns` of those rows of a view that fulfil a condition."""
    if not table.is_merged:
        return f"FROM {table.name} WHERE {condition} ORDER BY time"
    bucket_us = interval_ns // _US_NS
    bucket = f"epoch_us(time) // {bucket_us} * {bucket_us}"
    keys = [column.name for column in table.columns if column.merge is Merge.KEY]
    values = ", ".join(f"{_value(column, table, interval_ns)} AS {column.name}" for column in table.columns)
    grouping = ", ".join(["bucket_us", *keys])
    rows = f"FROM (FROM {table.name} SELECT *, {bucket} AS bucket_us WHERE {condition})"
    return f"{rows} SELECT {values} GROUP BY {grouping} ORDER BY bucket_us"


def _value(column: Column, table: Table, interval_ns: int) -> str:
    """Return the expression for a column of a merged row."""
    if column.merge is Merge.BUCKET:
        return "make_timestamptz(bucket_us)" if column.name == "time" else str(interval_ns)
    expression = _EXPRESSIONS[column.merge](column.name, table)
    is_mean = column.merge in {Merge.BY_SAMPLES, Merge.BY_SNAPSHOTS, Merge.MEDIAN}
    return f"round({expression})::BIGINT" if is_mean and pa.types.is_integer(column.kind) else expression


def _newest(name: str, table: Table) -> str:
    newest = f"arg_max({name}, time)"
    return f"coalesce({newest} FILTER (samples > 0), {newest})" if table.has_samples else newest


def _measured_greatest(name: str) -> str:
    return f"coalesce(max({name}) FILTER (samples > 0), max({name}))"


def _by_samples(name: str) -> str:
    return f"coalesce({_mean(name, 'samples')}, {_mean(name, 'snapshots')})"


def _mean(name: str, weight: str) -> str:
    """Return a weighted mean of the rows in which the column is not null; null if they weigh nothing."""
    return f"sum({name}::DOUBLE * {weight}) / nullif(sum({weight}) FILTER ({name} IS NOT NULL), 0)"


def _sketches() -> str:
    return "flatten(list(delay_sketch) FILTER (delay_sketch IS NOT NULL))"


def _quantile(share: float, otherwise: str) -> str:
    """Return a quantile of the merged sketch, if every row with samples has one; no greater than the greatest delay."""
    is_whole = "count(delay_sketch) > 0 AND count(*) FILTER (samples > 0 AND delay_sketch IS NULL) = 0"
    quantile = f"least(sketch_quantile({_sketches()}, {share}::DOUBLE), {_measured_greatest('delay_max_ns')})"
    return f"coalesce(CASE WHEN {is_whole} THEN {quantile} END, {otherwise})"


_EXPRESSIONS: Final[Mapping[Merge, Callable[[str, Table], str]]] = {
    Merge.KEY: lambda name, _: name,
    Merge.SUM: lambda name, _: f"sum({name})::BIGINT",
    Merge.LEAST: lambda name, _: f"min({name})",
    Merge.GREATEST: lambda name, _: f"max({name})",
    Merge.MEASURED_GREATEST: lambda name, _: _measured_greatest(name),
    Merge.NEWEST: _newest,
    Merge.BY_SNAPSHOTS: lambda name, _: _mean(name, "snapshots"),
    Merge.BY_SAMPLES: lambda name, _: _by_samples(name),
    Merge.SKETCH: lambda *_: f"sketch_sum({_sketches()})",
    Merge.MEDIAN: lambda name, _: _quantile(0.5, _by_samples(name)),
    Merge.PERCENTILE_99: lambda name, _: _quantile(0.99, _measured_greatest(name)),
}
