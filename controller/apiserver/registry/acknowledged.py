"""Writes that this server has acknowledged but its watch has not delivered yet, laid over what the watch delivered."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

from controller.common.errors import UnavailableError

T = TypeVar("T")

CAPACITY: Final = 16_384


class AcknowledgedWrites(Generic[T]):
    """Writes (None for a deleted key), kept until the watch reaches their revision; the newest write of a key counts.

    So a client whose write was acknowledged reads it here, even if the storage fails in between.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._newest: dict[str, tuple[int, T | None]] = {}
        self._order: list[tuple[int, str]] = []
        self._reached = 0

    def check(self) -> None:
        """Raise UnavailableError if too many writes are ahead of the watch."""
        if len(self._order) >= self._capacity:
            raise UnavailableError(f"the storage's watch is {len(self._order)} writes behind; writes are refused")

    def note(self, key: str, revision: int, value: T | None) -> None:
        """Record a write acknowledged at a revision, whether or not the watch delivered it first."""
        if revision <= self._reached:
            return
        heappush(self._order, (revision, key))
        if key not in self._newest or self._newest[key][0] < revision:
            self._newest[key] = revision, value

    def reach(self, revision: int) -> None:
        """Forget writes up to the revision that the watch has reached."""
        self._reached = revision
        while self._order and self._order[0][0] <= revision:
            _, key = heappop(self._order)
            if key in self._newest and self._newest[key][0] <= revision:
                del self._newest[key]

    def get(self, key: str, brought: T | None) -> T | None:
        """Return the current value of a key; `brought` is the watch's value."""
        return self._newest[key][1] if key in self._newest else brought

    def over(self, brought: Mapping[str, T]) -> Mapping[str, T]:
        """Return the current values of all keys; `brought` are the watch's values."""
        if not self._newest:
            return brought
        values = {**brought, **{key: value for key, (_, value) in self._newest.items()}}
        return {key: value for key, value in values.items() if value is not None}
