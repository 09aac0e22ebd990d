"""Parquet files that appear whole: written to a temporary file, synced to disk, then renamed."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from collectors.errors import HistoryError
from collectors.history.files import UNFINISHED
from collectors.history.journal import synchronise

_GROUP_ROWS: Final = 131_072
_LEVEL: Final = 3
PROBLEMS: Final = (OSError, pa.ArrowException)
"""Exceptions that pyarrow raises for files that are broken, missing or not writable."""


def write_whole(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a file that is either there with all its rows, or not there; raise HistoryError."""
    beside = path.with_name(path.name + UNFINISHED)
    try:
        with pq.ParquetWriter(
            beside, schema, compression="zstd", compression_level=_LEVEL, write_page_checksum=True
        ) as writer:
            for table in _in_groups(schema, batches):
                writer.write_table(table)
        synchronise(beside)
        beside.rename(path)
        synchronise(path.parent)
    except BaseException as error:
        # Whatever the error, even one of the rows' source: a half file must not stay.
        with suppress(OSError):
            beside.unlink()
        if isinstance(error, PROBLEMS):
            raise HistoryError(f"{path}: cannot be written: {first_line(error)}") from error
        raise


def problem_of(path: Path, *, thoroughly: bool = False) -> str | None:
    """Return why a file cannot be used, None if it can; `thoroughly` reads all of it and checks its sums."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for _ in file.iter_batches() if thoroughly else ():
                pass
    except FileNotFoundError:
        raise
    except PROBLEMS as error:
        return first_line(error)
    return None


def first_line(error: BaseException) -> str:
    """Return an error's text as one line."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def _in_groups(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.Table]:
    """Gather batches until they make a row group."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _GROUP_ROWS:
            yield pa.Table.from_batches(waiting, schema)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)
