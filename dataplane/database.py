"""SQLite as this project uses it: one file, one connection, WAL, and every failure an error that names the file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from dataplane.errors import MillraceError

IN_MEMORY: Final = ":memory:"
_RIGHTS: Final = 0o600
"""Of a file that is made here; SQLite gives those beside it the same."""

Migration = Callable[[sqlite3.Connection], None]
"""Changes tables of an older layout into those of the newest, inside a transaction."""


class Synchronous(StrEnum):
    """What of a commit survives; see SQLite's PRAGMA synchronous."""

    NORMAL = "NORMAL"
    """Everything if the process is killed; without power the last commits may be undone, each as a whole."""
    FULL = "FULL"
    """Everything, also without power: a commit returns when it is on the disk."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a file holds, and how it is kept; `version` stands in its user_version."""

    owner: str
    """Whose file it is, in errors: "the store"."""
    schema: str
    """Statements that make what is not there, each with IF NOT EXISTS."""
    version: int
    error: type[MillraceError]
    """What every failure is raised as."""
    synchronous: Synchronous = Synchronous.NORMAL
    busy_s: float = 2.0
    """How long a write waits for another process's transaction."""
    exclusive: bool = False
    """Whether no other connection may have the file while this one does."""
    migrations: Mapping[int, Migration] = field(default_factory=dict[int, Migration])
    """By the version that they come from; a file of any other version is refused."""


class Database:
    """One file, or `:memory:`; use it from one thread at a time. Every method raises the layout's error."""

    def __init__(self, path: str, layout: Layout) -> None:
        """Open a file, make or migrate its tables; only its user may read one that is made."""
        self.path, self._layout = path, layout
        self._is_written = False
        _create(path)
        with self.errors("open"):
            self._connection = sqlite3.connect(
                path, timeout=layout.busy_s, isolation_level=None, check_same_thread=False
            )
        try:
            with self.errors("open"):
                self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file; what was not committed is lost. Calling it again does nothing."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run statements that take effect together or not at all."""
        with self.errors("write"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._take_back()
                raise

    def write(self, statement: str, parameters: tuple[object, ...] = ()) -> None:
        """Run a statement that takes effect at the next `commit`, together with all since the last one.

        Where one fails on a full disk all of them may be gone: then nothing is written or committed before `rollback`.
        """
        with self.errors("write"):
            if not self._is_written:
                self._connection.execute("BEGIN IMMEDIATE")
                self._is_written = True
            self._refuse_if_lost()
            self._connection.execute(statement, parameters)

    def commit(self) -> None:
        """Have all that was written take effect; how safe it is then, `Layout.synchronous` says."""
        if self._is_written:
            with self.errors("write"):
                self._refuse_if_lost()
                self._connection.execute("COMMIT")
            self._is_written = False

    def rollback(self) -> None:
        """Take back all that was written since the last `commit`; also after one that failed."""
        with self.errors("write"):
            self._take_back()
        self._is_written = False

    def query(self, statement: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a SELECT."""
        with self.errors("read"):
            return self._connection.execute(statement, parameters).fetchall()

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Turn SQLite's errors into the layout's."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._layout.error(f"{self.path}: cannot {doing} {self._layout.owner}: {error}") from error

    def _take_back(self) -> None:
        """Roll back what SQLite has not rolled back by itself, as it does when the disk is full."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _refuse_if_lost(self) -> None:
        if not self._connection.in_transaction:
            raise sqlite3.OperationalError("what was written before was taken back when a write failed")

    def _prepare(self) -> None:
        layout = self._layout
        if layout.exclusive:
            self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={layout.synchronous}")
        [(version,)] = self._connection.execute("PRAGMA user_version").fetchall()
        migrate = layout.migrations.get(version)
        if migrate is not None:
            with self.transaction() as connection:
                migrate(connection)
                connection.execute(f"PRAGMA user_version={layout.version}")
        elif version not in (0, layout.version):
            raise layout.error(
                f"{self.path}: {layout.owner} has layout {version}, this version wants {layout.version}: move it away"
            )
        self._connection.executescript(layout.schema)
        self._connection.execute(f"PRAGMA user_version={layout.version}")


def _create(path: str) -> None:
    """Make a file that only its user may read, if there is none; what is wrong with it SQLite says.

    One that exists is not opened: closing it again would end this process's locks of it (POSIX).
    """
    if path != IN_MEMORY:
        with suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, _RIGHTS))
