"""What all levers have in common: where one stands, how far it goes, what came of moving it."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final, Protocol

from controller.balance.values import LeverKind

_GRAIN: Final = 1e-6
"""Steps that are whole but for so much of one are whole."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a lever stands, in sub-units, MHz or steps of precision, and how far it goes.

    It stands at whole steps from `low`, or at one of `points`, rising, where it has some. `why_not` says why it may not
    be set, in a line, where `may_set` is false.
    """

    value: float
    low: float
    high: float
    step: float = 1.0
    may_set: bool = True
    why_not: str = ""
    points: tuple[float, ...] = ()

    def place(self, wanted: float) -> float:
        """Return where the lever can stand nearest to what is wanted, on this side of it: it never goes too far.

        One that stands beyond its ends goes to them first, whatever is wanted in their direction.
        """
        if wanted == self.value or not self.low <= self.high:
            return self.value
        up = wanted > self.value
        bound = min(max(wanted, self.low), self.high)
        found = self._point(bound, up=up) if self.points else self._on_grid(bound, up=up)
        is_on_the_way = self.value < found <= bound if up else bound <= found < self.value
        return found if is_on_the_way else self.value

    def _on_grid(self, bound: float, *, up: bool) -> float:
        steps = (bound - self.low) / self.step
        whole = math.floor(steps + _GRAIN) if up else math.ceil(steps - _GRAIN)
        return self.low + whole * self.step

    def _point(self, bound: float, *, up: bool) -> float:
        place = bisect_right(self.points, bound + _GRAIN) - 1 if up else bisect_left(self.points, bound - _GRAIN)
        return self.points[place] if 0 <= place < len(self.points) else self.value


@dataclass(frozen=True, slots=True)
class Moved:
    """What came of moving a lever: by how much it did, what is left, and why.

    What is left is the next lever's, unless it lies `between` two steps: then it is this one's, once more is asked.
    """

    done: float
    left: float
    reason: str = ""
    between: bool = False


class Lever(Protocol):
    """Something that makes a compute unit quicker or slower, or its data shorter or longer."""

    @property
    def name(self) -> str:
        """What it is called in messages: its kind of device and which."""
        ...

    @property
    def kind(self) -> LeverKind:
        """Which part of a change it takes."""
        ...

    def read(self) -> Standing:
        """Return where it stands now; raise LeverError if that cannot be told."""
        ...

    def move(self, by: float) -> Moved:
        """Move it by as much as is asked, as far as it goes; raise LeverError if it fails.

        One that may not be set moves by nothing and says why.
        """
        ...

    def release(self, *, always: bool = False) -> None:
        """Have it stand where it was found, as nobody controls it any more; raise LeverError if that fails.

        Nothing is done where this lever has moved nothing, unless `always`: then another process has.
        """
        ...


def refused(standing: Standing, by: float) -> Moved | None:
    """Return what came of moving a lever that may not be set, or of moving one by nothing; None for any other."""
    if not by:
        return Moved(0.0, 0.0)
    return None if standing.may_set else Moved(0.0, by, standing.why_not)


def moved(standing: Standing, by: float, now: float) -> Moved:
    """Return what came of a move from a standing to where the lever is now."""
    done = now - standing.value
    left = by - done
    if left * by <= 0 or abs(left) <= _GRAIN * max(abs(by), 1.0):
        return Moved(done, 0.0)
    at_end = standing.high if by > 0 else standing.low
    if math.isclose(now, at_end, rel_tol=1e-9, abs_tol=_GRAIN) or (now - at_end) * by > 0:
        return Moved(done, left, f"it stands at its end, {at_end:g}")
    return Moved(done, left, "it has no step in between", between=True)
