"""Convergence of a training: a test that all workers of a job state alike, and that ends it at the same step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from dataplane.errors import AllReduceError

Measure: TypeAlias = Literal["loss", "gradient"]
"""The mean of the losses that workers report, or the norm of the mean gradient."""

MEASURES: Final[tuple[Measure, ...]] = ("loss", "gradient")
_MOST_STEPS: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Convergence:
    """A measure below a bound for a number of steps in a row."""

    measure: Measure
    below: float
    steps: int = 1

    def __post_init__(self) -> None:
        """Raise AllReduceError for a test that nothing can pass."""
        if self.measure not in MEASURES:
            raise AllReduceError(f"convergence of {self.measure!r} is not of {' or '.join(MEASURES)}")
        if not (self.below > 0 and math.isfinite(self.below)) or not 1 <= self.steps <= _MOST_STEPS:
            raise AllReduceError(
                f"convergence below {self.below} for {self.steps} steps: the bound must be positive and finite, the "
                f"steps 1 to {_MOST_STEPS}"
            )

    def __str__(self) -> str:
        what = "mean loss" if self.measure == "loss" else "norm of the mean gradient"
        return f"{what} below {self.below:g} for {self.steps} step{'' if self.steps == 1 else 's'}"


@dataclass(slots=True)
class ConvergenceTest:
    """A test's progress; the same at all workers, as each step's value is."""

    terms: Convergence
    passed: int = 0
    """Steps in a row whose value was below the bound."""

    def note(self, value: float) -> bool:
        """Take a step's value; return whether the training has converged. NaN is not below any bound."""
        self.passed = self.passed + 1 if value < self.terms.below else 0
        return self.passed >= self.terms.steps
