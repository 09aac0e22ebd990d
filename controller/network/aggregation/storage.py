"""Storage of jobs across restarts of the controller: an SQLite file, or what a pair shares.

Keys and values; each change is one transaction, durable before it returns, and made before any switch is written and
any worker told. A controller that is killed in between finds at its next start what it was about to do.
"""

from __future__ import annotations

import logging
import os
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from controller.common.errors import JobError, StorageError
from controller.common.standby.lease import Lease
from dataplane.database import IN_MEMORY, Database, Layout, Synchronous
from dataplane.malformed import MALFORMED
from dataplane.rpc.addresses import is_unix, target_of
from dataplane.rpc.own_folder import own_folders, prepare

LOGGER: Final = logging.getLogger("millrace.jobs")

T = TypeVar("T")

LAYOUT: Final = 1
"""Kept in the file's user_version; a file of any other layout is refused."""
_SCHEMA: Final = "CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;"
_INDEX: Final = "jobs"
_AGAIN_S: Final = 0.02


class JobStorage(ABC):
    """Keys and values of a controller's jobs."""

    name: str
    """Name of the storage in messages."""
    on_wait: Callable[[int], None] | None = None
    """Gets the ns that a change has taken, in which the caller's event loop has heard nobody."""

    @abstractmethod
    def load(self) -> dict[str, bytes]:
        """Return everything; raise ControllerError."""

    @abstractmethod
    def save(self, changes: Mapping[str, bytes | None]) -> None:
        """Set keys, or remove those that are None, all or none; raise LostLeaseError if another controller is active.

        A storage that fails is logged once: jobs continue, and what is missing is saved with the next change.
        """

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Tell the time of a change."""
        began_ns = time.monotonic_ns()
        try:
            yield
        finally:
            if self.on_wait is not None:
                self.on_wait(time.monotonic_ns() - began_ns)

    def close(self) -> None:  # noqa: B027 - a storage that is not its own need not be closed
        """Close the storage."""


class FileStorage(JobStorage):
    """An SQLite file that only this controller has."""

    def __init__(self, path: str) -> None:
        """Open or create the file; raise JobError naming it."""
        layout = Layout("the job database", _SCHEMA, LAYOUT, JobError, synchronous=Synchronous.FULL)
        self.name, self._database = path, Database(path, layout)
        self._unsaved: dict[str, bytes | None] = {}

    def load(self) -> dict[str, bytes]:
        """Return everything; raise JobError naming file and cause."""
        problems = [row[0] for row in self._database.query("PRAGMA integrity_check(1)") if row[0] != "ok"]
        if problems:
            raise JobError(f"{self.name}: the job database is damaged: {' '.join(problems[0].split())}: move it away")
        return dict(self._database.query("SELECT key, value FROM entries"))

    def save(self, changes: Mapping[str, bytes | None]) -> None:
        """Write a transaction that survives a power failure."""
        with self._waiting():
            self._save({**self._unsaved, **changes})

    def _save(self, pending: Mapping[str, bytes | None]) -> None:
        try:
            with self._database.transaction() as connection:
                for key, value in pending.items():
                    if value is None:
                        connection.execute("DELETE FROM entries WHERE key = ?", (key,))
                    else:
                        connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?)", (key, value))
        except JobError as error:
            if not self._unsaved:
                LOGGER.warning("%s: jobs would not survive a restart of the controller", error)
            self._unsaved = dict(pending)
        else:
            if self._unsaved:
                LOGGER.warning("%s: jobs are kept again", self.name)
            self._unsaved = {}

    def close(self) -> None:
        """Close the file."""
        self._database.close()


class PairStorage(JobStorage):
    """The storage of a pair of controllers: written by the active one, read by the one that takes over.

    Entries are in numbered slots, as the storage has no deletion, and an index says which key is in which. They are
    compressed: etcd takes 1.5 MB at a time, and a job may have 4,096 workers. A transaction compares the fencing token.
    """

    def __init__(self, lease: Lease) -> None:
        self.name, self._lease = f"lease {lease.name}", lease
        self._slots: dict[str, int] = {}

    def load(self) -> dict[str, bytes]:
        """Return everything; raise LostLeaseError, JobError for an invalid index."""
        index = self._until_held(lambda: self._lease.load(_INDEX))
        self._slots = {} if index is None else thaw(self.name, _INDEX, index.value, dict[str, int])
        entries = dict[str, bytes]()
        for key, slot in self._slots.items():
            entry = self._until_held(partial(self._lease.load, _slot(slot)))
            if entry is None:
                raise JobError(f"{self.name}: {key} is missing")
            entries[key] = self._inflated(key, entry.value)
        return entries

    def save(self, changes: Mapping[str, bytes | None]) -> None:
        """Write a transaction; the storage may be away for a moment."""
        slots = {key: slot for key, slot in self._slots.items() if changes.get(key, b"") is not None}
        for key, value in changes.items():
            if value is not None and key not in slots:
                used = set(slots.values())
                slots[key] = next(slot for slot in range(len(used) + 1) if slot not in used)
        values = {_slot(slots[key]): zlib.compress(value) for key, value in changes.items() if value is not None}
        if slots != self._slots:
            values[_INDEX] = freeze(slots)
        if values:
            with self._waiting():
                self._until_held(lambda: self._lease.save(values, durable=True))
        self._slots = slots

    def _inflated(self, key: str, value: bytes) -> bytes:
        try:
            return zlib.decompress(value)
        except zlib.error as error:
            raise JobError(f"{self.name}: cannot decode {key}: {error}") from error

    def _until_held(self, call: Callable[[], T]) -> T:
        """Return a call's result, trying again for as long as the lease is held; then raise LostLeaseError."""
        while True:
            try:
                return call()
            except StorageError:
                self._lease.check()
                time.sleep(_AGAIN_S)


def freeze(value: object) -> bytes:
    """Return the stored form of a value."""
    return msgspec.msgpack.encode(value)


def thaw(name: str, key: str, data: object, schema: type[T]) -> T:
    """Return a stored value; raise JobError naming storage and key if it is invalid."""
    if not isinstance(data, bytes):
        raise JobError(f"{name}: {key} is a {type(data).__name__}, not bytes: move it away")
    try:
        return msgspec.msgpack.decode(data, type=schema)
    except MALFORMED as error:
        raise JobError(f"{name}: cannot decode {key}: {error}: move it away") from error


def default_database(listen: str, state: str | None = None) -> str:
    """Return the file for the jobs of a service at an address, if the settings name none.

    Beside a UNIX socket, whose workers end with this machine, too; else in `state`, the folder that a service manager
    gives ($STATE_DIRECTORY), or in the user's own folder. In memory for a port that is free: the next start has
    another. Raise JobError for a folder that cannot be used.
    """
    if is_unix(listen):
        return f"{listen.removeprefix('unix:').removeprefix('//').removesuffix('.sock')}.db"
    port = target_of(listen).rpartition(":")[2]
    if port == "0":
        return IN_MEMORY
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0] if state is None else state
    folder = Path(given) if given else own_folders()[0]
    problem = None if given else prepare(folder)
    if problem is not None:
        raise JobError(f"jobs.database: {problem}")
    return str(folder / f"jobs-{port}.db")


def _slot(number: int) -> str:
    return f"{_INDEX}/{number}"
