"""What a unit's sub-units draw: dynamic power by voltage and clock, static power by voltage."""

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
    """A sub-unit's power at its reference clock, and how voltage follows the clock.

    P = n (dynamic (V / V_ref)^2 (f / f_ref) a + static V / V_ref), a = idle + (1 - idle) P_d; and the bus's share
    beside it. What a number's precision does to the power of a busy core is left out: it does its work in less time.
    The figures are typical of a card cut into seven, no one card's.
    """

    dynamic_w: Watts = 45.0
    """Of a busy sub-unit, above what it draws for being powered."""
    static_w: Watts = 15.0
    """Leakage of a sub-unit that is held, busy or not."""
    idle_activity: Share = 0.2
    """Share of the dynamic power that a clocked sub-unit draws with no work."""
    low_mhz: Positive = 600.0
    """Below this clock the voltage falls no further."""
    low_v: Positive = 0.7
    high_mhz: Positive = 1400.0
    """Above this clock the voltage rises as it does below."""
    high_v: Positive = 1.0
    bus_w: Watts = 0.0
    """Of the bus while it carries data."""

    def __post_init__(self) -> None:
        if self.low_mhz >= self.high_mhz and self.low_v != self.high_v:
            raise ValueError("low_mhz is not below high_mhz")
        if self.low_v > self.high_v:
            raise ValueError("low_v is above high_v")

    def volts(self, frequency_mhz: float) -> float:
        """Return the voltage at a clock: a line through the two points that are known, level below the lower."""
        if self.low_v == self.high_v:
            return self.low_v
        slope = (self.high_v - self.low_v) / (self.high_mhz - self.low_mhz)
        return self.low_v + slope * max(frequency_mhz - self.low_mhz, 0.0)

    def each_w(self, frequency_mhz: float, reference_mhz: float) -> tuple[float, float]:
        """Return dynamic power of a busy sub-unit and static power of one, at a clock."""
        volts = self.volts(frequency_mhz) / self.volts(reference_mhz)
        return self.dynamic_w * volts * volts * frequency_mhz / reference_mhz, self.static_w * volts


UNITS_BY_FREQUENCY = Power(dynamic_w=1.0, static_w=0.0, idle_activity=1.0, low_v=1.0, high_v=1.0)
"""The worked example's power as a setting: one for each sub-unit at the reference clock, busy or not."""
