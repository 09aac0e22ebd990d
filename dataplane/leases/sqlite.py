"""Leases in an SQLite file that the processes of one machine share."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final

from dataplane.database import Database, Layout, Synchronous
from dataplane.errors import MillraceError
from dataplane.leases.storage import ABSENT, Entry, LeaseStorage

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS newest (only INTEGER PRIMARY KEY CHECK (only = 0), revision INTEGER NOT NULL);
INSERT OR IGNORE INTO newest VALUES (0, 0);
"""


class SqliteLeases(LeaseStorage):
    """See `LeaseStorage`; for several threads. Commits survive a killed process."""

    def __init__(self, path: str, timeout_s: float, error: type[MillraceError]) -> None:
        """Open or create the file; wait at most `timeout_s` for another process's transaction."""
        layout = Layout("the lease", _SCHEMA, 1, error, busy_s=timeout_s, shared=True)
        self._database = Database(path, layout)
        self._lock = threading.Lock()

    def read(self, keys: Sequence[str], *, after: int = 0) -> dict[str, Entry]:
        """Return the keys that exist and have changed after a revision."""
        # One statement, so that all rows are of one moment.
        places = ", ".join("?" * len(keys))
        statement = f"SELECT key, value, revision FROM keys WHERE key IN ({places}) AND revision > ?"  # noqa: S608
        with self._lock:
            rows = self._database.query(statement, (*keys, after))
        return {key: Entry(value, revision) for key, value, revision in rows}

    def below(self, prefix: str) -> dict[str, Entry]:
        """Return all keys that begin with a prefix, as of one moment."""
        statement = "SELECT key, value, revision FROM keys WHERE substr(key, 1, ?) = ?"
        with self._lock:
            rows = self._database.query(statement, (len(prefix), prefix))
        return {key: Entry(value, revision) for key, value, revision in rows}

    def write(self, changes: Mapping[str, bytes], expected: Mapping[str, int], *, durable: bool = False) -> int | None:
        """Set keys, all or none, if the `expected` ones are at these revisions."""
        with self._lock:
            # Renewals may be lost in a power failure, tokens may not: a switch would refuse one that it has seen.
            self._database.query(f"PRAGMA synchronous={Synchronous.FULL if durable else Synchronous.NORMAL}")
            return self._write(changes, expected)

    def _write(self, changes: Mapping[str, bytes], expected: Mapping[str, int]) -> int | None:
        with self._database.transaction() as connection:
            for key, revision in expected.items():
                row = connection.execute("SELECT revision FROM keys WHERE key = ?", (key,)).fetchone()
                if (ABSENT if row is None else row[0]) != revision:
                    return None
            [revision] = connection.execute("UPDATE newest SET revision = revision + 1 RETURNING revision").fetchone()
            connection.executemany(
                "INSERT OR REPLACE INTO keys VALUES (?, ?, ?)",
                [(key, value, revision) for key, value in changes.items()],
            )
            return int(revision)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()
