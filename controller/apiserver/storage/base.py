"""Storage interface: versioned keys with revisions, compare-and-swap over several keys, leases, watches.

The revision is one number for the whole storage; each transaction that changes something increments it.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Self

from controller.apiserver.storage.values import Change, Delete, Event, Expected, Lease, Page, Put, Stored


class Storage(ABC):
    """Durable keys and values; all methods raise StorageError, with one line on the problem.

    An acknowledged write is on disk. Reads of the newest revision see every write acknowledged before.
    """

    most_waiting: int | None = None
    """Limit of requests waiting in this process; None: unlimited."""

    @property
    def waiting(self) -> int:
        """Requests waiting in this process."""
        return 0

    @abstractmethod
    async def revision(self) -> int:
        """Return the newest revision."""

    @abstractmethod
    async def get(self, key: str, *, revision: int | None = None) -> Stored | None:
        """Return a key, current or at a revision; None if it does not exist.

        Raise CompactedError for a compacted revision.
        """

    async def get_all(self, keys: Sequence[str]) -> dict[str, Stored]:
        """Return those of several keys that exist, with current values; they need not be of one revision."""
        values = await asyncio.gather(*(self.get(key) for key in keys))
        return {stored.key: stored for stored in values if stored is not None}

    @abstractmethod
    async def scan(
        self, prefix: str, *, revision: int | None = None, after: str = "", limit: int | None = None
    ) -> Page:
        """Return at most `limit` keys with a prefix, after a key, in order of their UTF-8 bytes.

        All pages of a scan are of the first page's revision. Raise CompactedError for a compacted revision.
        """

    @abstractmethod
    async def transact(self, changes: tuple[Change, ...], *, expected: tuple[Expected, ...] = ()) -> int:
        """Make changes, all or none; return the revision of the transaction.

        Raise ConflictError, with nothing changed, if a key is not as expected.
        """

    @abstractmethod
    async def grant(self, ttl_s: float) -> Lease:
        """Return a new lease; it ends unless renewed within this time (s, at least 1)."""

    @abstractmethod
    async def renew(self, lease: int) -> None:
        """Extend a lease to its full duration from now; raise LeaseError if it has ended."""

    @abstractmethod
    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys; no effect if it has ended."""

    @abstractmethod
    def watch(self, prefix: str, *, after: int) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield events of keys with a prefix after a revision, in order and without gaps, those of a revision together.

        Raise CompactedError, at the first step, for a compacted revision, StorageError when the storage closes.
        """

    @abstractmethod
    async def compact(self, revision: int) -> None:
        """Drop history from before a revision; older revisions can no longer be read or watched."""

    @abstractmethod
    async def close(self) -> None:
        """Close the storage; unacknowledged writes may or may not take effect."""

    async def put(self, key: str, value: bytes, *, lease: int | None = None, expected: int | None = None) -> int:
        """Write a key, if its last revision is `expected` when given; return the new revision."""
        conditions = () if expected is None else (Expected(key, expected),)
        return await self.transact((Put(key, value, lease),), expected=conditions)

    async def delete(self, key: str, *, expected: int | None = None) -> int:
        """Delete a key, if its last revision is `expected` when given; return the new revision."""
        conditions = () if expected is None else (Expected(key, expected),)
        return await self.transact((Delete(key),), expected=conditions)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
