"""What a producer must not forget: content, its versions, and the writes that it has acknowledged; in SQLite.

Everything is in memory, too, from where it is read; what changes is on the disk once `commit` has returned.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataplane.database import Database, Layout, Synchronous
from dataplane.store.errors import StoreError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS segments (
    name BLOB NOT NULL, segment INTEGER NOT NULL,
    version INTEGER NOT NULL, freshness_ms INTEGER NOT NULL, writer INTEGER NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (name, segment)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS writes (write BLOB PRIMARY KEY, version INTEGER NOT NULL, time_ns INTEGER NOT NULL)
WITHOUT ROWID;
"""
# Of two producers with one file each would give versions that the other knows nothing of.
_LAYOUT = Layout(
    owner="the store",
    schema=_SCHEMA,
    version=1,
    error=StoreError,
    synchronous=Synchronous.FULL,
    busy_s=0,
    exclusive=True,
)

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


class ContentDatabase:
    """One SQLite file, or `:memory:`, of one producer at a time; every failure is a StoreError that names the file."""

    def __init__(self, path: str) -> None:
        self.items: dict[Key, Item] = {}
        self.writes: dict[bytes, Write] = {}
        self._database = Database(path, _LAYOUT)
        try:
            self._load()
        except BaseException:
            self._database.close()
            raise

    def put(self, key: Key, item: Item) -> None:
        """Have a segment from now on."""
        self._database.write(
            "INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?, ?, ?)",
            (_bytes(key[0]), key[1], item.version, item.freshness_ms, item.writer, item.content),
        )
        self.items[key] = item

    def delete(self, key: Key) -> None:
        """Have a segment no more."""
        self._database.write("DELETE FROM segments WHERE name = ? AND segment = ?", (_bytes(key[0]), key[1]))
        self.items.pop(key, None)

    def add_write(self, write: bytes, done: Write) -> None:
        """Know a write again."""
        self._database.write("INSERT OR REPLACE INTO writes VALUES (?, ?, ?)", (write, done.version, done.time_ns))
        self.writes[write] = done

    def remove_write(self, write: bytes) -> None:
        """Know a write no more."""
        self._database.write("DELETE FROM writes WHERE write = ?", (write,))
        self.writes.pop(write, None)

    def commit(self) -> None:
        """Return when all that was changed is on the disk."""
        self._database.commit()

    def close(self) -> None:
        """Close the file; what was not committed is lost."""
        self._database.close()

    def _load(self) -> None:
        for name, segment, *rest in self._database.query("SELECT * FROM segments"):
            self.items[int.from_bytes(name, "big"), segment] = Item(*rest)
        for write, version, time_ns in self._database.query("SELECT * FROM writes ORDER BY time_ns"):
            self.writes[write] = Write(version, time_ns)


def _bytes(name: int) -> bytes:
    return name.to_bytes(16, "big")
