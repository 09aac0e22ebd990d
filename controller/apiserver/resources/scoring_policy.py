"""ScoringPolicy: intervals that turn the figures of probe results into points, and weights that add these up.

Intervals of a figure stand in order: each begins where the one before ends, the first at 0, and the last has no end, so
every measurement has points. `from` belongs to an interval, `below` does not.
"""

from __future__ import annotations

import hashlib
import math
from itertools import pairwise
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, field

from controller.apiserver.resources.base import Name, Resource
from controller.apiserver.resources.kind import Kind, Rights, Strategy, Usage
from controller.apiserver.resources.probe_result import MOST_POINTS
from dataplane.config import Strict
from dataplane.rpc.access import Right

RUN_TIME: Final = "run-time-s"
ACCURACY: Final = "accuracy"
_DIGITS: Final = 12


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


class ScoringScales(Strict, frozen=True):
    """A probe's score: the weighted sum of its figures' points.

    A run that lacks a weighted figure has no score, and says so: figures are compared only if they rest on the same
    things.
    """

    run_time_s: Scale | None = None
    accuracy: Scale | None = None
    """By the relative error against the true value: 0 is exact."""
    # With the two above, as many as a result has points for: a 65th would make every score unwritable.
    figures: Annotated[dict[Name, Scale], Meta(max_length=MOST_POINTS - 2)] = field(default_factory=dict)
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

    @property
    def digest(self) -> str:
        """Version of the scales, 12 hexadecimal digits: equal ones give equal scores, whatever their name."""
        numbers = {
            name: (
                float(scale.weight),
                [(float(each.start), each.below and float(each.below), float(each.points)) for each in scale.intervals],
            )
            for name, scale in self.scales.items()
        }
        return hashlib.sha256(msgspec.json.encode(numbers, order="sorted")).hexdigest()[:_DIGITS]


class ScoringPolicySpec(ScoringScales, frozen=True):
    """Scales of the figures."""


class ScoringPolicyStatus(Strict, frozen=True):
    """Empty: results name the policy and version that gave their scores."""


class ScoringPolicy(Resource, frozen=True):
    """A scoring policy, for task schedulers whose settings have one of its name."""

    spec: ScoringPolicySpec
    status: ScoringPolicyStatus = ScoringPolicyStatus()
    kind: Literal["ScoringPolicy"] = "ScoringPolicy"


class ScoringPolicyStrategy(Strategy[ScoringPolicy]):
    """Scoring policies: the schema checks them; they may change at any time, as results keep their figures."""

    def usage(self, resource: ScoringPolicy) -> Usage:
        """Count nothing but the object and its size."""
        return Usage()


SCORING_POLICY = Kind(
    "ScoringPolicy",
    "scoringpolicies",
    ScoringPolicy,
    columns={
        "version": lambda policy: policy.spec.digest,
        "figures": lambda policy: " ".join(f"{name}x{scale.weight:g}" for name, scale in policy.spec.scales.items()),
        "owner": lambda policy: policy.metadata.owner,
    },
    # Scores decide prices, so writing policies takes a right of its own.
    rights=Rights(users_right=Right.SCORING),
    strategy=ScoringPolicyStrategy(),
)
