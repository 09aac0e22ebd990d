"""Persistent state of a producer: content, its versions, and the writes it has acknowledged; in SQLite.

Everything is also in memory, where reads are served; changes are on disk once `commit` has returned, and in neither
place after `rollback`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from dataplane.database import Database, Layout, Synchronous
from dataplane.store import layout
from dataplane.store.errors import StoreError
from dataplane.store.layout import Form
from dataplane.store.names import key_of

_SCHEMA = """
CREATE TABLE IF NOT EXISTS segments (
    name BLOB NOT NULL, segment INTEGER NOT NULL,
    version INTEGER NOT NULL, freshness_ms INTEGER NOT NULL, writer INTEGER NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (name, segment)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS writes (write BLOB PRIMARY KEY, version INTEGER NOT NULL, time_ns INTEGER NOT NULL)
WITHOUT ROWID;
"""
# Two producers sharing a file would assign versions that the other does not know.
_LAYOUT = Layout(
    owner="the store",
    schema=_SCHEMA,
    version=1,
    error=StoreError,
    synchronous=Synchronous.FULL,
    busy_s=0,
    exclusive=True,
)

Key = tuple[bytes, int]
"""A name, as made by `key_of`, and a segment."""

SEGMENT_COST: Final = 256
"""Bytes of memory charged for a segment besides its content."""


@dataclass(frozen=True, slots=True)
class Item:
    """A stored segment; `writer` is the address that wrote it, 0 for the producer itself."""

    version: int
    freshness_ms: int
    writer: int
    content: bytes


@dataclass(frozen=True, slots=True)
class Write:
    """The version that a write produced, and when (UTC)."""

    version: int
    time_ns: int


@dataclass(slots=True)
class Blocks:
    """The blocks of a hash: the verified length of their value, and the number of names that use it."""

    length: int
    names: int = 0


class ContentDatabase:
    """One SQLite file, or `:memory:`, of one producer at a time; every failure is a StoreError that names the file."""

    def __init__(self, path: str) -> None:
        self.items: dict[Key, Item] = {}
        self.writes: dict[bytes, Write] = {}
        self.blocks: dict[bytes, Blocks] = {}
        """Values that do not fit one segment, by hash, as made by `key_of`."""
        self.nbytes = 0
        """Total size of all segments, including `SEGMENT_COST` for each."""
        self._segments: Counter[bytes] = Counter()
        self._items_before: list[tuple[Key, Item | None]] = []
        self._writes_before: list[tuple[bytes, Write | None]] = []
        self._database = Database(path, _LAYOUT)
        try:
            self._load()
        except BaseException:
            self._database.close()
            raise

    @property
    def names(self) -> int:
        """Number of names with content; a hash with blocks is one."""
        return len(self._segments)

    def has_name(self, name: bytes) -> bool:
        """Return whether a name has content."""
        return name in self._segments

    def put(self, key: Key, item: Item) -> None:
        """Store a segment."""
        self._database.write(
            "INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?, ?, ?)",
            (*key, item.version, item.freshness_ms, item.writer, item.content),
        )
        self._items_before.append((key, self.items.get(key)))
        self._have(key, item)

    def delete(self, key: Key) -> None:
        """Delete a segment."""
        self._database.write("DELETE FROM segments WHERE name = ? AND segment = ?", key)
        self._items_before.append((key, self.items.get(key)))
        self._have(key, None)

    def add_write(self, write: bytes, done: Write) -> None:
        """Remember a write."""
        self._database.write("INSERT OR REPLACE INTO writes VALUES (?, ?, ?)", (write, done.version, done.time_ns))
        self._writes_before.append((write, self.writes.get(write)))
        self.writes[write] = done

    def remove_write(self, write: bytes) -> None:
        """Forget a write."""
        self._database.write("DELETE FROM writes WHERE write = ?", (write,))
        self._writes_before.append((write, self.writes.pop(write, None)))

    def commit(self) -> bool:
        """Write all changes to disk; return whether there were any."""
        self._database.commit()
        changed = bool(self._items_before or self._writes_before)
        self._forget_before()
        return changed

    def rollback(self) -> None:
        """Restore the state of the last commit."""
        self._database.rollback()
        for key, item in reversed(self._items_before):
            self._have(key, item)
        for write, done in reversed(self._writes_before):
            if done is None:
                self.writes.pop(write, None)
            else:
                self.writes[write] = done
        self._forget_before()

    def close(self) -> None:
        """Close the file; uncommitted changes are lost."""
        self._database.close()

    def _load(self) -> None:
        for name, segment, *rest in self._database.query("SELECT * FROM segments"):
            self._have((name, segment), Item(*rest))
        for write, version, time_ns in self._database.query("SELECT * FROM writes ORDER BY time_ns"):
            self.writes[write] = Write(version, time_ns)

    def _forget_before(self) -> None:
        self._items_before.clear()
        self._writes_before.clear()

    def _have(self, key: Key, item: Item | None) -> None:
        """Set or delete a segment in memory, and update the totals."""
        before = self.items.pop(key, None)
        if before is not None:
            self._count(key, before, -1)
        if item is not None:
            self.items[key] = item
            self._count(key, item, 1)

    def _count(self, key: Key, item: Item, by: int) -> None:
        self.nbytes += by * (len(item.content) + SEGMENT_COST)
        self._segments[key[0]] += by
        if not self._segments[key[0]]:
            del self._segments[key[0]]
        preamble = layout.decode(item.content) if key[1] == 0 else None
        if preamble is not None and preamble.form is Form.BY_HASH:
            number = key_of(preamble.hash)
            blocks = self.blocks.setdefault(number, Blocks(preamble.length))
            blocks.names += by
            if not blocks.names:
                del self.blocks[number]
