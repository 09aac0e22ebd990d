"""Writer of the history: rows into journals, journals into Parquet files; one process per folder.

Everything here may wait for the disk, so it runs outside the event loop, one call at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from collectors.errors import BrokenJournalError, HistoryError
from collectors.history import files
from collectors.history.journal import JournalWriter, read_journal
from collectors.history.parquet import write_whole
from collectors.history.schema import TABLES, Table
from collectors.history.settings import HistorySettings
from dataplane.clock import NS_PER_S
from dataplane.file_lock import FileLock, HeldError

_LOCK: Final = ".lock"


class HistoryWriter:
    """Appends rows to a folder's tables; raises HistoryError if the folder cannot be used or another writes there.

    `complete` also makes files of the journals that a killed collector left.
    """

    def __init__(self, settings: HistorySettings) -> None:
        self._settings = settings
        self._folder = Path(settings.folder)
        self._lock = _take(self._folder)
        try:
            self._tables = {table.name: _TableWriter(self._folder, table, settings) for table in TABLES.values()}
        except BaseException:
            self._lock.release()
            raise

    def write(self, batches: Mapping[str, pa.RecordBatch], wall_ns: int) -> bool:
        """Write each table's batch of one interval; return whether journals wait to be completed.

        `wall_ns` is the rows' time. Raises HistoryError for the first table that failed, when all others are written.
        """
        problem: HistoryError | None = None
        for name, table in self._tables.items():
            table.finish_before(wall_ns)
            try:
                if name in batches:
                    table.append(batches[name], wall_ns)
                table.sync_if_due(wall_ns)
            except HistoryError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return any(table.has_finished for table in self._tables.values())

    def complete(self, on_problem: Callable[[str], None] = lambda _: None) -> None:
        """Make files of finished journals; may run in another thread than `write`, but only once at a time.

        `on_problem` is called for each failure; the journal is kept and tried again, or set aside if it is broken.
        """
        for table in self._tables.values():
            table.complete(on_problem)

    def close(self, on_problem: Callable[[str], None] = lambda _: None) -> None:
        """Make files of all journals, and let others write."""
        try:
            for table in self._tables.values():
                table.finish()
            self.complete(on_problem)
        finally:
            self._lock.release()


class _TableWriter:
    """One table's journal, and its finished ones that wait to become files."""

    def __init__(self, folder: Path, table: Table, settings: HistorySettings) -> None:
        self._folder, self._table, self._settings = folder / table.name, table, settings
        self._journal: JournalWriter | None = None
        self._number = 0
        self._newest_ns = self._synced_ns = 0
        self._is_unsynced = False
        try:
            self._folder.mkdir(exist_ok=True)
            # Half-written files of a killed collector: their journals are still there.
            for unfinished in self._folder.glob("*" + files.UNFINISHED):
                unfinished.unlink()
        except OSError as error:
            raise HistoryError(f"{self._folder}: cannot be used: {error.strerror}") from error
        self._finished = deque((left.path, left.number) for left in files.listing(self._folder).journals)

    @property
    def has_finished(self) -> bool:
        """Return whether finished journals wait to become files."""
        return bool(self._finished)

    def append(self, batch: pa.RecordBatch, wall_ns: int) -> None:
        """Write rows of one interval."""
        if self._journal is None:
            # The last number may have left no file: an empty journal is only deleted.
            number = max(files.listing(self._folder).next_number, self._number + 1)
            self._journal = JournalWriter(self._folder / files.journal_name(number), self._table.schema)
            self._number = number
        self._journal.append(batch)
        self._newest_ns, self._is_unsynced = wall_ns, True

    def sync_if_due(self, wall_ns: int) -> None:
        """Sync appended rows to disk, if that was not done for long, or the clock was set."""
        is_due = self._is_unsynced and abs(wall_ns - self._synced_ns) >= self._settings.sync_ns
        if self._journal is not None and is_due:
            self._journal.sync()
            self._synced_ns, self._is_unsynced = wall_ns, False

    def finish_before(self, wall_ns: int) -> None:
        """End the journal if rows of `wall_ns` belong into the next."""
        if self._journal is None:
            return
        is_full = self._journal.rows >= self._settings.rows_per_file
        span_ns = self._settings.coarsest_ns if is_full else self._settings.file_span_ns
        if wall_ns // span_ns != self._newest_ns // span_ns:
            self.finish()

    def finish(self) -> None:
        """End the journal, if there is one."""
        if self._journal is not None:
            self._journal.close()
            self._finished.append((self._journal.path, self._number))
            self._journal = None

    def complete(self, on_problem: Callable[[str], None]) -> None:
        """Make files of the journals that wait."""
        # Try each once: failed ones go to the end and wait for the next call.
        for _ in range(len(self._finished)):
            path, number = self._finished.popleft()
            try:
                self._to_parquet_or_aside(path, number, on_problem)
            except (HistoryError, OSError) as error:
                self._finished.append((path, number))
                on_problem(str(error))

    def _to_parquet_or_aside(self, path: Path, number: int, on_problem: Callable[[str], None]) -> None:
        try:
            self._to_parquet(path, number)
        except BrokenJournalError as error:
            path.rename(path.with_name(path.name + files.CORRUPT))
            on_problem(f"{error}: set aside")

    def _to_parquet(self, path: Path, number: int) -> None:
        schema = self._table.schema
        newest_us = max((_newest_us(batch) for batch in read_journal(path, schema) if batch.num_rows), default=None)
        if newest_us is not None:
            interval_ns = self._settings.interval_ns if self._table.is_merged else 0
            name = files.name_of(number, number, interval_ns, newest_us * 1000 // NS_PER_S)
            write_whole(self._folder / name, schema, read_journal(path, schema))
        # Only once the file is whole, so that a crash loses no rows.
        path.unlink()


def _newest_us(batch: pa.RecordBatch) -> int:
    newest: int = batch.column("time").cast(pa.int64()).to_numpy().max()
    return newest


def _take(folder: Path) -> FileLock:
    """Return the lock of a folder, which is created if missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(str(folder / _LOCK))
    except OSError as error:
        raise HistoryError(f"{folder}: cannot keep the history here: {error.strerror}") from error
    except HeldError as error:
        raise HistoryError(f"{folder}: another collector keeps its history here ({error})") from None
