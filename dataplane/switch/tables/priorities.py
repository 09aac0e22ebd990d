"""The largest of a changing multiset of priorities."""

from __future__ import annotations

from heapq import heappop, heappush


class PriorityCount:
    """A multiset of priorities; the best is known at once, in amortised logarithmic time per change."""

    __slots__ = ("_counts", "_heap")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._heap: list[int] = []  # negated; may contain stale values and duplicates

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, priority: int) -> None:
        """Add one."""
        present = self._counts.get(priority, 0)
        self._counts[priority] = present + 1
        if not present:
            heappush(self._heap, -priority)

    def remove(self, priority: int) -> None:
        """Remove one, which must be present."""
        left = self._counts[priority] - 1
        if left:
            self._counts[priority] = left
            return
        del self._counts[priority]
        if len(self._heap) > 2 * len(self._counts) + 16:
            self._heap = sorted(-priority for priority in self._counts)

    @property
    def best(self) -> int:
        """Return the largest; 0 if there is none."""
        while self._heap and -self._heap[0] not in self._counts:
            heappop(self._heap)
        return -self._heap[0] if self._heap else 0
