"""Writes the history: rows into journals, journals into Parquet files; one process a folder.

Everything here may wait for the disk, so it runs beside the event loop, one call at a time.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from collectors.errors import HistoryError
from collectors.history import files, schema
from collectors.history.journal import JournalWriter, read_journal
from collectors.history.parquet import write_whole
from collectors.history.schema import Table
from collectors.history.settings import S_NS, HistorySettings

_LOCK: Final = ".lock"


class HistoryWriter:
    """Appends rows to a folder's tables; raises HistoryError if the folder cannot be used or another writes there.

    Journals that a killed collector left become files first; `on_problem` is told of what cannot be read of them.
    """

    def __init__(self, settings: HistorySettings, on_problem: Callable[[str], None] = lambda _: None) -> None:
        self._settings = settings
        self._folder = Path(settings.folder)
        self._on_problem = on_problem
        self._lock = _take(self._folder)
        try:
            self._tables = {table.name: _TableWriter(self._folder, table, settings) for table in schema.TABLES.values()}
            for table in self._tables.values():
                table.recover(on_problem)
        except BaseException:
            os.close(self._lock)
            raise

    def write(self, batches: Mapping[str, pa.RecordBatch], wall_ns: int) -> list[str]:
        """Write each table's batch of one interval; return the tables of which a file is now complete.

        `wall_ns` is the rows' time. Raises HistoryError for the first table that failed, when all others are written.
        """
        problem: HistoryError | None = None
        complete = []
        for name, table in self._tables.items():
            try:
                if table.complete_before(wall_ns):
                    complete.append(name)
                if name in batches:
                    table.append(batches[name], wall_ns)
            except HistoryError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return complete

    def close(self) -> None:
        """Make files of all journals, and let others write."""
        try:
            for table in self._tables.values():
                table.finish()
        finally:
            os.close(self._lock)


class _TableWriter:
    """One table's journal, and the file that it becomes."""

    def __init__(self, folder: Path, table: Table, settings: HistorySettings) -> None:
        self._folder, self._table, self._settings = folder / table.name, table, settings
        self._journal: JournalWriter | None = None
        self._number = 0
        self._newest_ns = 0

    def recover(self, on_problem: Callable[[str], None]) -> None:
        """Make files of what a killed collector left, remove what it had not finished."""
        try:
            self._folder.mkdir(exist_ok=True)
            for unfinished in self._folder.glob("*" + files.UNFINISHED):
                unfinished.unlink()
        except OSError as error:
            raise HistoryError(f"{self._folder}: cannot be used: {error.strerror}") from error
        for left in files.listing(self._folder).journals:
            try:
                self._to_parquet(left.path, left.number)
            except HistoryError as error:
                on_problem(str(error))

    def append(self, batch: pa.RecordBatch, wall_ns: int) -> None:
        """Write rows of one interval."""
        if self._journal is None:
            self._number = files.listing(self._folder).next_number
            self._journal = JournalWriter(self._folder / files.journal_name(self._number), self._table.schema)
        self._journal.append(batch)
        self._newest_ns = wall_ns

    def complete_before(self, wall_ns: int) -> bool:
        """Make a file of the journal if rows of `wall_ns` belong into the next one; return whether one was made."""
        if self._journal is None:
            return False
        is_full = self._journal.rows >= self._settings.rows_per_file
        span_ns = self._settings.coarsest_ns if is_full else self._settings.file_span_ns
        if wall_ns // span_ns == self._newest_ns // span_ns:
            return False
        return self.finish()

    def finish(self) -> bool:
        """Make a file of the journal, if there is one."""
        if self._journal is None:
            return False
        journal, self._journal = self._journal, None
        journal.close()
        self._to_parquet(journal.path, self._number)
        return True

    def _to_parquet(self, path: Path, number: int) -> None:
        newest_us = max((_newest_us(batch) for batch in read_journal(path) if batch.num_rows), default=None)
        if newest_us is not None:
            interval_ns = self._settings.interval_ns if self._table.is_merged else 0
            name = files.name_of(number, number, interval_ns, newest_us * 1000 // S_NS)
            write_whole(self._folder / name, self._table.schema, read_journal(path))
        path.unlink()


def _newest_us(batch: pa.RecordBatch) -> int:
    newest: int = batch.column("time").cast(pa.int64()).to_numpy().max()
    return newest


def _take(folder: Path) -> int:
    """Return the descriptor that locks a folder, which is made if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise HistoryError(f"{folder}: cannot keep the history here: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise HistoryError(f"{folder}: another collector keeps its history here") from error
    return lock
