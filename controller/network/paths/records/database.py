"""The path server's database: its tables, and migration of files of an older layout."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from controller.common.errors import PathError
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.records.codec import freeze, thaw
from dataplane.database import Database, Layout


def to_utc(connection: sqlite3.Connection, written_ns: int) -> None:
    """Convert times of the machine's monotonic clock to UTC; call it inside a transaction.

    The newest row is assumed to be from the file's last write, `written_ns`, and all others keep their distance before
    it. The times of rows from before a restart of the machine are unknown: none gets a later time than that.
    """
    shift_ns = written_ns - _newest_ns(connection)
    connection.execute("UPDATE records SET received_ns = min(received_ns + ?, ?)", (shift_ns, written_ns))
    connection.execute("UPDATE routes SET since_ns = min(since_ns + ?, ?)", (shift_ns, written_ns))
    for key, time_ns, stored in connection.execute("SELECT id, time_ns, decision FROM decisions").fetchall():
        then_ns = min(time_ns + shift_ns, written_ns)
        decision = freeze(replace(thaw(stored, Decision), time_ns=then_ns))
        connection.execute("UPDATE decisions SET time_ns = ?, decision = ? WHERE id = ?", (then_ns, decision, key))


def _newest_ns(connection: sqlite3.Connection) -> int:
    """Return the monotonic clock's time of the last write."""
    newest = (
        connection.execute(f"SELECT {column} FROM {table} ORDER BY id DESC LIMIT 1").fetchone()  # noqa: S608 - constants
        for table, column in (("records", "received_ns"), ("decisions", "time_ns"))
    )
    return max((row[0] for row in newest if row is not None), default=0)


LOGGER = logging.getLogger("millrace.paths")

BUSY_S = 2.0
"""Time that a write waits for another process's transaction."""

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
CREATE TABLE IF NOT EXISTS pins (
    flow BLOB PRIMARY KEY, switches BLOB NOT NULL, since_ns INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS drains (element TEXT PRIMARY KEY, drain BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS weighted (only INTEGER PRIMARY KEY CHECK (only = 0), routes BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS versions (only INTEGER PRIMARY KEY CHECK (only = 0), version INTEGER NOT NULL);
"""


def open_path_database(path: str) -> Database:
    """Return the path server's database in a file, created or migrated; raise PathError naming the file."""
    written_ns = _written_ns(path)

    def migrate(connection: sqlite3.Connection) -> None:
        to_utc(connection, written_ns)
        LOGGER.warning("%s: times converted from the machine's own clock to UTC, as closely as possible", path)

    return Database(
        path,
        Layout(
            owner="the path server's database",
            schema=_SCHEMA,
            version=LAYOUT,
            error=PathError,
            busy_s=BUSY_S,
            migrations={_MONOTONIC_LAYOUT: migrate},
        ),
    )


def _written_ns(path: str) -> int:
    """Return when a database was written last, 0 where there is none."""
    written_ns = 0
    for file in (path, f"{path}-wal"):
        with suppress(OSError):
            written_ns = max(written_ns, Path(file).stat().st_mtime_ns)
    return written_ns
