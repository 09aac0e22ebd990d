"""Turns an allocation into what is written now: a unit is given only once its holder has released it.

A holder that should have fewer units is asked (`leaving`) and keeps them until it promises not to use them; free units
are then given in the order of the allocation. The server checks the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.balance.allocation.values import Allocation


@dataclass(frozen=True, slots=True)
class Handover:
    """A holder's current units; `promised` is the most that it will use: all of its units unless it has said so."""

    holder: str
    units: int
    promised: int


@dataclass(frozen=True, slots=True)
class Holding:
    """Written state of a holder: its units, and how many of them it is asked to give back."""

    holder: str
    units: int
    leaving: int = 0


def hand_over(total: int, now: Mapping[str, Handover], allocation: Allocation) -> tuple[Holding, ...]:
    """Return the next state of each holder, in order of names, without holders that have nothing."""
    after: dict[str, Holding] = {}
    for holder, have in now.items():
        target = allocation.units.get(holder, have.units)
        if target < have.units:
            kept = min(max(target, have.promised), have.units)
            after[holder] = Holding(holder, kept, kept - target)
        else:
            after[holder] = Holding(holder, have.units)
    free = total - sum(holding.units for holding in after.values())
    for holder, target in allocation.units.items():
        have_now = after.get(holder, Holding(holder, 0))
        more = min(target - have_now.units, free)
        if more > 0:
            after[holder] = Holding(holder, have_now.units + more)
            free -= more
    return tuple(after[holder] for holder in sorted(after) if after[holder].units)
