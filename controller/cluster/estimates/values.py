"""Estimates of how long work takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from controller.cluster.estimates.errors import EstimateError


class Basis(StrEnum):
    """Basis of an estimate, firmest first.

    measured: this work (or a probe of it) ran there. history: similar work ran there before. modelled: a formula over
    measured figures. nominal: a data sheet, so nearly always too short. none: unknown.
    """

    MEASURED = "measured"
    HISTORY = "history"
    MODELLED = "modelled"
    NOMINAL = "nominal"
    NONE = "none"


FIRMNESS: Final = tuple(Basis)
"""From the firmest to the weakest."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The same work done the plain way, for comparison: name of that way ("one core", "last value"), and time."""

    name: str
    seconds: float

    def __post_init__(self) -> None:
        if not self.name:
            raise EstimateError("a baseline without a name")
        if not _is_time(self.seconds):
            raise EstimateError(f"baseline {self.name}: {self.seconds} s is not a valid time")


@dataclass(frozen=True, slots=True)
class Estimate:
    """Time that work takes in seconds, with its known bounds.

    `seconds`, `low` and `high` are finite and low <= seconds <= high; all three are None if the basis is none, so that
    nothing computes with an unknown time. `baseline` is the same work done the plain way. `reasons` are sentences for
    people, one per line: the evidence and what was left out, or why the time is unknown.
    """

    seconds: float | None
    low: float | None
    high: float | None
    basis: Basis
    baseline: Baseline | None = None
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        figures = (self.low, self.seconds, self.high)
        if any("\n" in reason or not reason for reason in self.reasons):
            raise EstimateError(f"reasons of an estimate are lines of text, not {self.reasons!r}")
        if self.basis is Basis.NONE:
            if any(figure is not None for figure in figures):
                raise EstimateError("an estimate without a basis carries a time")
            if not self.reasons:
                raise EstimateError("an estimate without a basis needs a reason")
            return
        low, seconds, high = (math.nan if figure is None else figure for figure in figures)
        if not all(map(_is_time, (low, seconds, high))):
            raise EstimateError(f"{self.low}, {self.seconds}, {self.high} s ({self.basis}) are not valid times")
        if not low <= seconds <= high:
            raise EstimateError(f"{seconds} s is not between {low} and {high} s")

    @classmethod
    def unknown(cls, *reasons: str) -> Estimate:
        """Return an unknown estimate, with the reasons."""
        return cls(None, None, None, Basis.NONE, None, reasons)

    @classmethod
    def exactly(cls, seconds: float, basis: Basis, *reasons: str, baseline: Baseline | None = None) -> Estimate:
        """Return an estimate without spread, for formulas that state no error."""
        return cls(seconds, seconds, seconds, basis, baseline, reasons)

    @classmethod
    def measured(cls, samples: Sequence[float], *reasons: str, baseline: Baseline | None = None) -> Estimate:
        """Return the mean of measured times, bounded by the shortest and the longest (not a confidence interval)."""
        if not samples:
            return cls.unknown("no run has been measured", *reasons)
        low, high = min(samples), max(samples)
        # Rounding may put the mean of equal samples just outside them.
        mean = min(max(math.fsum(samples) / len(samples), low), high)
        return cls(mean, low, high, Basis.MEASURED, baseline, (f"mean of {len(samples)} runs", *reasons))

    @property
    def is_known(self) -> bool:
        """True if the time is known."""
        return self.basis is not Basis.NONE

    @property
    def times(self) -> tuple[float, float, float]:
        """low, seconds, high; raise EstimateError, with the reasons, if they are not known."""
        if self.low is None or self.seconds is None or self.high is None:
            raise EstimateError(f"the time is unknown: {'; '.join(self.reasons)}")
        return self.low, self.seconds, self.high

    @property
    def ratio(self) -> float | None:
        """Speedup over the baseline, above 1 if faster; None if either time is unknown or zero."""
        if self.baseline is None or not self.seconds:
            return None
        return self.baseline.seconds / self.seconds

    def __str__(self) -> str:
        if self.seconds is None:
            return f"unknown: {'; '.join(self.reasons)}"
        bounds = "" if self.low == self.high else f" ({self.low:.4g} to {self.high:.4g})"
        return f"{self.seconds:.4g} s{bounds}, {self.basis}"


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds >= 0
