"""Speed-up and efficiency of one probe against the number of units that it runs on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.probing.evaluation.averages import Averaged, averaged


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Result on this many units: the mean run time, and the speed-up over the fewest units measured.

    `efficiency` is the speed-up divided by the ratio of unit counts: 1 if speed grows with the units. Bounds combine
    those of both means' 95 % confidence intervals, each at its worst.
    """

    units: int
    run_time_s: Averaged
    speed_up: float
    speed_up_low: float
    speed_up_high: float
    efficiency: float
    efficiency_low: float
    efficiency_high: float


def curve_of(run_times_s: Mapping[int, Sequence[float]]) -> tuple[CurvePoint, ...]:
    """Return the curve of repeated run times by number of units, the fewest first; skips counts without a time."""
    measured = {units: averaged(run_times_s[units]) for units in sorted(run_times_s) if units > 0}
    means = {units: found for units, found in measured.items() if found is not None and found.mean > 0}
    if not means:
        return ()
    fewest, first = next(iter(means.items()))
    return tuple(_point(units, found, fewest, first) for units, found in means.items())


def _point(units: int, found: Averaged, fewest: int, first: Averaged) -> CurvePoint:
    speed_ups = (first.mean / found.mean, first.low / found.high, first.high / max(found.low, 1e-3 * found.mean))
    if units == fewest:
        speed_ups = (1.0, 1.0, 1.0)
    times = units / fewest
    return CurvePoint(units, found, *speed_ups, *(speed_up / times for speed_up in speed_ups))
