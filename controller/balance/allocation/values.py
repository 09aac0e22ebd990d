"""What is shared out, among whom, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Claimant:
    """A holder as the allocator sees it; `units` are those that it has and is not asked to give back.

    `wanted` is how many it would have, `busy` how many of those have work (None: all): the others may be asked back for
    somebody's who have. One that `is_fixed` neither gets nor gives; one that gives not yet has units
    that moved a short while ago.
    """

    holder: str
    units: int
    wanted: int
    least: int = 0
    most: int | None = None
    priority: int = 0
    weight: float = 1.0
    busy: int | None = None
    is_fixed: bool = False
    may_give: bool = True

    @property
    def ceiling(self) -> int:
        """How many units are worth something to it."""
        wanted = max(self.wanted, self.least)
        return wanted if self.most is None else min(wanted, self.most)


def busy_units(units: int, load: float, full: float = 0.9) -> int | None:
    """Return how many units would do for the load that so many have, with a load of `full` each; None: all and more."""
    return None if load >= full else math.ceil(units * load / full)


def within_load(wanted: int, units: int, load: float, frees_to_load: float) -> int:
    """Return how many units to want where idle ones are given back: no more than do at a load of `frees_to_load`.

    Who asks for more than it has, goes on asking. 0: idle units are kept.
    """
    if not frees_to_load or wanted > units:
        return wanted
    needed = busy_units(units, load, frees_to_load)
    return wanted if needed is None else min(wanted, needed)


@dataclass(frozen=True, slots=True)
class Limits:
    """How quickly units move, and for how little.

    A unit is taken from who wants it only for one to whom it is worth more by the share `margin`: without that units
    would go to and fro between two who want about the same.
    """

    moves: int = 1_000_000
    margin: float = 0.1


@dataclass(frozen=True, slots=True)
class Move:
    """Units that go from a holder, or out of the free ones (None), to another, or to the free ones."""

    source: str | None
    target: str | None
    units: int

    def __str__(self) -> str:
        return f"{self.units} from {self.source or 'the free ones'} to {self.target or 'the free ones'}"


@dataclass(frozen=True, slots=True)
class Allocation:
    """What each holder is to have, in order of who is served first, and why.

    `prices` is what one more unit would be worth to each holder, in units of its weight: weight / (units + 1), 0 where
    it wants none. `shadow_price` is what one more in the pool would be worth: that of who would get it.
    """

    units: Mapping[str, int] = field(default_factory=dict[str, int])
    moves: tuple[Move, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict[str, float])
    shadow_price: float = 0.0
