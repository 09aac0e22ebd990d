"""Capacity of bus and cores, and their steady state: plain formulas, for floats and, exactly, for fractions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

Number = TypeVar("Number", float, Fraction)


@dataclass(frozen=True, slots=True)
class Rest(Generic[Number]):
    """A unit at rest under a constant load: its work, its bus occupancy P_p and its load P_d."""

    work_tops: Number
    bus: Number
    load: Number

    @property
    def error(self) -> Number:
        """Return e = P_p - P_d."""
        return self.bus - self.load


def compute_tops(
    sub_units: int, unit_tops: Number, frequency_mhz: Number, reference_mhz: Number, speed: Number
) -> Number:
    """Return the capacity of the cores: sub-units times the work of each, at a clock and a precision's speed."""
    return sub_units * unit_tops * frequency_mhz * speed / reference_mhz


def bus_tops(bus_gb_per_s: Number, ops_per_byte: Number, bytes_ratio: Number) -> Number:
    """Return the work that the bus can feed; `bytes_ratio` is the size of work's bytes relative to int8."""
    return bus_gb_per_s * ops_per_byte / (1000 * bytes_ratio)


def rest_at(offered_tops: Number, bus_can_tops: Number, cores_can_tops: Number) -> Rest[Number]:
    """Return a unit's steady state: the slowest of load, bus and cores limits the work."""
    work = min(offered_tops, bus_can_tops, cores_can_tops)
    return Rest(work, work / bus_can_tops, work / cores_can_tops)
