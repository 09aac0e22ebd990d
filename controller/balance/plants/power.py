"""Power of a unit's sub-units: dynamic power by voltage and clock, static power by voltage."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, TypeVar

import msgspec

from dataplane.config import Strict

Number = TypeVar("Number", float, Fraction)
Watts = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Positive = Annotated[float, msgspec.Meta(ge=1e-9, le=1e9)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


def units_by_frequency(sub_units: int, frequency: Number) -> Number:
    """Return the worked example's power: sub-units times frequency, in sub-units at the frequency 1."""
    return sub_units * frequency


class Power(Strict, frozen=True):
    """A sub-unit's power at its reference clock, and the dependence of voltage on the clock.

    P = n (dynamic (V / V_ref)^2 (f / f_ref) a + static V / V_ref), a = idle + (1 - idle) P_d; plus the bus's share. The
    effect of precision on the power of a busy core is ignored: it does its work in less time. The figures are typical
    of a card cut into seven, not those of a particular card.
    """

    dynamic_w: Watts = 45.0
    """Power of a busy sub-unit, above its static power."""
    static_w: Watts = 15.0
    """Leakage of an allocated sub-unit, busy or not."""
    idle_activity: Share = 0.2
    """Share of the dynamic power that a clocked sub-unit draws without work."""
    low_mhz: Positive = 600.0
    """Below this clock the voltage falls no further."""
    low_v: Positive = 0.7
    high_mhz: Positive = 1400.0
    """Above this clock the voltage keeps rising at the same slope."""
    high_v: Positive = 1.0
    bus_w: Watts = 0.0
    """Power of the bus while it carries data."""

    def __post_init__(self) -> None:
        if self.low_mhz >= self.high_mhz and self.low_v != self.high_v:
            raise ValueError("low_mhz is not below high_mhz")
        if self.low_v > self.high_v:
            raise ValueError("low_v is above high_v")

    def volts(self, frequency_mhz: float) -> float:
        """Return the voltage at a clock: a line through the two known points, constant below the lower one."""
        if self.low_v == self.high_v:
            return self.low_v
        slope = (self.high_v - self.low_v) / (self.high_mhz - self.low_mhz)
        return self.low_v + slope * max(frequency_mhz - self.low_mhz, 0.0)

    def each_w(self, frequency_mhz: float, reference_mhz: float) -> tuple[float, float]:
        """Return a sub-unit's dynamic power when busy and its static power, at a clock."""
        volts = self.volts(frequency_mhz) / self.volts(reference_mhz)
        return self.dynamic_w * volts * volts * frequency_mhz / reference_mhz, self.static_w * volts


UNITS_BY_FREQUENCY = Power(dynamic_w=1.0, static_w=0.0, idle_activity=1.0, low_v=1.0, high_v=1.0)
"""The worked example's power as a setting: 1 per sub-unit at the reference clock, busy or not."""
