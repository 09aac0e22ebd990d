"""SQLite as the path server uses it: WAL, one connection, every failure an error that names the file."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from controller.errors import PathError
from controller.paths.records.migration import to_utc

LOGGER = logging.getLogger("millrace.paths")

BUSY_S = 2.0
"""How long a write waits for another process's transaction."""

LAYOUT = 3
"""Kept in the file's user_version; times are nanoseconds of UTC. A file of any other layout but 2 is refused."""

_MONOTONIC_LAYOUT = 2
"""The same tables with times of the machine's monotonic clock."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    id INTEGER PRIMARY KEY,
    received_ns INTEGER NOT NULL,
    src BLOB NOT NULL, dst BLOB NOT NULL,
    protocol INTEGER NOT NULL, src_port INTEGER NOT NULL, dst_port INTEGER NOT NULL,
    reporter_id INTEGER NOT NULL, sequence INTEGER NOT NULL, hop_index INTEGER NOT NULL, hop_count INTEGER,
    node_id INTEGER NOT NULL, ingress_port INTEGER, egress_port INTEGER, hop_latency_ns INTEGER, queue_id INTEGER,
    queue_occupancy_frames INTEGER, ingress_timestamp_ns INTEGER, egress_timestamp_ns INTEGER,
    tx_bytes_per_window INTEGER, packet_id INTEGER NOT NULL, kind INTEGER NOT NULL,
    buffer_occupancy_frames INTEGER
);
CREATE INDEX IF NOT EXISTS records_by_flow ON records (src, dst, protocol, src_port, dst_port, received_ns);
CREATE INDEX IF NOT EXISTS records_by_port ON records (node_id, egress_port, received_ns);
CREATE INDEX IF NOT EXISTS records_by_time ON records (received_ns);
CREATE TABLE IF NOT EXISTS decisions (
    id INTEGER PRIMARY KEY,
    time_ns INTEGER NOT NULL, flow BLOB NOT NULL, decision BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS decisions_by_flow ON decisions (flow, id);
CREATE TABLE IF NOT EXISTS rebalances (
    id INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, destination TEXT NOT NULL, change BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS routes (
    flow BLOB PRIMARY KEY, switches BLOB NOT NULL, since_ns INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS weighted (only INTEGER PRIMARY KEY CHECK (only = 0), routes BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS versions (only INTEGER PRIMARY KEY CHECK (only = 0), version INTEGER NOT NULL);
"""


class Database:
    """One SQLite file; `transaction` commits all or nothing. Use it from one thread at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        written_ns = _written_ns(path)
        with self.errors("open"):
            self._connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            with self.errors("open"):
                self._prepare(written_ns)
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run statements that take effect together or not at all; raise PathError naming the file."""
        with self.errors("write"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def query(self, statement: str, parameters: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        """Return all rows of a SELECT; raise PathError naming the file."""
        with self.errors("read"):
            return self._connection.execute(statement, parameters).fetchall()

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turn SQLite's errors into PathErrors."""
        try:
            yield
        except sqlite3.Error as error:
            raise PathError(f"{self.path}: cannot {doing} the path server's database: {error}") from error

    def _prepare(self, written_ns: int) -> None:
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        [(layout,)] = self._connection.execute("PRAGMA user_version").fetchall()
        if layout not in (0, _MONOTONIC_LAYOUT, LAYOUT):
            raise PathError(f"{self.path}: the database has layout {layout}, this version wants {LAYOUT}: move it away")
        if layout == _MONOTONIC_LAYOUT:
            with self.transaction() as connection:
                to_utc(connection, written_ns)
                connection.execute(f"PRAGMA user_version={LAYOUT}")
            LOGGER.warning(
                "%s: its times were the machine's own and are UTC now, as far as they can be told", self.path
            )
        self._connection.executescript(_SCHEMA)
        self._connection.execute(f"PRAGMA user_version={LAYOUT}")


def _written_ns(path: str) -> int:
    """Return when a database was written last, 0 where there is none."""
    found = 0
    for file in (path, f"{path}-wal"):
        with suppress(OSError):
            found = max(found, Path(file).stat().st_mtime_ns)
    return found
