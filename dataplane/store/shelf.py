"""What a producer must not forget: content, its versions, and the writes that it has acknowledged; in SQLite.

Everything is in memory, too, from where it is read; what changes is on the disk once `commit` has returned.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dataplane.store.errors import StoreError

LAYOUT = 1
"""Kept in the file's user_version."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS segments (
    name BLOB NOT NULL, segment INTEGER NOT NULL,
    version INTEGER NOT NULL, freshness_ms INTEGER NOT NULL, writer INTEGER NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (name, segment)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS writes (write BLOB PRIMARY KEY, version INTEGER NOT NULL, time_ns INTEGER NOT NULL)
WITHOUT ROWID;
"""

Key = tuple[int, int]
"""A name's hash and a segment."""


@dataclass(frozen=True, slots=True)
class Item:
    """A segment as it is kept; `writer` is the address that wrote it, 0 for the producer itself."""

    version: int
    freshness_ms: int
    writer: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Write:
    """The version that a write became, and when (UTC)."""

    version: int
    time_ns: int


class Shelf:
    """One SQLite file, or `:memory:`, of one producer at a time; every failure is a StoreError that names the file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.items: dict[Key, Item] = {}
        self.writes: dict[bytes, Write] = {}
        self._is_open = False
        with self._errors("open"):
            self._connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            with self._errors("open"):
                self._load()
        except BaseException:
            self._connection.close()
            raise

    def keep(self, key: Key, item: Item) -> None:
        """Have a segment from now on."""
        self._execute(
            "INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?, ?, ?)",
            (_bytes(key[0]), key[1], item.version, item.freshness_ms, item.writer, item.content),
        )
        self.items[key] = item

    def drop(self, key: Key) -> None:
        """Have a segment no more."""
        self._execute("DELETE FROM segments WHERE name = ? AND segment = ?", (_bytes(key[0]), key[1]))
        self.items.pop(key, None)

    def remember(self, write: bytes, done: Write) -> None:
        """Know a write again."""
        self._execute("INSERT OR REPLACE INTO writes VALUES (?, ?, ?)", (write, done.version, done.time_ns))
        self.writes[write] = done

    def forget(self, write: bytes) -> None:
        """Know a write no more."""
        self._execute("DELETE FROM writes WHERE write = ?", (write,))
        self.writes.pop(write, None)

    def commit(self) -> None:
        """Return when all that was changed is on the disk."""
        if self._is_open:
            with self._errors("write"):
                self._connection.execute("COMMIT")
            self._is_open = False

    def close(self) -> None:
        """Close the file; what was not committed is lost."""
        self._connection.close()

    def _execute(self, statement: str, parameters: tuple[object, ...]) -> None:
        with self._errors("write"):
            if not self._is_open:
                self._connection.execute("BEGIN")
                self._is_open = True
            self._connection.execute(statement, parameters)

    def _load(self) -> None:
        # Of two producers with one file each would give versions that the other knows nothing of.
        self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        ((layout,),) = self._connection.execute("PRAGMA user_version").fetchall()
        if layout not in (0, LAYOUT):
            raise StoreError(f"{self.path}: the store has layout {layout}, this version wants {LAYOUT}: move it away")
        self._connection.executescript(_SCHEMA)
        self._connection.execute(f"PRAGMA user_version={LAYOUT}")
        for name, segment, *rest in self._connection.execute("SELECT * FROM segments"):
            self.items[int.from_bytes(name, "big"), segment] = Item(*rest)
        for write, version, time_ns in self._connection.execute("SELECT * FROM writes ORDER BY time_ns"):
            self.writes[write] = Write(version, time_ns)

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"{self.path}: cannot {doing} the store: {error}") from error


def _bytes(name: int) -> bytes:
    return name.to_bytes(16, "big")
