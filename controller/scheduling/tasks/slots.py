"""Free times of an offer's units: the books of one plan, in seconds from its beginning.

Tasks are planned one after the other, each onto the units that are free first. Units that lie idle before a task that
waits for more are lent to shorter tasks (backfilling: Lifka, "The ANL/IBM SP Scheduling System", 1995), which never
delays a task that was planned earlier.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable
from typing import Final

NEVER_S: Final = math.inf
"""Start time of units that are free at an unknown time."""


class Slots:
    """Units of one offer."""

    def __init__(self, count: int, held: Iterable[tuple[int, float]] = ()) -> None:
        """`held` lists units and the seconds until they are free; an excess counts as all units."""
        self.count = count
        self._free_at: list[tuple[float, int]] = []
        self._idle: list[tuple[int, float]] = []
        left = count
        # If more units are held than exist, those held longest count.
        for units, until_s in sorted(held, key=lambda entry: -entry[1]):
            taken = min(units, left)
            if taken:
                insort(self._free_at, (until_s, taken))
            left -= taken
        if left:
            insort(self._free_at, (0.0, left))

    @property
    def free(self) -> int:
        """Units that are free now, however briefly."""
        now = sum(units for at_s, units in self._free_at if at_s <= 0)
        return now + sum(units for units, _ in self._idle)

    def start_s(self, units: int, seconds: float) -> float:
        """Return when so many units are free for so long; NEVER_S if that is unknown."""
        if not 0 < units <= self.count:
            return NEVER_S
        if self._loan(units, seconds) is not None:
            return 0.0
        return self.own_s(units)

    def own_s(self, units: int) -> float:
        """Return from when on so many units are free for any length of time, none of them lent."""
        if not 0 < units <= self.count:
            return NEVER_S
        free = 0
        for at_s, count in self._free_at:
            free += count
            if free >= units:
                return at_s
        return NEVER_S

    def take(self, units: int, seconds: float, start_s: float) -> None:
        """Plan a task onto units that are free at `start_s`: those that are free last, so that fewest lie idle."""
        firm = sum(count for at_s, count in self._free_at if at_s <= 0)
        loan = self._loan(units, seconds) if start_s <= 0 and firm < units else None
        if loan is not None:
            count, until_s = self._idle.pop(loan)
            if count > units:
                self._idle.append((count - units, until_s))
            return
        left = units
        while left:
            in_time = sum(1 for at_s, _ in self._free_at if at_s <= start_s)
            at_s, count = self._free_at.pop(max(in_time - 1, 0))
            taken = min(count, left)
            if taken < count:
                insort(self._free_at, (at_s, count - taken))
            if at_s <= 0 < start_s:
                self._idle.append((taken, start_s))
            left -= taken
        insort(self._free_at, (start_s + seconds, units))

    def _loan(self, units: int, seconds: float) -> int | None:
        """Return the position of enough idle units that are free for long enough; None if there are none."""
        fitting = (index for index, (count, until_s) in enumerate(self._idle) if count >= units and seconds <= until_s)
        return next(fitting, None)
