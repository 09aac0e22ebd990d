"""Inputs and result of an allocation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Claimant:
    """A holder as the allocator sees it; `units` are those that it has and is not asked to give back.

    `wanted` is the number that it would like, `busy` the number of those with work (None: all): the others may be asked
    back for holders with work. One that `is_fixed` neither gets nor gives; one that may not give has units that moved a
    short while ago.
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
        """Maximum number of units that are worth something to it."""
        wanted = max(self.wanted, self.least)
        return wanted if self.most is None else min(wanted, self.most)


def busy_units(units: int, load: float, full: float = 0.9) -> int | None:
    """Return how many units suffice for the load of this many, each at a load of `full`; None: all and more."""
    return None if load >= full else math.ceil(units * load / full)


def within_load(wanted: int, units: int, load: float, frees_to_load: float) -> int:
    """Return how many units to want if idle ones are given back: no more than suffice at a load of `frees_to_load`.

    A holder that asks for more than it has keeps asking. 0: idle units are kept.
    """
    if not frees_to_load or wanted > units:
        return wanted
    needed = busy_units(units, load, frees_to_load)
    return wanted if needed is None else min(wanted, needed)


@dataclass(frozen=True, slots=True)
class Limits:
    """Rate limit and hysteresis of moves.

    A unit is taken from a holder that wants it only if it is worth more to another by the share `margin`: otherwise
    units would oscillate between two holders that want about the same.
    """

    moves: int = 1_000_000
    margin: float = 0.1


@dataclass(frozen=True, slots=True)
class Move:
    """Units that move from a holder, or from the free units (None), to another, or to the free units."""

    source: str | None
    target: str | None
    units: int

    def __str__(self) -> str:
        return f"{self.units} from {self.source or 'free units'} to {self.target or 'free units'}"


@dataclass(frozen=True, slots=True)
class Allocation:
    """The units of each holder, in order of service, and why.

    `prices` is the worth of one more unit to each holder, in units of its weight: weight / (units + 1), 0 if it wants
    none. `shadow_price` is the worth of one more unit in the pool: that of the holder that would get it.
    """

    units: Mapping[str, int] = field(default_factory=dict[str, int])
    moves: tuple[Move, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict[str, float])
    shadow_price: float = 0.0
