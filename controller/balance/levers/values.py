"""Common parts of all levers: position, range, and the result of a move."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final, Protocol

from controller.balance.values import LeverKind

_GRAIN: Final = 1e-6
"""Tolerance, in steps, within which a step counts as whole."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Position and range of a lever, in sub-units, MHz or steps of precision.

    It is at whole steps from `low`, or at one of `points`, ascending, if there are any. `why_not` says in one line why
    it may not be set, if `may_set` is false.
    """

    value: float
    low: float
    high: float
    step: float = 1.0
    may_set: bool = True
    why_not: str = ""
    points: tuple[float, ...] = ()

    def place(self, wanted: float) -> float:
        """Return the position closest to the wanted one, on the near side of it: the lever never goes too far.

        One beyond its range moves to the range's end first, whatever is wanted in that direction.
        """
        if wanted == self.value or not self.low <= self.high:
            return self.value
        up = wanted > self.value
        bound = min(max(wanted, self.low), self.high)
        position = self._point(bound, up=up) if self.points else self._on_grid(bound, up=up)
        is_on_the_way = self.value < position <= bound if up else bound <= position < self.value
        return position if is_on_the_way else self.value

    def _on_grid(self, bound: float, *, up: bool) -> float:
        steps = (bound - self.low) / self.step
        whole = math.floor(steps + _GRAIN) if up else math.ceil(steps - _GRAIN)
        return self.low + whole * self.step

    def _point(self, bound: float, *, up: bool) -> float:
        index = bisect_right(self.points, bound + _GRAIN) - 1 if up else bisect_left(self.points, bound - _GRAIN)
        return self.points[index] if 0 <= index < len(self.points) else self.value


@dataclass(frozen=True, slots=True)
class Moved:
    """Result of a move: the distance moved, the rest, and why.

    The rest is for the next lever, unless it lies `between` two steps: then it stays with this one until more is asked.
    """

    done: float
    left: float
    reason: str = ""
    between: bool = False


class Lever(Protocol):
    """A lever that makes a compute unit faster or slower, or its data smaller or larger."""

    @property
    def name(self) -> str:
        """Name in messages: the kind of device and its identity."""
        ...

    @property
    def kind(self) -> LeverKind:
        """The part of a change that it takes."""
        ...

    def read(self) -> Standing:
        """Return its current position; raise LeverError if that is unknown."""
        ...

    def move(self, by: float) -> Moved:
        """Move it by the requested amount, within its range; raise LeverError on failure.

        One that may not be set does not move and says why.
        """
        ...

    def release(self, *, always: bool = False) -> None:
        """Restore its original position, as nothing controls it any more; raise LeverError on failure.

        Does nothing if this lever has moved nothing, unless `always`: then another process has.
        """
        ...


def refused(standing: Standing, by: float) -> Moved | None:
    """Return the result for a lever that may not be set, or for a move by nothing; None for any other."""
    if not by:
        return Moved(0.0, 0.0)
    return None if standing.may_set else Moved(0.0, by, standing.why_not)


def moved(standing: Standing, by: float, now: float) -> Moved:
    """Return the result of a move from one position to the current one."""
    done = now - standing.value
    left = by - done
    if left * by <= 0 or abs(left) <= _GRAIN * max(abs(by), 1.0):
        return Moved(done, 0.0)
    at_end = standing.high if by > 0 else standing.low
    if math.isclose(now, at_end, rel_tol=1e-9, abs_tol=_GRAIN) or (now - at_end) * by > 0:
        return Moved(done, left, f"at its limit of {at_end:g}")
    return Moved(done, left, "no step in between", between=True)
