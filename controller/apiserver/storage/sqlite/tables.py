"""The storage's tables in one SQLite file: current keys, history, leases; only SQL statements."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from controller.apiserver.storage.log import Happened
from controller.apiserver.storage.values import Change, Event, EventKind, Expected, Lease, Page, Put, Stored
from controller.common.errors import CompactedError, ConflictError, LeaseError, StorageError
from dataplane.database import Database, Layout, Synchronous

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS keys (
    key TEXT PRIMARY KEY, value BLOB NOT NULL, created INTEGER NOT NULL, modified INTEGER NOT NULL,
    version INTEGER NOT NULL, lease INTEGER
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS keys_of_leases ON keys (lease) WHERE lease IS NOT NULL;
CREATE TABLE IF NOT EXISTS history (
    revision INTEGER NOT NULL, key TEXT NOT NULL, value BLOB, created INTEGER, version INTEGER, lease INTEGER,
    PRIMARY KEY (revision, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS history_of_keys ON history (key, revision);
CREATE TABLE IF NOT EXISTS leases (number INTEGER PRIMARY KEY, ttl_s REAL NOT NULL);
CREATE TABLE IF NOT EXISTS revisions (name TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO revisions VALUES ('newest', 0), ('compacted', 0);
"""
LAYOUT: Final = Layout(
    owner="the storage",
    schema=_SCHEMA,
    version=1,
    error=StorageError,
    synchronous=Synchronous.FULL,
    exclusive=True,
)
_ALL: Final = 1 << 62


class Tables:
    """The tables; writes go between `begin` and `commit`, and a failure undoes all since `begin`."""

    def __init__(self, path: str, token: int | None = None) -> None:
        """With a fencing `token` the file is shared with others, whose lower tokens it refuses from now on."""
        self.database = Database(path, LAYOUT if token is None else replace(LAYOUT, exclusive=False, shared=True))
        self._token = token
        if token is not None:
            self._fence(token)
        self.writes = 0
        """Statements that changed something, committed or not."""
        self.newest, self.compacted = self._revision("newest"), self._revision("compacted")

    def leases(self) -> list[Lease]:
        """Return all leases that have not ended."""
        return [Lease(*row) for row in self.database.query("SELECT number, ttl_s FROM leases")]

    def commit(self) -> None:
        """Commit all writes to disk; raise StorageError, with nothing written, if another token is in force."""
        self._check_token()
        self._write("UPDATE revisions SET revision = ? WHERE name = 'newest'", (self.newest,))
        self.database.commit()

    def undo(self) -> None:
        """Roll back all writes since the last commit."""
        self.database.rollback()
        self.newest, self.compacted = self._revision("newest"), self._revision("compacted")

    def get(self, key: str, revision: int | None) -> Stored | None:
        """Return a key, current or at a revision."""
        if revision is None:
            rows = self.database.query(
                "SELECT key, value, created, modified, version, lease FROM keys WHERE key = ?", (key,)
            )
            return Stored(*rows[0]) if rows else None
        self._check(revision)
        rows = self.database.query(
            "SELECT key, value, created, revision, version, lease FROM history WHERE key = ? AND revision <= ?"
            " ORDER BY revision DESC LIMIT 1",
            (key, revision),
        )
        return Stored(*rows[0]) if rows and rows[0][1] is not None else None

    def scan(self, prefix: str, revision: int | None, after: str, limit: int | None) -> Page:
        """Return keys with a prefix, current or at a revision."""
        number = self.newest if revision is None else revision
        first, last = (max(prefix, after + "\0") if after else prefix), _successor(prefix)
        # One row more than asked for tells whether another page follows.
        parameters = (first, last, _ALL if limit is None else limit + 1)
        if number == self.newest:
            rows = self.database.query(
                "SELECT key, value, created, modified, version, lease FROM keys"
                " WHERE key >= ? AND (?2 IS NULL OR key < ?2) ORDER BY key LIMIT ?3",
                parameters,
            )
        else:
            self._check(number)
            rows = self.database.query(
                "SELECT key, value, created, revision, version, lease FROM history AS newer"
                " WHERE key >= ? AND (?2 IS NULL OR key < ?2) AND value IS NOT NULL AND revision ="
                " (SELECT max(revision) FROM history WHERE key = newer.key AND revision <= ?4) ORDER BY key LIMIT ?3",
                (*parameters, number),
            )
        items = tuple(Stored(*row) for row in rows)
        more = limit is not None and len(items) > limit
        return Page(items[:limit], number, more)

    def transact(self, changes: Iterable[Change], expected: Iterable[Expected]) -> Happened | None:
        """Make changes, uncommitted; return the events, None if nothing changed."""
        for condition in expected:
            current = self.get(condition.key, None)
            modified = 0 if current is None else current.modified
            if modified != condition.revision:
                raise ConflictError(condition.key, condition.revision, modified)
        wanted = list(changes)
        for change in wanted:
            if isinstance(change, Put) and change.lease is not None:
                self.check_lease(change.lease)
        events = [event for change in wanted if (event := self._change(change, self.newest + 1)) is not None]
        if not events:
            return None
        self.newest += 1
        return self.newest, tuple(events)

    def grant(self, ttl_s: float) -> Lease:
        """Create a lease, uncommitted."""
        lease = Lease(secrets.randbits(62) + 1, ttl_s)
        self._write("INSERT INTO leases VALUES (?, ?)", (lease.number, ttl_s))
        return lease

    def revoke(self, lease: int) -> Happened | None:
        """End a lease and delete its keys, uncommitted; return the events."""
        self._write("DELETE FROM leases WHERE number = ?", (lease,))
        rows = self.database.query("SELECT key FROM keys WHERE lease = ? ORDER BY key", (lease,))
        if not rows:
            return None
        self.newest += 1
        return self.newest, tuple(self._remove(key, self.newest) for (key,) in rows)

    def check_lease(self, lease: int) -> None:
        """Raise LeaseError for a lease that has ended."""
        if not self.database.query("SELECT 1 FROM leases WHERE number = ?", (lease,)):
            raise LeaseError(lease)

    def since(self, revision: int, prefix: str, most: int) -> tuple[list[Happened], int]:
        """Return events of keys with a prefix after a revision, and the revision reached: at most `most` later."""
        self._check(revision)
        last = min(revision + most, self.newest)
        rows = self.database.query(
            "SELECT revision, key, value, created, version, lease FROM history WHERE revision > ? AND revision <= ?"
            " AND key >= ? AND (?4 IS NULL OR key < ?4) ORDER BY revision, key",
            (revision, last, prefix, _successor(prefix)),
        )
        by_revision: dict[int, list[Event]] = {}
        for number, key, value, created, version, lease in rows:
            stored = None if value is None else Stored(key, value, created, number, version, lease)
            kind = EventKind.DELETE if stored is None else EventKind.PUT
            by_revision.setdefault(number, []).append(Event(kind, key, number, stored))
        return [(number, tuple(events)) for number, events in by_revision.items()], last

    def compact(self, revision: int) -> None:
        """Drop history from before a revision, uncommitted."""
        self._check(revision)
        self._write(
            "DELETE FROM history WHERE revision <= ?1 AND (value IS NULL OR revision <"
            " (SELECT max(revision) FROM history AS newer WHERE newer.key = history.key AND newer.revision <= ?1))",
            (revision,),
        )
        self._write("UPDATE revisions SET revision = ? WHERE name = 'compacted'", (revision,))
        self.compacted = revision

    def _check_token(self) -> None:
        if self._token is not None and self._revision("token") != self._token:
            raise StorageError(f"{self.database.path}: another API server is active: token {self._token} is not")

    def _fence(self, token: int) -> None:
        with self.database.transaction() as connection:
            row = connection.execute("SELECT revision FROM revisions WHERE name = 'token'").fetchone()
            if row is not None and row[0] > token:
                path = self.database.path
                raise StorageError(f"{path}: another API server is active: token {token} is lower than {row[0]}")
            connection.execute("INSERT OR REPLACE INTO revisions VALUES ('token', ?)", (token,))

    def _write(self, statement: str, parameters: tuple[object, ...]) -> None:
        self._check_token()  # before a statement fails for another reason: what is known here is old
        self.writes += 1
        self.database.write(statement, parameters)

    def _check(self, revision: int) -> None:
        if revision < self.compacted:
            raise CompactedError(revision, self.compacted)
        if revision > self.newest:
            raise StorageError(f"revision {revision} is in the future, the newest is {self.newest}")

    def _change(self, change: Change, revision: int) -> Event | None:
        before = self.get(change.key, None)
        if not isinstance(change, Put):
            return None if before is None else self._remove(change.key, revision)
        created, version = (revision, 1) if before is None else (before.created, before.version + 1)
        stored = Stored(change.key, change.value, created, revision, version, change.lease)
        self._write(
            "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?, ?)",
            (stored.key, stored.value, created, revision, version, stored.lease),
        )
        self._write(
            "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?)",
            (revision, stored.key, stored.value, created, version, stored.lease),
        )
        return Event(EventKind.PUT, stored.key, revision, stored)

    def _remove(self, key: str, revision: int) -> Event:
        self._write("DELETE FROM keys WHERE key = ?", (key,))
        self._write("INSERT INTO history VALUES (?, ?, NULL, NULL, NULL, NULL)", (revision, key))
        return Event(EventKind.DELETE, key, revision)

    def _revision(self, name: str) -> int:
        [(revision,)] = self.database.query("SELECT revision FROM revisions WHERE name = ?", (name,))
        return int(revision)


def _successor(prefix: str) -> str | None:
    """Return the first text after all those with a prefix, in order of code points; None if there is none."""
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1])
        if code < 0x10FFFF:
            following = 0xE000 if code == 0xD7FF else code + 1  # surrogates are not characters
            return prefix[: end - 1] + chr(following)
    return None
