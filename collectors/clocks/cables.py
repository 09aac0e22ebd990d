"""Offsets between the clocks at cables' two ends, from the fastest packets of both directions.

With flights f and g (serialisation and propagation) the differences of stamps are f + o and g - o for an offset o of
b's clock against a's. Half of their difference is o, wrong by half of f - g; their sum f + g has no clock in it.
Neither flight is less than the configured delay d, so the error is at most (f + g) / 2 - d, the `excess`. Which of the
two ways is the longer one cannot be found from stamps: no exchange between two clocks can (RFC 5905, section 8).

Observations are added up as a weighted line over time, the more weight the less they exceed the least excess, old ones
fading: offset now, and drift. All cables are computed side by side; `tests/collectors/clocks/reference_network.py` has
one cable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collectors.clocks.values import FlightColumns
from collectors.settings import ClockSettings
from collectors.statistics.columns import Integers, Numbers, Places
from dataplane.clock import NS_PER_S

Flags = NDArray[np.bool_]
_Lines = NDArray[Any]

_BEYOND: Final = 2.0**63
"""Magnitude beyond the range of a signed 64-bit integer."""

_LINE: Final = np.dtype(
    [
        *((name, "i8") for name in ("base_ns", "time_ns", "suspect_half_ns", "suspect_odd", "is_suspected")),
        *((name, "f8") for name in ("least_excess_ns", "weight", "t", "tt", "x", "tx", "excess", "excess2")),
    ]
)
"""A cable's line: sums of weight and of weight times t (s since `time_ns`), x (ns above `base_ns`) and excess.

A suspect is an observation off the line, as `half_ns` and `odd` of a point have it.
"""

_SUMS: Final = ("weight", "t", "tt", "x", "tx", "excess", "excess2")


@dataclass(frozen=True, slots=True)
class Offsets:
    """For cables `places`: b's clock minus a's now, its rate of change, and the bound of its error."""

    places: Places
    offset_ns: Integers
    drift_ppb: Numbers
    uncertainty_ns: Numbers


@dataclass(frozen=True, slots=True)
class _Points:
    """Observations: half the differences, rounded down, `odd` where that cut off a half; `excess_ns` bounds errors."""

    time_ns: Integers
    half_ns: Integers
    odd: Integers
    excess_ns: Numbers

    def some(self, which: Flags) -> _Points:
        return _Points(self.time_ns[which], self.half_ns[which], self.odd[which], self.excess_ns[which])

    def above(self, half_ns: Integers, odd: Integers | int = 0) -> Numbers:
        """Return the weight of observations against others, however far apart."""
        apart = self.half_ns.astype(np.float64) - half_ns.astype(np.float64)
        near: Numbers = (self.half_ns - half_ns).astype(np.float64)
        return np.where(np.abs(apart) < 2.0**62, near, apart) + (self.odd - odd) / 2


class Cables:
    """Cables between two switches, a and b; times are the collector's and must not decrease."""

    def __init__(self, there: Places, back: Places, delay_ns: Integers, settings: ClockSettings) -> None:
        """Take the index of each cable's link from a to b, and of that from b to a, among the flights."""
        self._there, self._back = there, back
        self._delay_ns = delay_ns
        self._settings = settings
        self._forward, self._backward = FlightColumns.none(len(there)), FlightColumns.none(len(there))
        self._lines: _Lines = np.zeros(len(there), _LINE)
        self.implausible = 0
        """Observations that no two clocks explain: both ways together take less than 0 ns."""

    def observe(self, seen: FlightColumns) -> None:
        """Take the fastest packets of an interval."""
        forward, backward = seen.some(self._there), seen.some(self._back)
        fresh = (forward.samples > 0) | (backward.samples > 0)
        self._forward, self._backward = forward.over(self._forward), backward.over(self._backward)
        apart_ns = self._forward.received_ns - self._backward.received_ns
        paired = (self._forward.samples > 0) & (self._backward.samples > 0)
        (places,) = np.nonzero(fresh & paired & (np.abs(apart_ns) <= self._settings.pair_within_ns))
        lines = self._lines[places]
        points, plausible = self._points(lines, places, apart_ns[places])
        self.implausible += int(np.count_nonzero(~plausible))
        lines, places = lines[plausible], places[plausible]
        self._take(lines, points.some(plausible))
        self._lines[places] = lines

    def offsets(self, now_ns: int) -> Offsets:
        """Return the current offsets of recently observed cables.

        Offsets beyond 64 bits are omitted: no two clocks' stamps are that far apart.
        """
        (places,) = np.nonzero(self._is_known(self._lines, now_ns))
        away, uncertainty_ns = self._expected(self._lines[places], now_ns)
        about = self._lines["base_ns"][places].astype(np.float64) + away
        held = np.maximum(np.abs(away), np.abs(about)) < _BEYOND
        places, away, uncertainty_ns = places[held], away[held], uncertainty_ns[held]
        lines = self._lines[places]
        offset_ns: Integers = lines["base_ns"] + away.astype(np.int64)
        return Offsets(places, offset_ns, self._slopes(lines), uncertainty_ns)

    def _is_known(self, lines: _Lines, now_ns: Integers | int) -> Flags:
        is_known: Flags = (lines["weight"] > 0) & (now_ns - lines["time_ns"] <= self._settings.forget_after_ns)
        return is_known

    def _expected(self, lines: _Lines, now_ns: Integers | int) -> tuple[Numbers, Numbers]:
        """Return the lines' values at a time, in whole ns above their base, and the bounds of the errors."""
        weight = _weights(lines)
        since_s = (now_ns - lines["time_ns"]) / NS_PER_S
        away_s = since_s - lines["t"] / weight
        above = np.rint(lines["x"] / weight + self._slopes(lines) * away_s)
        doubt = lines["excess"] / weight + np.abs(away_s) * self._slope_doubts(lines)
        wander = np.maximum(since_s, 0.0) * self._settings.wander_ppb
        return above, doubt + wander + self._settings.resolution_ns

    def _points(self, lines: _Lines, places: Places, apart_ns: Integers) -> tuple[_Points, Flags]:
        """Return the observations of the newest packets of both directions, and which of them clocks can explain."""
        forward, backward = self._forward.some(places), self._backward.some(places)
        both_ns = _sum(forward.flight_ns, backward.flight_ns) - self._slopes(lines) * apart_ns / NS_PER_S
        doubt_ns = self._settings.resolution_ns
        apart_s = np.abs(apart_ns) / NS_PER_S
        plausible = both_ns >= -2 * doubt_ns - self._settings.largest_drift_ppb * apart_s
        excess = both_ns / 2 - self._delay_ns[places]
        # If the cable is shorter than the topology says, 0 is the only bound of the flights.
        excess = np.where(excess < -doubt_ns, both_ns / 2, excess)
        half_ns, odd = _half(forward.flight_ns, backward.flight_ns)
        time_ns = (forward.received_ns + backward.received_ns) // 2
        return _Points(time_ns, half_ns, odd, np.maximum(excess, 0.0)), plausible

    def _take(self, lines: _Lines, points: _Points) -> None:
        """Add observations near the expected value; two off it that agree begin a new line."""
        is_known = self._is_known(lines, points.time_ns)
        expected, uncertainty_ns = self._expected(lines, points.time_ns)
        reach_ns = self._settings.jump_ns + 4 * (points.excess_ns + uncertainty_ns)
        near = is_known & (np.abs(points.above(lines["base_ns"]) - expected) <= reach_ns)
        off = is_known & ~near
        apart = 2 * points.above(lines["suspect_half_ns"], lines["suspect_odd"])
        agreed = off & (lines["is_suspected"] != 0) & (np.abs(apart) <= 2 * reach_ns)
        lines["is_suspected"] = np.where(is_known, off & ~agreed, lines["is_suspected"])
        lines["suspect_half_ns"] = np.where(off, points.half_ns, lines["suspect_half_ns"])
        lines["suspect_odd"] = np.where(off, points.odd, lines["suspect_odd"])
        anew, added = ~is_known | agreed, ~off | agreed
        for name in _SUMS:
            lines[name][anew] = 0.0
        lines["least_excess_ns"][anew] = np.inf
        lines["base_ns"][anew], lines["time_ns"][anew] = points.half_ns[anew], points.time_ns[anew]
        lines[added] = self._added(lines[added], points.some(added))

    def _added(self, lines: _Lines, points: _Points) -> _Lines:
        """Return lines with one more point each."""
        self._move_to(lines, np.maximum(points.time_ns, lines["time_ns"]))
        t = (points.time_ns - lines["time_ns"]) / NS_PER_S
        x = points.above(lines["base_ns"])
        excess = points.excess_ns
        # The delay that even the fastest packets have is common to all, so it says little about their scatter.
        lines["least_excess_ns"] = np.minimum(lines["least_excess_ns"], excess)
        scatter = excess - lines["least_excess_ns"] + excess / 16
        weight = 1.0 / (scatter + self._settings.resolution_ns) ** 2
        summands = (weight, weight * t, weight * t * t, weight * x, weight * t * x, weight * excess, weight * excess**2)
        for name, summand in zip(_SUMS, summands, strict=True):
            lines[name] += summand
        return lines

    def _move_to(self, lines: _Lines, time_ns: Integers) -> None:
        """Count times from `time_ns`, and let older observations fade."""
        by = (time_ns - lines["time_ns"]) / NS_PER_S
        lines["tt"] += by * (by * lines["weight"] - 2 * lines["t"])
        lines["tx"] -= by * lines["x"]
        lines["t"] -= by * lines["weight"]
        lines["time_ns"] = time_ns
        fade = np.exp(-by * NS_PER_S / self._settings.memory_ns)
        for name in _SUMS:
            lines[name] *= fade

    def _slopes(self, lines: _Lines) -> Numbers:
        """Return the slopes in ppb; with little data, the maximum drift of clocks keeps them small."""
        slopes: Numbers = (lines["tx"] - lines["t"] * lines["x"] / _weights(lines)) / (_spread(lines) + self._ridge)
        return slopes

    def _slope_doubts(self, lines: _Lines) -> Numbers:
        """Return the bounds of the slopes' errors: all observations wrong by their excess, plus the pull towards 0."""
        spread = _spread(lines)
        # The sum of weight * distance from the mean time * excess, at most (Cauchy and Schwarz).
        errors = np.sqrt(spread * lines["excess2"])
        held = self._ridge * self._settings.largest_drift_ppb
        doubts: Numbers = (errors + held) / (spread + self._ridge)
        return doubts

    @property
    def _ridge(self) -> float:
        return 1.0 / self._settings.largest_drift_ppb**2


def _weights(lines: _Lines) -> Numbers:
    """Return the sums of weights, 1 where there is none and so all sums are 0."""
    return np.where(lines["weight"] > 0, lines["weight"], 1.0)


def _spread(lines: _Lines) -> Numbers:
    spread: Numbers = np.maximum(lines["tt"] - lines["t"] * lines["t"] / _weights(lines), 0.0)
    return spread


def _sum(first: Integers, other: Integers) -> Numbers:
    """Return sums, exact where 64 bits hold them."""
    about = first.astype(np.float64) + other.astype(np.float64)
    return np.where(np.abs(about) < 2.0**62, (first + other).astype(np.float64), about)


def _half(first: Integers, other: Integers) -> tuple[Integers, Integers]:
    """Return half of one minus other, rounded down, and whether that cut off a half; nothing overflows."""
    odd: Integers = (first ^ other) & 1
    half: Integers = (first >> 1) - (other >> 1) - (odd & other)
    return half, odd
