"""Scoring policies: intervals that turn each figure into points, and the figure's weight.

Intervals of a figure stand in order: each begins where the one before ends, the first at 0, and the last has no end, so
every measurement has points. `from` belongs to an interval, `below` does not.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from msgspec import Meta, field

from controller.apiserver.resources.base import Name
from dataplane.config import Strict, load


class Interval(Strict, frozen=True, rename={"start": "from"}):
    """Figures from one bound to below the other, and their points."""

    points: float
    start: float = 0.0
    below: float | None = None
    """Null: unbounded."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.start) and self.start >= 0):
            raise ValueError(f"from: {self.start} is not finite and >= 0")
        if not math.isfinite(self.points):
            raise ValueError(f"points: {self.points} is not finite")
        if self.below is None:
            return
        if not math.isfinite(self.below):
            raise ValueError(f"below: {self.below} is not finite; leave it out for no upper bound")
        if self.below <= self.start:
            raise ValueError(f"from {self.start:g} to below {self.below:g}: bounds are reversed")

    def __contains__(self, figure: float) -> bool:
        return self.start <= figure and (self.below is None or figure < self.below)


class Scale(Strict, frozen=True):
    """Points of a figure, and its weight in the score."""

    intervals: Annotated[tuple[Interval, ...], Meta(min_length=1, max_length=1000)]
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise ValueError(f"weight: {self.weight} is not above 0")
        if self.intervals[0].start != 0:
            raise ValueError(f"intervals[0].from: below {self.intervals[0].start:g} figures have no points: a gap")
        for index, (before, after) in enumerate(pairwise(self.intervals), 1):
            if before.below is None:
                raise ValueError(f"intervals[{index - 1}].below: only the last interval may lack an end: an overlap")
            if before.below != after.start:
                what = "a gap" if before.below < after.start else "an overlap"
                raise ValueError(
                    f"intervals[{index}].from: begins at {after.start:g}, the one before ends below {before.below:g}:"
                    f" {what}"
                )
        if (end := self.intervals[-1].below) is not None:
            raise ValueError(
                f"intervals[{len(self.intervals) - 1}].below: from {end:g} on figures have no points: a gap"
            )

    def points(self, figure: float) -> float:
        """Return the points of a figure (finite, at least 0)."""
        return next(interval.points for interval in self.intervals if figure in interval)


class Policy(Strict, frozen=True):
    """A probe's score: the weighted sum of its figures' points.

    A run that lacks a weighted figure has no score, and says so: figures are compared only if they rest on the same
    things.
    """

    name: Name = "default"
    run_time_s: Scale | None = None
    accuracy: Scale | None = None
    """By the relative error against the true value: 0 is exact."""
    figures: Annotated[dict[Name, Scale], Meta(max_length=64)] = field(default_factory=dict)
    """Any other figures that runs measure, by name."""

    def __post_init__(self) -> None:
        if not self.scales:
            raise ValueError("a policy must weigh something: run_time_s, accuracy or figures")
        if taken := sorted({RUN_TIME, ACCURACY} & self.figures.keys()):
            raise ValueError(f"figures.{taken[0]}: has a key of its own")

    @property
    def scales(self) -> dict[str, Scale]:
        """The weighted figures' scales, by name."""
        own = {RUN_TIME: self.run_time_s, ACCURACY: self.accuracy}
        return {name: scale for name, scale in own.items() if scale is not None} | self.figures


RUN_TIME = "run-time-s"
ACCURACY = "accuracy"

DEFAULT = Policy(
    run_time_s=Scale(
        weight=0.7,
        intervals=(
            *(
                Interval(start=low, below=high, points=points)
                for low, high, points in (
                    (0.0, 0.5, 100.0),
                    (0.5, 1.0, 90.0),
                    (1.0, 2.0, 75.0),
                    (2.0, 4.0, 60.0),
                    (4.0, 8.0, 45.0),
                    (8.0, 16.0, 30.0),
                    (16.0, 32.0, 15.0),
                )
            ),
            Interval(start=32.0, points=0.0),
        ),
    ),
    accuracy=Scale(
        weight=0.3,
        intervals=(
            Interval(start=0.0, below=1e-12, points=100.0),
            Interval(start=1e-12, below=1e-6, points=80.0),
            Interval(start=1e-6, below=1e-3, points=50.0),
            Interval(start=1e-3, points=0.0),
        ),
    ),
)


def load_policy(path: Path) -> Policy:
    """Return the policy of a settings file, YAML or TOML; raise ConfigError with file, line and key."""
    return load(path, Policy)
