"""Operator speeds of machines: rates of devices and fits of measured runs, as frozen values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.acceleration.calibration.errors import CalibrationError
from controller.acceleration.calibration.features import FEATURES
from controller.cluster.estimates import Basis
from dataplane.topology.values import DeviceKind, NumberFormat

CONFIDENCE: Final = 0.95
"""Confidence level of all intervals: by Student's t, two-sided."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure between two bounds, with its basis and sentences that explain it to people.

    For unknown figures `value` and bounds are None and the basis is none, so that they cannot be used in computations.
    """

    value: float | None
    low: float | None
    high: float | None
    basis: Basis
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.basis is Basis.NONE:
            if (self.value, self.low, self.high) != (None, None, None) or not self.reasons:
                raise CalibrationError("a figure without a basis must have no number, but a reason")
            return
        low, value, high = self.numbers
        if not (math.isfinite(high) and 0 <= low <= value <= high):
            raise CalibrationError(f"{value} is not a figure between {low} and {high}")

    @classmethod
    def unknown(cls, *reasons: str) -> Figure:
        """Return an unknown figure with the reason."""
        return cls(None, None, None, Basis.NONE, reasons)

    @classmethod
    def exactly(cls, value: float, basis: Basis, *reasons: str) -> Figure:
        """Return a figure without an error estimate."""
        return cls(value, value, value, basis, reasons)

    @property
    def is_known(self) -> bool:
        """True if there is a number."""
        return self.basis is not Basis.NONE

    @property
    def numbers(self) -> tuple[float, float, float]:
        """low, value, high; raise CalibrationError, with the reasons, if unknown."""
        if self.low is None or self.value is None or self.high is None:
            raise CalibrationError(f"unknown: {'; '.join(self.reasons)}")
        return self.low, self.value, self.high

    def __str__(self) -> str:
        if self.value is None:
            return f"unknown: {'; '.join(self.reasons)}"
        bounds = "" if self.low == self.high else f" ({self.low:.4g} to {self.high:.4g})"
        return f"{self.value:.4g}{bounds}, {self.basis}"


@dataclass(frozen=True, slots=True)
class Rates:
    """Peak rates of a device, measured or from the maker: the two roofs of a roofline, and its bus.

    Rates are per second: bytes from and to the device's memory, bytes over its bus, operations by number format (a
    multiply-add is two). `attained` is the part of the roofline that measured operators reach, `parallelism` the
    specification's M if no operator was measured on both sides. `compression` is its ratio and the bytes per second
    that the device compresses. Unknown rates are None, or missing from `operations_per_s`.
    """

    device: DeviceKind
    model: str = ""
    memory_bytes_per_s: Figure | None = None
    bus_bytes_per_s: Figure | None = None
    operations_per_s: Mapping[NumberFormat, Figure] = field(default_factory=dict)
    attained: Figure | None = None
    parallelism: Figure | None = None
    compression: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Uncached:
    """Slow-down of an execution that touches more than caches hold: each byte beyond takes 1 + `penalty` times.

    A time is then the sum of its features, except the constant, times `factor`: two straight lines that meet where
    caches are full, neither of which falls. `most_bytes` is the most that a measured run touched.
    """

    cached_bytes: float
    penalty: float
    most_bytes: float

    def __post_init__(self) -> None:
        for name in ("cached_bytes", "penalty", "most_bytes"):
            if not (math.isfinite(value := getattr(self, name)) and value > 0):
                raise CalibrationError(f"{name} is {value}, not above 0 and finite", at=f"uncached.{name}")

    def factor(self, touched_bytes: float) -> float:
        """Return the slow-down relative to work in caches, for this many bytes touched."""
        if touched_bytes <= self.cached_bytes:
            return 1.0
        return 1.0 + self.penalty * (1.0 - self.cached_bytes / touched_bytes)


@dataclass(frozen=True, slots=True)
class Fit:
    """Seconds of a kind of operator on a device as a sum of features times coefficients, by least squares.

    Errors are relative: `residual` is their standard deviation, `covariance` that of the coefficients, over `runs`
    measured sizes; `least` and `most` are the features' ranges there. A coefficient of 0 was not needed by the runs and
    does not count. `uncached` corrects it for sizes beyond caches; None if a straight line is as likely.
    """

    device: DeviceKind
    library: str
    kind: str
    number_format: NumberFormat | None
    features: tuple[str, ...]
    coefficients: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]
    residual: float
    runs: int
    least: tuple[float, ...]
    most: tuple[float, ...]
    uncached: Uncached | None = None

    def __post_init__(self) -> None:
        owner = f"{self.kind} on {self.device}" + (f" by {self.library}" if self.library else "")
        if strange := [name for name in self.features if name not in FEATURES]:
            raise CalibrationError(f"{owner}: unknown feature {strange[0]}", at="features")
        many = len(self.features)
        for name in ("coefficients", "least", "most", "covariance"):
            if len(getattr(self, name)) != many:
                raise CalibrationError(f"{owner}: {len(getattr(self, name))} {name} of {many} features", at=name)
        if any(len(row) != many for row in self.covariance):
            raise CalibrationError(f"{owner}: covariance is not square", at="covariance")
        if not any(self.coefficients) or any(
            not (math.isfinite(coefficient) and coefficient >= 0) for coefficient in self.coefficients
        ):
            raise CalibrationError(
                f"{owner}: coefficients must be finite, not negative, and not all 0", at="coefficients"
            )
        figures = (*self.least, *self.most, *(entry for row in self.covariance for entry in row))
        if not all(map(math.isfinite, figures)) or any(self.covariance[i][i] < 0 for i in range(many)):
            raise CalibrationError(f"{owner}: its covariance or ranges are not finite", at="covariance")
        if not (math.isfinite(self.residual) and self.residual >= 0):
            raise CalibrationError(f"{owner}: residual is {self.residual}", at="residual")
        if self.degrees < 1:
            raise CalibrationError(f"{owner}: {self.runs} runs do not determine {many} coefficients", at="runs")

    @property
    def degrees(self) -> int:
        """Degrees of freedom: measured sizes minus the coefficients, and two for a correction."""
        return degrees_of(self.runs, self.coefficients, is_corrected=self.uncached is not None)

    @property
    def key(self) -> tuple[DeviceKind, str, NumberFormat | None, str]:
        """Identity of the fit: device, kind, number format, library."""
        return self.device, self.kind, self.number_format, self.library


def degrees_of(runs: int, coefficients: Sequence[float], *, is_corrected: bool) -> int:
    """Return the degrees of freedom after a fit of this many runs; caches and penalty are fitted, too, and count."""
    return runs - sum(coefficient > 0 for coefficient in coefficients) - 2 * is_corrected


@dataclass(frozen=True, slots=True)
class Run:
    """One measured size of an operator on a device: the shortest of its executions."""

    features: Mapping[str, float]
    seconds: float
