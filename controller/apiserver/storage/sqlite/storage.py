"""The storage in one SQLite file, for the one process that has it open, or of a pair for the active one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Final, Self

from controller.apiserver.storage.base import Storage
from controller.apiserver.storage.log import Happened, RecentEvents
from controller.apiserver.storage.sqlite.tables import Tables
from controller.apiserver.storage.sqlite.worker import MOST_WAITING, Worker
from controller.apiserver.storage.values import (
    Change,
    Event,
    Expected,
    Lease,
    Page,
    Stored,
    check_key,
    check_transaction,
)
from controller.common.errors import LeaseError, StorageError

_RECENT: Final = 8192
"""Revisions kept in memory for watches."""
_READ_AT_ONCE: Final = 1024
"""Revisions that a lagging watch reads from the file at a time."""
SHORTEST_LEASE_S: Final = 1.0


class SqliteStorage(Storage):
    """See `Storage`; created by `open`, for one event loop.

    A lease that outlives the process gets its full duration again from the next `open` on.
    """

    def __init__(self, tables: Tables) -> None:
        self._loop = asyncio.get_running_loop()
        self._recent = RecentEvents(tables.newest, _RECENT)
        self._leases = {lease.number: lease for lease in tables.leases()}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._worker = Worker(tables, self._committed)
        for lease in self._leases.values():
            self._start(lease)

    @classmethod
    async def open(cls, path: str, token: int | None = None) -> Self:
        """Open or create a file; raise StorageError if that fails or another process has it.

        With a fencing `token` other processes may have it, too: those with a lower token can no longer write.
        """
        return cls(await asyncio.to_thread(Tables, path, token))

    most_waiting = MOST_WAITING

    @property
    def waiting(self) -> int:
        """Requests waiting for the thread that has the file."""
        return self._worker.waiting

    async def revision(self) -> int:
        """Return the newest revision."""
        return int(await self._worker.read(lambda tables: tables.newest))

    async def get(self, key: str, *, revision: int | None = None) -> Stored | None:
        """Return a key, current or at a revision."""
        check_key(key)
        stored: Stored | None = await self._worker.read(lambda tables: tables.get(key, revision))
        return stored

    async def get_all(self, keys: Sequence[str]) -> dict[str, Stored]:
        """Return those of several keys that exist, all of one revision."""
        for key in keys:
            check_key(key)

        def work(tables: Tables) -> dict[str, Stored]:
            return {key: stored for key in keys if (stored := tables.get(key, None)) is not None}

        existing: dict[str, Stored] = await self._worker.read(work)
        return existing

    async def scan(
        self, prefix: str, *, revision: int | None = None, after: str = "", limit: int | None = None
    ) -> Page:
        """Return keys with a prefix."""
        page: Page = await self._worker.read(lambda tables: tables.scan(prefix, revision, after, limit))
        return page

    async def transact(self, changes: tuple[Change, ...], *, expected: tuple[Expected, ...] = ()) -> int:
        """Make changes, all or none."""
        check_transaction(expected, changes)

        def work(tables: Tables) -> tuple[int, Happened | None]:
            happened = tables.transact(changes, expected)
            return tables.newest, happened

        return int(await self._worker.write(work))

    async def grant(self, ttl_s: float) -> Lease:
        """Return a new lease."""
        if not ttl_s >= SHORTEST_LEASE_S:
            raise StorageError(f"a lease must last at least {SHORTEST_LEASE_S:g} s, not {ttl_s:g}")
        lease: Lease = await self._worker.write(lambda tables: (tables.grant(ttl_s), None))
        self._leases[lease.number] = lease
        self._start(lease)
        return lease

    async def renew(self, lease: int) -> None:
        """Extend a lease to its full duration from now."""
        if lease not in self._leases:
            raise LeaseError(lease)
        self._start(self._leases[lease])

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys."""
        self._leases.pop(lease, None)
        if (timer := self._timers.pop(lease, None)) is not None:
            timer.cancel()
        await self._worker.write(lambda tables: (None, tables.revoke(lease)))

    async def watch(self, prefix: str, *, after: int) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield events of keys with a prefix after a revision."""
        while not self._is_closed:
            newest, recent = self._recent.newest, self._recent.since(after, prefix)
            if recent is None:
                behind, newest = await self._worker.read(
                    partial(Tables.since, revision=after, prefix=prefix, most=_READ_AT_ONCE)
                )
                recent = [events for _, events in behind]
            after = max(after, newest)
            for events in recent:
                yield events
            await self._recent.wait_after(after)
        raise StorageError("the storage is closed")

    async def compact(self, revision: int) -> None:
        """Drop history from before a revision."""

        def work(tables: Tables) -> tuple[None, None]:
            tables.compact(revision)
            return None, None

        await self._worker.write(work)
        self._recent.forget(revision)

    async def close(self) -> None:
        """Close the file; watches end with an error."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        await self._worker.close()
        self._recent.wake()

    def _committed(self, happened: list[Happened]) -> None:
        """Notify the watches; called in the worker's thread."""
        self._loop.call_soon_threadsafe(self._recent.add, happened)

    def _start(self, lease: Lease) -> None:
        """Start a lease's timer."""
        if (timer := self._timers.get(lease.number)) is not None:
            timer.cancel()
        self._timers[lease.number] = self._loop.call_later(lease.ttl_s, self._end, lease.number)

    def _end(self, lease: int) -> None:
        task = self._loop.create_task(self._revoke_ended(lease))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _revoke_ended(self, lease: int) -> None:
        """End a lease that was not renewed; if the disk fails, try again later."""
        try:
            await self.revoke(lease)
        except StorageError:
            if not self._is_closed:
                self._timers[lease] = self._loop.call_later(SHORTEST_LEASE_S, self._end, lease)
