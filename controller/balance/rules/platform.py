"""The platform's rule: as many sub-units as the load has work for, n' = n P_d / P_p."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Final, TypeVar

import msgspec

from controller.balance.values import Change, Sample, UnitState
from dataplane.config import Strict

Number = TypeVar("Number", float, Fraction)
_SLACK: Final = 1e-9


def wanted_units(sub_units: int, bus: Number, load: Number) -> Number:
    """Return n' = n P_d / P_p, not rounded: with this many sub-units the cores are as busy as the bus."""
    return sub_units * load / bus


class PlatformRule(Strict, frozen=True):
    """Frees everything idle at once, and asks for everything missing at once.

    Whole units, rounded up, because a unit freed by mistake must be requested again. Frequency and precision take only
    the part beyond the sub-units (`hand_on`). It acts on one sample: calling it again before the change shows in
    samples asks twice.
    """

    threshold: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    """Value of |u| up to which nothing is done."""
    most_ratio: Annotated[float, msgspec.Meta(gt=1)] = 4.0
    """Maximum factor of units to ask for; its reciprocal is the minimum share to keep."""

    asks_from_load: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Minimum load of the cores for asking for faster ones; 0: any load."""

    def change(self, u: float, sample: Sample, state: UnitState) -> Change:
        """Return what to free or to ask for; nothing if controller and sample disagree on the direction."""
        if not abs(u) > self.threshold or u * sample.error <= 0:
            return Change()
        if u < 0 and sample.load < self.asks_from_load:
            return Change()
        here = state.sub_units
        wanted = wanted_units(here, sample.bus, sample.load) if sample.bus else math.inf
        bounded = min(max(wanted, here / self.most_ratio), here * self.most_ratio)
        return Change(sub_units=math.ceil(bounded - _SLACK) - here)
