"""Persistent history: reports with their evaluation, changes of shares, and controllers' states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from controller.apiserver.resources import UnitPool
from controller.apiserver.resources.unit_pool import UnitHolding
from controller.balance.errors import HistoryError
from controller.balance.serving.wanting import Memory
from dataplane.database import Database, Layout
from dataplane.malformed import MALFORMED

LAYOUT: Final = 1
_BUSY_S: Final = 2.0
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS reports (
    id INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, pool TEXT NOT NULL, holder TEXT NOT NULL,
    bus REAL, load REAL, error REAL, output REAL, wants INTEGER NOT NULL, units INTEGER NOT NULL,
    leaving INTEGER NOT NULL, precision TEXT NOT NULL, frequency_mhz REAL, price REAL NOT NULL, reason TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS reports_by_pool ON reports (pool, time_ns);
CREATE INDEX IF NOT EXISTS reports_by_time ON reports (time_ns);
CREATE TABLE IF NOT EXISTS changes (
    id INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, pool TEXT NOT NULL, holder TEXT NOT NULL,
    before INTEGER NOT NULL, after INTEGER NOT NULL, leaving INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS changes_by_pool ON changes (pool, time_ns);
CREATE INDEX IF NOT EXISTS changes_by_time ON changes (time_ns);
CREATE TABLE IF NOT EXISTS memories (
    pool TEXT NOT NULL, holder TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (pool, holder)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class ReportRow:
    """A holder's report, at the server's time, its evaluation, and the units that the holder had."""

    time_ns: int
    pool: str
    holder: str
    bus: float | None
    load: float | None
    error: float | None
    output: float | None
    wants: int
    units: int
    leaving: int
    precision: str
    frequency_mhz: float | None
    price: float
    reason: str


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A change of a holder's units, or of those asked back."""

    time_ns: int
    pool: str
    holder: str
    before: int
    after: int
    leaving: int


@contextmanager
def read_history(file: Path) -> Iterator[History]:
    """Open a service's history for reading, alongside the service; raise HistoryError if there is none."""
    if not file.is_file():
        raise HistoryError(f"{file}: no history of balancing")
    history = History(str(file), read_only=True)
    try:
        yield history
    finally:
        history.close()


class History:
    """One file; for one service at a time, and any number of readers. Every method raises HistoryError naming it."""

    def __init__(self, file: str, *, read_only: bool = False) -> None:
        layout = Layout("the history of balancing", _SCHEMA, LAYOUT, HistoryError, busy_s=_BUSY_S)
        self._database = Database(file, layout, read_only=read_only)

    def close(self) -> None:
        """Close the file; uncommitted records are lost."""
        self._database.close()

    def note_reports(self, pool: UnitPool, holders: Iterable[str]) -> None:
        """Record the reports of these holders from a pool, with their evaluation in its status."""
        reports = {report.holder: report for report in pool.status.holders}
        control = {control.holder: control for control in pool.status.control}
        shares = {holding.holder: holding for holding in pool.shares}
        for holder in holders:
            report, made, share = reports[holder], control[holder], shares.get(holder)
            units, leaving = (0, 0) if share is None else (share.units, share.leaving)
            figures = (report.bus, report.load, made.error, made.output, made.wants, units, leaving)
            levers = (report.precision, report.frequency_mhz, made.price, made.reason)
            row = (report.reported_ns, pool.metadata.name, holder, *figures, *levers)
            self._database.write(f"INSERT INTO reports VALUES (NULL{', ?' * len(row)})", row)  # noqa: S608 - constants

    def note_changes(self, pool: UnitPool, after: Sequence[UnitHolding], time_ns: int) -> None:
        """Record the changes of a pool's shares."""
        was = {holding.holder: holding for holding in pool.shares}
        now = {holding.holder: holding for holding in after}
        for holder in sorted(was.keys() | now.keys()):
            old, new = was.get(holder), now.get(holder)
            before, units = 0 if old is None else old.units, 0 if new is None else new.units
            leaving = 0 if new is None else new.leaving
            if before == units and leaving == (0 if old is None else old.leaving):
                continue
            row = (time_ns, pool.metadata.name, holder, before, units, leaving)
            self._database.write("INSERT INTO changes VALUES (NULL, ?, ?, ?, ?, ?, ?)", row)

    def note_memories(self, pool: str, memories: Mapping[str, Memory]) -> None:
        """Save the state of holders for a restart."""
        for holder, memory in memories.items():
            self._database.write(
                "INSERT OR REPLACE INTO memories VALUES (?, ?, ?)", (pool, holder, msgspec.msgpack.encode(memory))
            )

    def memories(self, pool: str) -> dict[str, Memory]:
        """Return the saved state of a pool's holders."""
        rows = self._database.query("SELECT holder, data FROM memories WHERE pool = ?", (pool,))
        try:
            return {holder: msgspec.msgpack.decode(data, type=Memory) for holder, data in rows}
        except MALFORMED as error:
            raise HistoryError(f"{self._database.path}: memories of pool {pool}: {error}") from error

    def forget(self, before_ns: int) -> None:
        """Delete older records."""
        for table in ("reports", "changes"):
            self._database.write(f"DELETE FROM {table} WHERE time_ns < ?", (before_ns,))  # noqa: S608 - constants

    def forget_pool(self, pool: str) -> None:
        """Delete controllers' states of a deleted pool: another one may get its name."""
        self._database.write("DELETE FROM memories WHERE pool = ?", (pool,))

    def commit(self) -> None:
        """Commit all records."""
        self._database.commit()

    def rollback(self) -> None:
        """Discard uncommitted records."""
        self._database.rollback()

    def check(self, pool: str, holder: str | None) -> None:
        """Raise HistoryError if nothing is recorded at all, of a pool, or of a holder of it."""
        if not any(self._rows(table, pool, None, 0, 1) for table in ("reports", "changes")):
            raise HistoryError(f"{self._database.path}: no records of pool {pool}")
        if not any(self._rows(table, pool, holder, 0, 1) for table in ("reports", "changes")):
            raise HistoryError(f"{self._database.path}: pool {pool}: no records of holder {holder}")

    def reports(self, pool: str, holder: str | None, since_ns: int, limit: int) -> list[ReportRow]:
        """Return the newest reports since a time, in order of time."""
        rows = self._rows("reports", pool, holder, since_ns, limit)
        return [ReportRow(*row[1:]) for row in rows]

    def changes(self, pool: str, holder: str | None, since_ns: int, limit: int) -> list[ChangeRow]:
        """Return the newest changes since a time, in order of time."""
        return [ChangeRow(*row[1:]) for row in self._rows("changes", pool, holder, since_ns, limit)]

    def _rows(self, table: str, pool: str, holder: str | None, since_ns: int, limit: int) -> list[tuple[Any, ...]]:
        statement = f"SELECT * FROM {table} WHERE pool = ? AND time_ns >= ?"  # noqa: S608 - constants
        parameters: tuple[object, ...] = (pool, since_ns)
        if holder is not None:
            statement, parameters = f"{statement} AND holder = ?", (*parameters, holder)
        rows = self._database.query(f"{statement} ORDER BY id DESC LIMIT ?", (*parameters, limit))
        return rows[::-1]
