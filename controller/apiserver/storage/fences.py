"""Fencing tokens of callers in pairs: a write with a lower token than one before changes nothing.

A caller that runs in a pair names its lease and token with each request (`Millrace-Fence: NAME TOKEN`). The highest
token of each lease is kept in the storage, and every write expects it in its own transaction.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from controller.apiserver.storage.base import Storage
from controller.apiserver.storage.values import Change, Expected, Put
from controller.common.errors import InvalidError, StaleError

HEADER: Final = "Millrace-Fence"
_FORM: Final = re.compile(r"([A-Za-z0-9._-]{1,64}) ([0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class Fence:
    """The lease that a caller holds, and its token."""

    name: str
    token: int

    @classmethod
    def of(cls, header: str) -> Fence:
        """Return the fence that a header names; raise InvalidError."""
        parts = _FORM.fullmatch(header)
        if parts is None:
            raise InvalidError(f"{HEADER}: {header[:80]!r} is not a name and a token")
        return cls(parts[1], int(parts[2]))

    def __str__(self) -> str:
        return f"{self.name} {self.token}"

    @property
    def key(self) -> str:
        """The key that has the highest token."""
        return f"/fences/{self.name}"

    async def guard(self, storage: Storage) -> tuple[tuple[Change, ...], tuple[Expected, ...]]:
        """Return what a write must add to its transaction; raise StaleError if another holder has written since."""
        key = self.key
        stored = await storage.get(key)
        newest = 0 if stored is None else int(stored.value)
        if newest > self.token:
            raise StaleError(f"lease {self.name}: token {self.token} is no longer in force, {newest} is")
        expected = (Expected(key, 0 if stored is None else stored.modified),)
        return (() if newest == self.token else (Put(key, str(self.token).encode()),)), expected


FENCE: Final[ContextVar[Fence | None]] = ContextVar("fence", default=None)
"""The fence of the request that is being answered."""
