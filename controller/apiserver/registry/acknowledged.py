"""What a server has acknowledged as written and its own watch has not brought yet: laid over what that has brought."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

from controller.common.errors import UnavailableError

T = TypeVar("T")

CAPACITY: Final = 16_384


class AcknowledgedWrites(Generic[T]):
    """Writes, None for a key that went, each until the watch has reached its revision; of a key the newest counts.

    So whoever was told that something is written reads it here, whatever becomes of the storage in between.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._newest: dict[str, tuple[int, T | None]] = {}
        self._order: list[tuple[int, str]] = []
        self._reached = 0

    def check(self) -> None:
        """Raise UnavailableError where so many writes are ahead of the watch that no more are kept."""
        if len(self._order) >= self._capacity:
            raise UnavailableError(f"the storage's watch is {len(self._order)} writes behind, nothing is written")

    def note(self, key: str, revision: int, value: T | None) -> None:
        """Take a write that was acknowledged at a revision, whichever came first, acknowledgement or watch."""
        if revision <= self._reached:
            return
        heappush(self._order, (revision, key))
        if key not in self._newest or self._newest[key][0] < revision:
            self._newest[key] = revision, value

    def reach(self, revision: int) -> None:
        """Forget what the watch has brought: everything up to a revision."""
        self._reached = revision
        while self._order and self._order[0][0] <= revision:
            _, key = heappop(self._order)
            if key in self._newest and self._newest[key][0] <= revision:
                del self._newest[key]

    def get(self, key: str, brought: T | None) -> T | None:
        """Return what a key is; `brought` is what the watch says of it."""
        return self._newest[key][1] if key in self._newest else brought

    def over(self, brought: Mapping[str, T]) -> Mapping[str, T]:
        """Return all keys as they are; `brought` is what the watch says."""
        if not self._newest:
            return brought
        found = {**brought, **{key: value for key, (_, value) in self._newest.items()}}
        return {key: value for key, value in found.items() if value is not None}
