"""Stability of gains on a plant and its margins: roots of the closed loop.

The margins are those of Astrom and Murray, Feedback Systems, chapter 10, for the sampled loop: the delay needs no
approximation, as a sampled loop with a delay is a polynomial.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from controller.balance.control.linear import Coefficients, LinearPlant, closed_loop, open_loop
from controller.balance.errors import GainsError
from controller.balance.values import Gains

_GRID: Final = 4096
_LOWEST: Final = 1e-5
"""Lowest frequency examined, in radians per sample: at least 10^5 samples per turn."""
_ON_THE_CIRCLE: Final = 1e-9
"""A root closer to the unit circle than this neither decays nor grows for certain: it counts as unstable."""


@dataclass(frozen=True, slots=True)
class Margin:
    """Distance of a loop from instability.

    `radius` is the factor by which disturbances decay (below 1) or grow each sample. All gains may be scaled by
    `stable_from` to `stable_to`; both None if no factor makes them stable. `phase_deg` and `delay_samples` are what may
    be added to the loop's phase and delay, `distance` is the least distance of the open loop's curve from -1 (0.5 and
    more is comfortable); None if the loop is unstable, infinite if nothing would make it unstable.
    """

    is_stable: bool
    radius: float
    stable_from: float | None = None
    stable_to: float | None = None
    phase_deg: float | None = None
    delay_samples: float | None = None
    distance: float | None = None


def radius_of(polynomial: Coefficients) -> float:
    """Return the largest root's absolute value, 0 for a constant."""
    roots = np.roots(polynomial)
    return float(np.max(np.abs(roots))) if len(roots) else 0.0


def radii_of(polynomials: Sequence[Coefficients]) -> NDArray[np.float64]:
    """Return `radius_of` each of many monic polynomials, all at once; shorter ones get roots at 0."""
    degree = max(len(polynomial) for polynomial in polynomials) - 1
    companions = np.zeros((len(polynomials), degree, degree))
    companions[:, 1:, :-1] = np.eye(degree - 1)
    for companion, polynomial in zip(companions, polynomials, strict=True):
        companion[0, : len(polynomial) - 1] = -polynomial[1:]
    return np.asarray(np.max(np.abs(np.linalg.eigvals(companions)), axis=1), dtype=np.float64)


def margin_of(gains: Gains, plant: LinearPlant) -> Margin:
    """Return the margin of the loop of gains on a plant."""
    radius = radius_of(closed_loop(gains, plant))
    is_stable = radius < 1.0 - _ON_THE_CIRCLE
    low, high = _stable_factors(gains, plant, is_stable=is_stable)
    if not is_stable:
        return Margin(False, radius, low, high)
    phase, delay = _phase_and_delay(gains, plant)
    curve = _curve(gains, plant, _frequencies())
    return Margin(True, radius, low, high, phase, delay, float(np.min(np.abs(1.0 + curve))))


def refuse_unstable(gains: Gains, plant: LinearPlant, name: str = "") -> Margin:
    """Return the margin of gains on a plant; raise GainsError if they are unstable there."""
    margin = margin_of(gains, plant)
    if margin.is_stable:
        return margin
    which = f"{name}: " if name else ""
    what = f"{which}kp {gains.kp:g}, ki {gains.ki:g}, kd {gains.kd:g} are unstable on a plant of {plant.in_words}"
    grows = f"errors grow {margin.radius:.3g}-fold each sample" if margin.radius > 1.0 else "errors do not die away"
    if margin.stable_to is None:
        raise GainsError(f"{what}: {grows}, and no common factor makes them stable")
    low = f"{margin.stable_from:.3g} to " if margin.stable_from else "less than "
    raise GainsError(f"{what}: {grows}; stable at {low}{margin.stable_to:.3g} times these gains")


def _frequencies() -> NDArray[np.float64]:
    return np.concatenate((np.geomspace(_LOWEST, 0.1, _GRID), np.linspace(0.1, math.pi, _GRID)[1:]))


def _curve(gains: Gains, plant: LinearPlant, frequencies: NDArray[np.float64]) -> NDArray[np.complex128]:
    above, below = open_loop(gains, plant)
    z = np.exp(1j * frequencies)
    return np.asarray(np.polyval(above, z) / np.polyval(below, z), dtype=np.complex128)


def _at(gains: Gains, plant: LinearPlant, frequency: float) -> complex:
    return complex(_curve(gains, plant, np.array([frequency]))[0])


def _stable_factors(gains: Gains, plant: LinearPlant, *, is_stable: bool) -> tuple[float | None, float | None]:
    """Return the range of factors of all gains with a stable loop: the one around 1, or the next below, else above.

    Roots can cross the unit circle only at factors -1 / L(frequency) with L real and below 0; between two of these the
    loop is either stable throughout or unstable throughout.
    """
    bounds = [0.0, *sorted(_crossing_factors(gains, plant)), math.inf]
    spans = [(low, high) for low, high in pairwise(bounds) if high - low > _ON_THE_CIRCLE * low]
    here = next((index for index, (low, high) in enumerate(spans) if low <= 1.0 < high), 0)

    def is_stable_in(index: int) -> bool:
        return 0 <= index < len(spans) and _is_stable_between(gains, plant, *spans[index])

    if not is_stable:
        tried = (*range(here, -1, -1), *range(here + 1, len(spans)))
        here = next((index for index in tried if is_stable_in(index)), -1)
        if here < 0:
            return None, None
    first = last = here
    while is_stable_in(first - 1):
        first -= 1
    while is_stable_in(last + 1):
        last += 1
    return spans[first][0], spans[last][1]


def _crossing_factors(gains: Gains, plant: LinearPlant) -> Iterable[float]:
    frequencies = _frequencies()
    curve = _curve(gains, plant, frequencies)
    is_real = np.abs(curve.imag) < _ON_THE_CIRCLE * np.abs(curve)  # signs of rounding errors mean nothing
    flips = np.flatnonzero((np.signbit(curve.imag[:-1]) != np.signbit(curve.imag[1:])) & ~(is_real[:-1] & is_real[1:]))
    for index in flips:
        low, high = float(frequencies[index]), float(frequencies[index + 1])
        if curve.imag[index] == 0.0 or curve.imag[index + 1] == 0.0:
            crossing = low if curve.imag[index] == 0.0 else high
        else:
            crossing = _root(lambda frequency: _at(gains, plant, frequency).imag, low, high)
        real = _at(gains, plant, crossing).real
        if real < 0.0:
            yield -1.0 / real
    last = _at(gains, plant, math.pi).real
    if last < 0.0:
        yield -1.0 / last


def _is_stable_between(gains: Gains, plant: LinearPlant, low: float, high: float) -> bool:
    """Return whether gains are stable at a factor well inside a range of factors."""
    inside = low + 1.0 if math.isinf(high) else 0.5 * (low + high)
    scaled = Gains(gains.kp * inside, gains.ki * inside, gains.kd * inside)
    return radius_of(closed_loop(scaled, plant)) < 1.0 - _ON_THE_CIRCLE


def _phase_and_delay(gains: Gains, plant: LinearPlant) -> tuple[float, float]:
    """Return the least phase (degrees) and delay (samples) that would bring the curve to -1; infinite if none does."""
    frequencies = _frequencies()
    sizes = np.abs(_curve(gains, plant, frequencies)) - 1.0
    phases, delays = [math.inf], [math.inf]
    for index in np.flatnonzero(np.signbit(sizes[:-1]) != np.signbit(sizes[1:])):
        crossing = _root(
            lambda frequency: abs(_at(gains, plant, frequency)) - 1.0,
            float(frequencies[index]),
            float(frequencies[index + 1]),
        )
        room = (cmath.phase(_at(gains, plant, crossing)) + math.pi) % (2.0 * math.pi)
        phases.append(math.degrees(min(room, 2.0 * math.pi - room)))
        delays.append(room / crossing)
    return min(phases), min(delays)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of a function that has different signs at both ends of an interval."""
    from scipy.optimize import brentq  # noqa: PLC0415 - half of the start of a daemon that asks for no margins

    return float(brentq(function, low, high, xtol=1e-14))
