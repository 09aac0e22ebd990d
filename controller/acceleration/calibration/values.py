"""What is known of how fast machines do operators: rates of devices, and fits of measured runs, as frozen values."""

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
"""Of all intervals: by Student's t, two-sided."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure between two bounds, how it is known, and sentences for people that say why.

    Of figures that nobody knows `value` and bounds are None and the basis is none, so that nobody computes with one.
    """

    value: float | None
    low: float | None
    high: float | None
    basis: Basis
    reasons: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.basis is Basis.NONE:
            if (self.value, self.low, self.high) != (None, None, None) or not self.reasons:
                raise CalibrationError("a figure without a basis carries no number, but says why")
            return
        low, value, high = self.numbers
        if not (math.isfinite(high) and 0 <= low <= value <= high):
            raise CalibrationError(f"{value} is no figure between {low} and {high}")

    @classmethod
    def unknown(cls, *reasons: str) -> Figure:
        """Return a figure that nobody knows, and why."""
        return cls(None, None, None, Basis.NONE, reasons)

    @classmethod
    def exactly(cls, value: float, basis: Basis, *reasons: str) -> Figure:
        """Return a figure that says nothing of its error."""
        return cls(value, value, value, basis, reasons)

    @property
    def is_known(self) -> bool:
        """Whether there is a number."""
        return self.basis is not Basis.NONE

    @property
    def numbers(self) -> tuple[float, float, float]:
        """low, value, high; raise CalibrationError, with the reasons, where they are not known."""
        if self.low is None or self.value is None or self.high is None:
            raise CalibrationError(f"not known: {'; '.join(self.reasons)}")
        return self.low, self.value, self.high

    def __str__(self) -> str:
        if self.value is None:
            return f"unknown: {'; '.join(self.reasons)}"
        bounds = "" if self.low == self.high else f" ({self.low:.4g} to {self.high:.4g})"
        return f"{self.value:.4g}{bounds}, {self.basis}"


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device does at most, as measured or as its maker says: the two roofs of a roofline, and its bus.

    Rates are a second: bytes from and to the device's memory, bytes over its bus, operations by number format (a
    multiply-add is two). `attained` is the part of the roofline that measured operators reach, `parallelism` the
    specification's M where nobody has measured an operator on both sides. `compression` is its ratio and the bytes a
    second that the device compresses. What nobody knows is None, or not among `operations_per_s`.
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
    """What becomes slower once an execution touches more than caches hold: each byte beyond takes 1 + `penalty` times.

    A time is then the sum of its features, but for the constant, times `factor`: two straight lines that meet where
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
        """Return by how much longer work takes than in caches, where it touches so many bytes."""
        if touched_bytes <= self.cached_bytes:
            return 1.0
        return 1.0 + self.penalty * (1.0 - self.cached_bytes / touched_bytes)


@dataclass(frozen=True, slots=True)
class Fit:
    """Seconds of a kind of operators on a device as a sum of features times coefficients, by least squares.

    Errors are relative ones: `residual` is their standard deviation, `covariance` that of the coefficients, over
    `runs` sizes measured; `least` and `most` are the features' ranges there. A coefficient of 0 is one that the runs
    did not ask for, and counts as none. `uncached` corrects it for sizes that caches do not hold; None where a straight
    line is as likely.
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
            raise CalibrationError(f"{owner}: there is no feature {strange[0]}", at="features")
        many = len(self.features)
        for name in ("coefficients", "least", "most", "covariance"):
            if len(getattr(self, name)) != many:
                raise CalibrationError(f"{owner}: {len(getattr(self, name))} {name} of {many} features", at=name)
        if any(len(row) != many for row in self.covariance):
            raise CalibrationError(f"{owner}: covariance is not square", at="covariance")
        if not any(self.coefficients) or any(not (math.isfinite(one) and one >= 0) for one in self.coefficients):
            raise CalibrationError(f"{owner}: coefficients are finite, not negative, and not all 0", at="coefficients")
        figures = (*self.least, *self.most, *(one for row in self.covariance for one in row))
        if not all(map(math.isfinite, figures)) or any(self.covariance[i][i] < 0 for i in range(many)):
            raise CalibrationError(f"{owner}: its covariance or its ranges are no numbers", at="covariance")
        if not (math.isfinite(self.residual) and self.residual >= 0):
            raise CalibrationError(f"{owner}: residual is {self.residual}", at="residual")
        if self.degrees < 1:
            raise CalibrationError(f"{owner}: {self.runs} runs do not tell {many} coefficients", at="runs")

    @property
    def degrees(self) -> int:
        """Degrees of freedom: sizes measured without those that the coefficients, and a correction's two, took."""
        return degrees_of(self.runs, self.coefficients, is_corrected=self.uncached is not None)

    @property
    def key(self) -> tuple[DeviceKind, str, NumberFormat | None, str]:
        """What it is of: device, kind, number format, library."""
        return self.device, self.kind, self.number_format, self.library


def degrees_of(runs: int, coefficients: Sequence[float], *, is_corrected: bool) -> int:
    """Return what a fit of so many runs leaves free: caches and penalty were chosen by the same runs, and count."""
    return runs - sum(one > 0 for one in coefficients) - 2 * is_corrected


@dataclass(frozen=True, slots=True)
class Run:
    """One measured size of an operator on a device: the shortest of its executions."""

    features: Mapping[str, float]
    seconds: float
