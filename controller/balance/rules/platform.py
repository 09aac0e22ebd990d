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
    """Return n' = n P_d / P_p, not rounded: with so many sub-units the cores are as busy as the bus is."""
    return sub_units * load / bus


class PlatformRule(Strict, frozen=True):
    """All that is idle is freed at once, and all that is missing is asked for at once.

    Whole units: rounded up, as whoever frees one that he needs has to ask for it again. Frequency and precision are
    moved only by what the sub-units could not do (`hand_on`). It acts on one sample: whoever calls it again before the
    change shows in samples asks twice.
    """

    threshold: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.1
    """Where |u| is no more, all is well."""
    most_ratio: Annotated[float, msgspec.Meta(gt=1)] = 4.0
    """At most so many times the units are asked for, and at least one part in so many is kept."""

    asks_from_load: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Faster cores are asked for only where they are at least so busy; 0: whatever their load."""

    def change(self, u: float, sample: Sample, state: UnitState) -> Change:
        """Return what to free or to ask for; nothing where controller and sample do not agree which way."""
        if not abs(u) > self.threshold or u * sample.error <= 0:
            return Change()
        if u < 0 and sample.load < self.asks_from_load:
            return Change()
        here = state.sub_units
        wanted = wanted_units(here, sample.bus, sample.load) if sample.bus else math.inf
        bounded = min(max(wanted, here / self.most_ratio), here * self.most_ratio)
        return Change(sub_units=math.ceil(bounded - _SLACK) - here)
