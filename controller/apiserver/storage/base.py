"""What every storage does: versioned keys with revisions, compare-and-swap over several keys, leases, watches.

The revision is one number for the whole storage; each transaction that changes something makes it one more.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Self

from controller.apiserver.storage.values import Change, Delete, Event, Expected, Lease, Page, Put, Stored


class Storage(ABC):
    """Keys and values that survive; all methods raise StorageError, with one line on what is wrong.

    An acknowledged write is on the disk. Reads of the newest revision see every write that was acknowledged before.
    """

    most_waiting: int | None = None
    """Requests that may wait in this process; None: no limit of ours."""

    @property
    def waiting(self) -> int:
        """Requests that wait in this process for their turn."""
        return 0

    @abstractmethod
    async def revision(self) -> int:
        """Return the newest revision."""

    @abstractmethod
    async def get(self, key: str, *, revision: int | None = None) -> Stored | None:
        """Return a key, as it was at a revision or as it is; None if it was not there.

        Raise CompactedError for a revision that is forgotten.
        """

    async def get_all(self, keys: Sequence[str]) -> dict[str, Stored]:
        """Return those of several keys that are there, each as it is; they need not be of one revision."""
        found = await asyncio.gather(*(self.get(key) for key in keys))
        return {stored.key: stored for stored in found if stored is not None}

    @abstractmethod
    async def scan(
        self, prefix: str, *, revision: int | None = None, after: str = "", limit: int | None = None
    ) -> Page:
        """Return keys with a prefix, in order of their UTF-8 bytes: those after a key, and at most so many.

        The pages of one scan are of the first page's revision. Raise CompactedError for a revision that is forgotten.
        """

    @abstractmethod
    async def transact(self, changes: tuple[Change, ...], *, expected: tuple[Expected, ...] = ()) -> int:
        """Make changes, all or none; return the revision since which they hold.

        Raise ConflictError, with nothing done, where a key is not as expected.
        """

    @abstractmethod
    async def grant(self, ttl_s: float) -> Lease:
        """Return a new lease; it ends if it is not renewed for so long (s, from 1 on)."""

    @abstractmethod
    async def renew(self, lease: int) -> None:
        """Let a lease last for its whole time from now on; raise LeaseError if it has ended."""

    @abstractmethod
    async def revoke(self, lease: int) -> None:
        """End a lease, and the keys that have it; one that has ended stays so."""

    @abstractmethod
    def watch(self, prefix: str, *, after: int) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yield what happens to keys with a prefix after a revision, in order, none lost, those of a revision together.

        Raise CompactedError, at the first step, for a revision that is forgotten, StorageError when the storage closes.
        """

    @abstractmethod
    async def compact(self, revision: int) -> None:
        """Forget what keys were before a revision; what is older can neither be read nor watched any more."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of the storage; writes that were not acknowledged may or may not have been made."""

    async def put(self, key: str, value: bytes, *, lease: int | None = None, expected: int | None = None) -> int:
        """Write a key, if it was modified last at revision `expected` where that is given; return the new revision."""
        conditions = () if expected is None else (Expected(key, expected),)
        return await self.transact((Put(key, value, lease),), expected=conditions)

    async def delete(self, key: str, *, expected: int | None = None) -> int:
        """Remove a key, if it was modified last at revision `expected` where that is given; return the revision."""
        conditions = () if expected is None else (Expected(key, expected),)
        return await self.transact((Delete(key),), expected=conditions)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
