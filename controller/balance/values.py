"""Values shared by all parts of balancing: samples of units, gains, levers and changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from controller.balance.errors import GainsError, SampleError


@dataclass(frozen=True, slots=True)
class Sample:
    """A compute unit's report on one interval; raises SampleError if invalid.

    `time_s` is the time of measurement, on the controlling process's monotonic clock. `bus` is the occupancy P_p =
    transfer time / (transfer + idle) and `load` is P_d = processing time / (processing + idle), both 0 to 1. `unit`
    names the unit in errors.
    """

    time_s: float
    bus: float
    load: float
    unit: str = ""

    def __post_init__(self) -> None:
        if not 0.0 <= self.bus <= 1.0:  # also refuses NaN
            raise SampleError(self.unit, f"bus occupancy {self.bus:g} is not between 0 and 1")
        if not 0.0 <= self.load <= 1.0:
            raise SampleError(self.unit, f"load {self.load:g} is not between 0 and 1")
        if not math.isfinite(self.time_s):
            raise SampleError(self.unit, f"its time of {self.time_s:g} s is not finite")

    @property
    def error(self) -> float:
        """Return e = P_p - P_d: positive if the transfer is the bottleneck, negative if the cores are."""
        return self.bus - self.load


class Form(StrEnum):
    """Active terms of the controller."""

    P = "P"
    PI = "PI"
    PD = "PD"
    PID = "PID"

    @property
    def integrates(self) -> bool:
        """Return whether there is an integral term."""
        return "I" in self.value

    @property
    def differentiates(self) -> bool:
        """Return whether there is a derivative term."""
        return "D" in self.value


MOST_GAIN: Final = 1e12
"""Maximum gain of a controller or a plant: anything larger is meaningless, and its products overflow."""


@dataclass(frozen=True, slots=True)
class Gains:
    """Gains per sample: u(k) = kp e(k) + ki sum(e(0..k)) + kd (e(k) - e(k-1)).

    Raises GainsError for a gain that is below 0, not finite, or above `MOST_GAIN`.
    """

    kp: float
    ki: float = 0.0
    kd: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("kp", self.kp), ("ki", self.ki), ("kd", self.kd)):
            if not (value >= 0.0 and math.isfinite(value)):
                raise GainsError(f"{name} is {value:g}, not a finite number >= 0")
            if value > MOST_GAIN:
                raise GainsError(f"{name} is {value:g}: at most {MOST_GAIN:g}")

    def of(self, form: Form) -> Gains:
        """Return the gains of a form's active terms, with 0 for the others."""
        return Gains(self.kp, self.ki if form.integrates else 0.0, self.kd if form.differentiates else 0.0)


class LeverKind(StrEnum):
    """Kinds of levers driven by a controller's output."""

    PRECISION = "precision"
    FREQUENCY = "frequency"
    SUB_UNITS = "sub-units"
    CONCURRENCY = "concurrency"
    """Streams, worker threads or batches in flight of each sub-unit."""
    POWER = "power"
    """Cap of the power that the cores draw: hardware chooses voltage and clock below it."""


class Precision(StrEnum):
    """Precisions, from the fastest to the most exact."""

    INT4 = "int4"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    BF16 = "bf16"
    FP16 = "fp16"
    TF32 = "tf32"
    FP32 = "fp32"
    FP64 = "fp64"


STEPS: Final = tuple(step for step in Precision if step not in {Precision.BF16, Precision.TF32})
"""Steps of the specification: those of an application that does not state its own."""


@dataclass(frozen=True, slots=True)
class UnitState:
    """Positions of a unit's levers."""

    precision: Precision
    frequency_mhz: float
    sub_units: int
    concurrency: int = 1
    power_w: float = 1.0
    """Cap of the power; like a clock, only its ratios matter to a unit without this lever."""


@dataclass(frozen=True, slots=True)
class Change:
    """A rule's requested change: steps of precision, MHz, sub-units, concurrency and watts to add; 0 keeps."""

    precision_steps: int = 0
    frequency_mhz: float = 0.0
    sub_units: int = 0
    concurrency: int = 0
    power_w: float = 0.0

    @property
    def keeps(self) -> bool:
        """Return whether no lever should move."""
        return self == Change()
