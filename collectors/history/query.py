"""SQL over a history: DuckDB reads the files in place, and can do nothing else.

A query sees every row once, at the finest interval kept for its time, including those that the collector wrote last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from collectors.errors import HistoryError
from collectors.history import files
from collectors.history.files import Listing
from collectors.history.journal import read_journal
from collectors.history.parquet import PROBLEMS, first_line, problem_of
from collectors.history.schema import TABLES, Table
from collectors.history.sketches import is_about_sketches
from collectors.history.views import connect, define_view, list_of

_ATTEMPTS: Final = 20
BATCH_ROWS: Final = 8192
_ONLY_READS: Final = frozenset({duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN})
WRONG_STATEMENT: Final = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)


@dataclass(frozen=True, slots=True)
class Answer:
    """A query's result: the columns' names and, once, its rows."""

    columns: tuple[str, ...]
    batches: Iterator[pa.RecordBatch]


def query(folder: Path, statement: str, on_problem: Callable[[str], None] = lambda _: None) -> Answer:
    """Answer one SELECT over the views of `schema.TABLES`; raise HistoryError with a one-line reason.

    `on_problem` is called for broken files, which are left out.
    """
    if not folder.is_dir():
        raise HistoryError(f"{folder}: no such folder")
    if not any((folder / name).is_dir() for name in TABLES):
        raise HistoryError(f"{folder}: no collector has written a history here")
    broken: set[Path] = set()
    problem = ""
    for _ in range(_ATTEMPTS):
        reading = _Reading(folder, broken, on_problem)
        try:
            return reading.answer(statement)
        except WRONG_STATEMENT as error:
            raise HistoryError(in_words(error)) from error
        except (duckdb.Error, *PROBLEMS) as error:
            problem = in_words(error)
            # A file may have gone since it was listed, or be broken where only a query reads.
            if not reading.look_for_changes():
                break
    raise HistoryError(problem)


@dataclass
class _Reading:
    """One attempt at a query."""

    folder: Path
    broken: set[Path]
    on_problem: Callable[[str], None]
    connection: duckdb.DuckDBPyConnection = field(default_factory=connect)
    used: list[Path] = field(default_factory=list)

    def answer(self, statement: str) -> Answer:
        """Define the views, disable all other access, run the statement."""
        refuse_all_but_one_select(self.connection, statement)
        for table in tables_in(statement):
            self._define(table)
        self.connection.execute(f"SET allowed_paths={list_of(self.used)}")
        self.connection.execute("SET enable_external_access=false")
        self.connection.execute("SET lock_configuration=true")
        relation = self.connection.sql(statement)
        reader = relation.to_arrow_reader(BATCH_ROWS)
        first = next(reader, None)
        return Answer(tuple(relation.columns), batches_of(self.connection, first, reader))

    def look_for_changes(self) -> bool:
        """Return whether a used file has gone, or turned out to be broken."""
        if not all(path.exists() for path in self.used):
            return True
        return sum(self._is_unusable(path) for path in self.used) > 0

    def _is_unusable(self, path: Path) -> bool:
        try:
            problem = problem_of(path, thoroughly=True)
        except FileNotFoundError:
            return True
        return problem is not None and self._leave_out(path, problem)

    def _leave_out(self, path: Path, problem: str) -> bool:
        self.on_problem(f"{path}: left out: {problem}")
        self.broken.add(path)
        return True

    def _define(self, table: Table) -> None:
        """Define a table's view over its files and, as one more table of DuckDB's, its journals."""
        paths, recent = self._contents(table)
        self.used += paths
        define_view(self.connection, table, paths, recent)

    def _contents(self, table: Table) -> tuple[list[Path], pa.Table]:
        """Return a table's files and the rows of its journals; again if a journal became a file meanwhile."""
        while True:
            listed = files.listing(self.folder / table.name)
            try:
                return self._sound(listed), pa.Table.from_batches(self._recent(listed, table), table.schema)
            except FileNotFoundError:
                continue

    def _sound(self, listed: Listing) -> list[Path]:
        sound = []
        for file in listed.files:
            if file.path in self.broken:
                continue
            problem = problem_of(file.path)
            if problem is None:
                sound.append(file.path)
            else:
                self._leave_out(file.path, problem)
        return sound

    def _recent(self, listed: Listing, table: Table) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = []
        for journal in listed.journals:
            try:
                batches += read_journal(journal.path, table.schema)
            except HistoryError as error:
                self.on_problem(str(error))
        return batches


def tables_in(statement: str) -> list[Table]:
    """Return the tables whose names occur in a statement, all if none does: reading the others would be in vain."""
    text = statement.lower()
    return [table for table in TABLES.values() if table.name in text] or list(TABLES.values())


def refuse_all_but_one_select(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    """Raise HistoryError unless a statement is one that only reads."""
    statements = connection.extract_statements(statement)
    if len(statements) != 1 or statements[0].type not in _ONLY_READS:
        raise HistoryError("a query must be a single SELECT: the history is read-only")


def in_words(error: BaseException) -> str:
    """Return DuckDB's complaint as one line, without the excerpt of the statement below it."""
    if is_about_sketches(str(error)):
        return "delay_quantile takes delay sketches (column delay_sketch of links) and a share"
    return first_line(error)


def batches_of(
    connection: duckdb.DuckDBPyConnection, first: pa.RecordBatch | None, reader: pa.RecordBatchReader
) -> Iterator[pa.RecordBatch]:
    """Yield a query's batches; the connection must stay open until the end."""
    try:
        if first is not None:
            yield first
        yield from reader
    except PROBLEMS as error:
        raise HistoryError(in_words(error)) from error
    finally:
        connection.close()
