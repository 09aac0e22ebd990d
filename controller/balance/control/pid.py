"""The control law, sample by sample: literal, and with the additions that production needs.

The discrete form is u(k) = kp e(k) + ki sum(e(i), i <= k) + kd (e(k) - e(k-1)). `literal` is that and nothing else.
`step` gives the same unless its limits, threshold or period apply; the integral is stored as its contribution to the
output, so that another ki changes only later additions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from controller.balance.errors import SampleError
from controller.balance.values import Form, Gains, Sample
from dataplane.config import Settings

NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]
Error = Annotated[float, msgspec.Meta(ge=-1.0, le=1.0)]


_SHORTEST: Final = 0.1
"""Minimum number of periods over which a slope is computed: noise over a shorter time would dominate it."""


class AntiWindup(StrEnum):
    """Treatment of the integral while the output is at a limit or no lever can follow."""

    NONE = "none"
    CLAMP = "clamp"
    BACK_CALCULATION = "back-calculation"


class PidSettings(Settings, frozen=True):
    """One controller's form, gains and limits."""

    form: Form = Form.P
    """Active terms: P, PI, PD or PID."""
    kp: NotNegative = 1.0
    """Output per error."""
    ki: NotNegative = 0.0
    """Output per error and sample."""
    kd: NotNegative = 0.0
    """Output per change of the error between samples."""
    target: Error = 0.0
    """Target error: above 0 keeps some of the cores free, below 0 some of the bus."""
    threshold: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.0
    """Control stops once the error is closer than this to the target: the output is 0 and the integral is reset."""
    low: Annotated[float, msgspec.Meta(le=0.0)] = -1.0
    """Minimum output."""
    high: NotNegative = 1.0
    """Maximum output."""
    period_s: Annotated[float, msgspec.Meta(gt=0.0)] | None = None
    """Nominal sampling period.

    Late or early samples then count by the time that passed. Without it each counts as one, as in the discrete form.
    """
    longest_gap: Annotated[float, msgspec.Meta(ge=1.0)] = 3.0
    """Maximum gap between samples in periods.

    What happens in a longer gap is unknown: it adds no more to the integral, and nothing to the derivative.
    """
    anti_windup: AntiWindup = AntiWindup.CLAMP
    """Treatment of the integral at a limit."""
    derivative_on_measurement: bool = True
    """Avoids a kick when the target changes: differentiates the measurement, not its distance to the target."""
    derivative_filter: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.0
    """Share of the last derivative that is kept, to reduce noise."""

    def __post_init__(self) -> None:
        Gains(self.kp, self.ki, self.kd)  # raises for invalid values

    @property
    def gains(self) -> Gains:
        """Return the gains of the active terms."""
        return Gains(self.kp, self.ki, self.kd).of(self.form)


@dataclass(frozen=True, slots=True)
class PidState:
    """State of a controller; `integral` is its contribution to the output, `slope` per sample."""

    time_s: float | None = None
    measured: float = 0.0
    error: float = 0.0
    slope: float = 0.0
    integral: float = 0.0
    output: float = 0.0
    rests: bool = False


class Blocked(StrEnum):
    """Outputs that no lever can follow because all are at their stops."""

    NO = "no"
    UP = "up"
    DOWN = "down"
    BOTH = "both"

    def stops(self, value: float) -> bool:
        """Return whether an output of this sign moves nothing."""
        return self is Blocked.BOTH or (value > 0 and self is Blocked.UP) or (value < 0 and self is Blocked.DOWN)


def literal(gains: Gains, errors: Sequence[float]) -> Iterator[float]:
    """Yield u(k) for errors e(0), e(1), ... by the discrete form; e(-1) is e(0), as nothing came before."""
    total, before = 0.0, errors[0] if errors else 0.0
    for error in errors:
        total += error
        yield gains.kp * error + gains.ki * total + gains.kd * (error - before)
        before = error


def step(
    settings: PidSettings,
    state: PidState,
    sample: Sample,
    gains: Gains | None = None,
    blocked: Blocked = Blocked.NO,
) -> tuple[PidState, float]:
    """Return the next state and the output u for a sample; gains default to those of the settings.

    Raise SampleError for a sample that is not newer than the last.
    """
    acting = settings.gains if gains is None else gains.of(settings.form)
    elapsed = _elapsed(settings, state, sample)
    error = sample.error - settings.target
    slope = _slope(settings, state, sample, elapsed)
    at = PidState(sample.time_s, sample.error, error, slope, state.integral)
    if abs(error) < settings.threshold:
        return replace(at, integral=0.0, rests=True), 0.0
    added = acting.ki * error * min(elapsed, settings.longest_gap)
    others = acting.kp * error + acting.kd * slope
    integral, output = _limited(settings, state.integral, added, others, blocked)
    return replace(at, integral=integral, output=output), output


def retuned(before: PidSettings, after: PidSettings, state: PidState, old: Gains, new: Gains) -> PidState:
    """Return the state for other settings and gains that keeps the output at the present error (bumpless transfer).

    The integral absorbs the difference, including that of another target, within the limits. A form without an integral
    cannot absorb a difference: its output steps to the new value. One that had no integral starts from there.
    """
    error = state.measured - after.target
    if not after.form.integrates:
        return replace(state, error=error, integral=0.0)
    if state.rests:
        return replace(state, error=error)
    terms = new.kp * error + new.kd * state.slope
    was = old.kp * state.error + old.kd * state.slope + state.integral
    kept = min(max(was, before.low, after.low), before.high, after.high) - terms
    return replace(state, error=error, integral=kept)


def slope_of(settings: PidSettings, state: PidState, sample: Sample) -> float:
    """Return the error's change per sample, filtered; 0 without an earlier sample."""
    return _slope(settings, state, sample, _elapsed(settings, state, sample))


def _elapsed(settings: PidSettings, state: PidState, sample: Sample) -> float:
    """Return the periods since the last sample."""
    if state.time_s is None:
        return 1.0
    passed_s = sample.time_s - state.time_s
    if passed_s <= 0.0:
        raise SampleError(
            sample.unit, f"the sample at {sample.time_s:g} s is not newer than that at {state.time_s:g} s"
        )
    return 1.0 if settings.period_s is None else passed_s / settings.period_s


def _slope(settings: PidSettings, state: PidState, sample: Sample, elapsed: float) -> float:
    if state.time_s is None or elapsed > settings.longest_gap:
        return 0.0
    if settings.derivative_on_measurement:
        change = sample.error - state.measured
    else:
        change = sample.error - settings.target - state.error
    kept = settings.derivative_filter
    return kept * state.slope + (1.0 - kept) * change / max(elapsed, _SHORTEST)


def _limited(
    settings: PidSettings, integral: float, added: float, others: float, blocked: Blocked
) -> tuple[float, float]:
    """Return the integral with as much of its increment as allowed, and the output within its limits."""
    wanted = others + integral + added
    output = min(max(wanted, settings.low), settings.high)
    match settings.anti_windup:
        case AntiWindup.NONE:
            return integral + added, output
        case AntiWindup.CLAMP:
            pushes = (wanted - output) * added > 0.0 or blocked.stops(added)
            return (integral if pushes else integral + added), output
        case AntiWindup.BACK_CALCULATION:
            if blocked.stops(added):
                return integral, output
            return integral + added - math.copysign(min(abs(wanted - output), abs(added)), wanted - output), output
