"""The offset between the clocks at a cable's two ends, from the fastest packets of both directions.

With flights f and g (serialisation and propagation) the differences of stamps are f + o and g - o for an offset o of
b's clock against a's. Half of their difference is o, wrong by half of f - g; their sum f + g has no clock in it.
Neither flight is less than the configured delay d, so the error is at most (f + g) / 2 - d, the `excess`. Which of the
two ways is the longer one cannot be told from stamps: no exchange between two clocks can (RFC 5905, section 8).

Observations are added up as a weighted line over time, the more weight the less they exceed the least excess, old ones
fading: offset now, and drift.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from collectors.clocks.values import StampDifference
from collectors.settings import ClockSettings

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Offset:
    """b's clock minus a's at `time_ns`, how it grows, and the bound of its error."""

    time_ns: int
    offset_ns: int
    drift_ppb: float
    uncertainty_ns: float


@dataclass(frozen=True, slots=True)
class _Point:
    """One observation: half the difference at a time, twice to stay whole; `excess_ns` bounds its error."""

    time_ns: int
    twice_offset_ns: int
    excess_ns: float


class Cable:
    """One cable between two switches, a and b; times are the collector's and must not decrease."""

    def __init__(self, delay_ns: int, settings: ClockSettings) -> None:
        self._delay_ns = delay_ns
        self._settings = settings
        self._forward: StampDifference | None = None
        self._backward: StampDifference | None = None
        self._suspect: _Point | None = None
        self.implausible = 0
        """Observations that no two clocks explain: less than no time for both ways together."""
        self._reset()

    def _reset(self) -> None:
        self._base_ns = self._time_ns = 0
        self._least_excess_ns = math.inf
        self._weight = self._t = self._tt = self._x = self._tx = self._excess = self._excess2 = 0.0

    def observe(self, forward: StampDifference | None, backward: StampDifference | None) -> None:
        """Take the fastest packets a to b and b to a of an interval, None where none crossed."""
        self._forward = forward or self._forward
        self._backward = backward or self._backward
        if self._forward is None or self._backward is None:
            return
        apart_ns = self._forward.received_ns - self._backward.received_ns
        if abs(apart_ns) > self._settings.pair_within_ns:
            return
        point = self._point(self._forward, self._backward, apart_ns)
        if point is not None:
            self._take(point)

    def offset(self, now_ns: int) -> Offset | None:
        """Return the offset now; None when nothing was observed, or too long ago."""
        if not self._weight or now_ns - self._time_ns > self._settings.forget_after_ns:
            return None
        slope = self._slope()
        mean_t, mean_x = self._t / self._weight, self._x / self._weight
        since_s = (now_ns - self._time_ns) / _SECOND
        offset = mean_x + slope * (since_s - mean_t)
        doubt = self._excess / self._weight + abs(since_s - mean_t) * self._slope_doubt()
        wander = max(since_s, 0.0) * self._settings.wander_ppb
        return Offset(now_ns, self._base_ns + round(offset), slope, doubt + wander + self._settings.resolution_ns)

    def _point(self, forward: StampDifference, backward: StampDifference, apart_ns: int) -> _Point | None:
        drifted = self._slope() * apart_ns / _SECOND if self._weight else 0.0
        both_ns = forward.flight_ns + backward.flight_ns - drifted
        doubt_ns = self._settings.resolution_ns
        if both_ns < -2 * doubt_ns - self._settings.largest_drift_ppb * abs(apart_ns) / _SECOND:
            self.implausible += 1
            return None
        excess = both_ns / 2 - self._delay_ns
        if excess < -doubt_ns:
            # The cable is shorter than the topology says: nothing bounds the flights but 0.
            excess = both_ns / 2
        time_ns = (forward.received_ns + backward.received_ns) // 2
        return _Point(time_ns, forward.flight_ns - backward.flight_ns, max(excess, 0.0))

    def _take(self, point: _Point) -> None:
        expected = self.offset(point.time_ns)
        if expected is None:
            self._reset()
            self._add(point)
            return
        reach_ns = self._settings.jump_ns + 4 * (point.excess_ns + expected.uncertainty_ns)
        if abs(point.twice_offset_ns / 2 - expected.offset_ns) <= reach_ns:
            self._suspect = None
            self._add(point)
            return
        before, self._suspect = self._suspect, point
        if before is not None and abs(point.twice_offset_ns - before.twice_offset_ns) <= 2 * reach_ns:
            self._suspect = None
            self._reset()
            self._add(point)

    def _add(self, point: _Point) -> None:
        if not self._weight:
            self._base_ns, self._time_ns = point.twice_offset_ns // 2, point.time_ns
        self._move_to(max(point.time_ns, self._time_ns))
        t = (point.time_ns - self._time_ns) / _SECOND
        x = (point.twice_offset_ns - 2 * self._base_ns) / 2
        # What even the fastest packets take is the same for all, so that it says little of how far they scatter.
        self._least_excess_ns = min(self._least_excess_ns, point.excess_ns)
        scatter = point.excess_ns - self._least_excess_ns + point.excess_ns / 16
        weight = 1.0 / (scatter + self._settings.resolution_ns) ** 2
        self._weight += weight
        self._t += weight * t
        self._tt += weight * t * t
        self._x += weight * x
        self._tx += weight * t * x
        self._excess += weight * point.excess_ns
        self._excess2 += weight * point.excess_ns**2

    def _move_to(self, time_ns: int) -> None:
        """Count times from `time_ns`, and let what is older fade."""
        by = (time_ns - self._time_ns) / _SECOND
        if not by:
            return
        self._tt += by * (by * self._weight - 2 * self._t)
        self._tx -= by * self._x
        self._t -= by * self._weight
        self._time_ns = time_ns
        fade = math.exp(-by * _SECOND / self._settings.memory_ns)
        self._weight, self._t, self._tt = self._weight * fade, self._t * fade, self._tt * fade
        self._x, self._tx = self._x * fade, self._tx * fade
        self._excess, self._excess2 = self._excess * fade, self._excess2 * fade

    def _slope(self) -> float:
        """Return the line's slope in ppb; what the clocks may at most drift is what little data is held against."""
        return (self._tx - self._t * self._x / self._weight) / (self._spread() + self._ridge())

    def _slope_doubt(self) -> float:
        """Return the bound of the slope's error: every observation wrong by its excess, and what holds it against 0."""
        # The sum of weight * distance from the mean time * excess, at most (Cauchy and Schwarz).
        errors = math.sqrt(self._spread() * self._excess2)
        held = self._ridge() * self._settings.largest_drift_ppb
        return (errors + held) / (self._spread() + self._ridge())

    def _spread(self) -> float:
        return max(self._tt - self._t * self._t / self._weight, 0.0)

    def _ridge(self) -> float:
        return 1.0 / self._settings.largest_drift_ppb**2
