"""A plant linearised at its operating point: gain, lag, delay, accumulating levers; and its loop in virtual time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from controller.balance.control.pid import PidSettings, PidState, step
from controller.balance.errors import GainsError
from controller.balance.values import MOST_GAIN, Gains, Sample
from dataplane.config import Strict

Coefficients = NDArray[np.floating[Any]]
"""Coefficients of a polynomial in z, the highest power first."""
MOST_DELAY: Final = 50
"""Maximum delay in samples, because the polynomial's degree grows with it. A longer delay means too fast sampling."""

MOST_LAG: Final = 10_000.0
"""Maximum lag in samples: beyond it, rounding decides what is stable."""


class LinearPlant(Strict, frozen=True):
    """Response of the error to the output, near the balance; raises GainsError for invalid values.

    e(k) = d(k) - y(k), where d is the disturbance, and y(k+1) = a y(k) + (1 - a) gain m(k - delay), a = exp(-1 / lag).
    m is the output, or the sum of all outputs if levers accumulate.
    """

    gain: float
    """Final decrease of the error for levers that are one unit of output further."""
    lag_samples: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """Time constant in samples: after this many, 63 % of the response has happened."""
    delay_samples: Annotated[int, msgspec.Meta(ge=0, le=MOST_DELAY)] = 0
    """Samples until the response begins, beyond the one that each output takes."""
    accumulates: bool = True
    """True if each output moves the levers on from their position, as in the interval table."""

    def __post_init__(self) -> None:
        if not (self.gain > 0.0 and math.isfinite(self.gain)):
            raise GainsError(f"the plant's gain is {self.gain:g}, not a finite number above 0")
        if self.gain > MOST_GAIN:
            raise GainsError(f"the plant's gain is {self.gain:g}: at most {MOST_GAIN:g}")
        if not (self.lag_samples >= 0.0 and math.isfinite(self.lag_samples)):
            raise GainsError(f"the plant's lag is {self.lag_samples:g} samples, not a finite number >= 0")
        if self.lag_samples > MOST_LAG:
            raise GainsError(
                f"the plant's lag is {self.lag_samples:g} samples, at most {MOST_LAG:g}: sample less often"
            )

    @property
    def pole(self) -> float:
        """Return a, the share of the response that a sample leaves unchanged."""
        return math.exp(-1.0 / self.lag_samples) if self.lag_samples > 0.0 else 0.0

    @property
    def in_words(self) -> str:
        """Return the plant in a few words."""
        levers = "levers accumulate" if self.accumulates else "levers do not accumulate"
        return f"gain {self.gain:g}, lag {self.lag_samples:g} samples, delay {self.delay_samples}, {levers}"


def open_loop(gains: Gains, plant: LinearPlant) -> tuple[Coefficients, Coefficients]:
    """Return numerator and denominator, in z, of controller times plant.

    The controller is kp + ki z / (z - 1) + kd (z - 1) / z; without an integral its (z - 1) is omitted, as a common
    factor would be a root on the unit circle that the loop does not have.
    """
    z, integrator = np.array([1.0, 0.0]), np.array([1.0, -1.0])
    above: Coefficients = np.polyadd(gains.kp * z, gains.kd * integrator)
    below = z
    if gains.ki > 0.0:
        above = np.polyadd(np.polymul(above, integrator), gains.ki * np.polymul(z, z))
        below = np.polymul(below, integrator)
    above = above * plant.gain * (1.0 - plant.pole)
    below = np.polymul(below, np.array([1.0, -plant.pole]))
    if plant.accumulates:
        above, below = np.polymul(above, z), np.polymul(below, integrator)
    return above, np.concatenate((below, np.zeros(plant.delay_samples)))


def closed_loop(gains: Gains, plant: LinearPlant) -> Coefficients:
    """Return the characteristic polynomial of the loop, monic: the plant responds one sample after the output."""
    above, below = open_loop(gains, plant)
    polynomial = np.polyadd(below, above)
    monic: Coefficients = polynomial / polynomial[0]
    return monic


def errors_in_loop(settings: PidSettings, plant: LinearPlant, disturbed: Sequence[float]) -> Iterator[float]:
    """Yield the error of each sample of a controlled plant under the disturbance `disturbed`, d(k).

    Errors stay within -1 and 1, because occupancy and load stay within 0 and 1.
    """
    state, answer, levers = PidState(), 0.0, 0.0
    waiting = deque([0.0] * plant.delay_samples)
    period_s = settings.period_s or 1.0
    for index, pushed in enumerate(disturbed):
        error = min(max(pushed - answer, -1.0), 1.0)
        yield error
        state, output = step(settings, state, Sample(index * period_s, max(error, 0.0), max(-error, 0.0)))
        levers = levers + output if plant.accumulates else output
        waiting.append(levers)
        answer = plant.pole * answer + (1.0 - plant.pole) * plant.gain * waiting.popleft()
