"""SQLite as this project uses it: one file, one connection, WAL, and every failure an error that names the file.

Two processes with one file would overwrite each other's changes: a lock file next to it keeps the second out, unless
its layout is made for several. A reader takes no lock, and changes nothing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from urllib.parse import quote

from dataplane.errors import MillraceError
from dataplane.file_lock import FileLock, HeldError

IN_MEMORY: Final = ":memory:"
_RIGHTS: Final = 0o600
"""Mode of a file created here; SQLite gives its companion files the same."""

Migration = Callable[[sqlite3.Connection], None]
"""Migrates tables of an older layout to the newest, inside a transaction."""


class Synchronous(StrEnum):
    """Durability of commits; see SQLite's PRAGMA synchronous."""

    NORMAL = "NORMAL"
    """Survives a killed process; a power failure may undo the last commits, each as a whole."""
    FULL = "FULL"
    """Survives a power failure, too: a commit returns when it is on the disk."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Contents of a file, and how it is kept; `version` is stored in its user_version."""

    owner: str
    """Owner of the file in error texts: "the store"."""
    schema: str
    """Statements that create what is missing, each with IF NOT EXISTS."""
    version: int
    error: type[MillraceError]
    """Error type of every failure."""
    synchronous: Synchronous = Synchronous.NORMAL
    busy_s: float = 2.0
    """Maximum wait of a write for a reader's transaction."""
    exclusive: bool = False
    """True if no other process may even read the file while one has it."""
    shared: bool = False
    """True if several processes write the file, in transactions; no lock file keeps the others out."""
    migrations: Mapping[int, Migration] = field(default_factory=dict[int, Migration])
    """Migrations by their source version; a file of any other version is refused."""


class Database:
    """One file, or `:memory:`; use it from one thread at a time. Every method raises the layout's error."""

    def __init__(self, path: str, layout: Layout, *, read_only: bool = False) -> None:
        """Open a file that no other process has, create or migrate its tables; a new file is readable only by its user.

        With `read_only` another process may have it; nothing is created, migrated or written.
        """
        self.path, self._layout, self._read_only = path, layout, read_only
        self._is_written = False
        is_own = not (read_only or layout.shared or path == IN_MEMORY)
        self._lock = self._take() if is_own else None
        with ExitStack() as undo:
            undo.callback(self._release)
            if not read_only:
                _create(path)
            with self.errors("open"):
                self._connection = self._connect()
                undo.callback(self._connection.close)
                self._prepare()
            undo.pop_all()

    def close(self) -> None:
        """Close the file and release its lock; uncommitted changes are lost. Idempotent."""
        self._connection.close()
        self._release()

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

        If one fails on a full disk all of them may be lost: then nothing is written or committed before `rollback`.
        """
        with self.errors("write"):
            if not self._is_written:
                self._connection.execute("BEGIN IMMEDIATE")
                self._is_written = True
            self._refuse_if_lost()
            self._connection.execute(statement, parameters)

    def commit(self) -> None:
        """Make all writes take effect; `Layout.synchronous` determines their durability."""
        if self._is_written:
            with self.errors("write"):
                self._refuse_if_lost()
                self._connection.execute("COMMIT")
            self._is_written = False

    def rollback(self) -> None:
        """Undo all writes since the last `commit`, also after a failed one."""
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
        """Roll back unless SQLite has already done so itself, as it does when the disk is full."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _refuse_if_lost(self) -> None:
        if not self._connection.in_transaction:
            raise sqlite3.OperationalError("earlier writes were rolled back when a write failed")

    def _connect(self) -> sqlite3.Connection:
        # `ro` cannot read a file whose owner was killed; `rw` does not create a file either.
        path = f"file:{quote(self.path)}?mode=rw" if self._read_only else self.path
        return sqlite3.connect(
            path, uri=self._read_only, timeout=self._layout.busy_s, isolation_level=None, check_same_thread=False
        )

    def _take(self) -> FileLock:
        try:
            return FileLock(f"{os.path.realpath(self.path)}.lock")
        except HeldError as error:
            raise self._layout.error(f"{self.path}: cannot open {self._layout.owner}: {error}") from None
        except OSError as error:
            problem = f"no lock file next to it: {error.strerror or error}"
            raise self._layout.error(f"{self.path}: cannot open {self._layout.owner}: {problem}") from error

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _prepare(self) -> None:
        layout = self._layout
        if self._read_only:
            self._connection.execute("PRAGMA query_only=ON")
            self._refuse_version(layout.version)
            return
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
        else:
            self._refuse_version(0, layout.version)
        self._connection.executescript(layout.schema)
        self._connection.execute(f"PRAGMA user_version={layout.version}")

    def _refuse_version(self, *versions: int) -> None:
        layout = self._layout
        [(version,)] = self._connection.execute("PRAGMA user_version").fetchall()
        if version not in versions:
            raise layout.error(
                f"{self.path}: {layout.owner} has layout {version}, this version needs {layout.version}: move it away"
            )


def _create(path: str) -> None:
    """Create a file readable only by its user, if there is none; SQLite reports any problem with it.

    An existing one is not opened: closing it again would drop this process's locks on it (POSIX).
    """
    if path != IN_MEMORY:
        with suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, _RIGHTS))
