"""SQLite as this project uses it: one file, one connection, WAL, and every failure an error that names the file.

Of two processes with one file each would overwrite what the other knows nothing of: the second is refused, by a lock
beside the file. Who only reads takes none, and changes nothing.
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
    """How long a write waits for a reader's transaction."""
    exclusive: bool = False
    """Whether nobody may even read the file while a process has it."""
    migrations: Mapping[int, Migration] = field(default_factory=dict[int, Migration])
    """By the version that they come from; a file of any other version is refused."""


class Database:
    """One file, or `:memory:`; use it from one thread at a time. Every method raises the layout's error."""

    def __init__(self, path: str, layout: Layout, *, read_only: bool = False) -> None:
        """Open a file that no other process has, make or migrate its tables; only its user may read one that is made.

        With `read_only` another process may have it; nothing is made, migrated or written.
        """
        self.path, self._layout, self._read_only = path, layout, read_only
        self._is_written = False
        self._lock = None if read_only or path == IN_MEMORY else self._take()
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
        """Close the file and let others have it; what was not committed is lost. Calling it again does nothing."""
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

    def _connect(self) -> sqlite3.Connection:
        # A reader's own mode would be `ro`, which cannot read a file whose owner was killed: rw makes no file either.
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
            problem = f"no lock beside it: {error.strerror or error}"
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

    def _refuse_version(self, *known: int) -> None:
        layout = self._layout
        [(version,)] = self._connection.execute("PRAGMA user_version").fetchall()
        if version not in known:
            raise layout.error(
                f"{self.path}: {layout.owner} has layout {version}, this version wants {layout.version}: move it away"
            )


def _create(path: str) -> None:
    """Make a file that only its user may read, if there is none; what is wrong with it SQLite says.

    One that exists is not opened: closing it again would end this process's locks of it (POSIX).
    """
    if path != IN_MEMORY:
        with suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, _RIGHTS))
