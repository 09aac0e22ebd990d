"""Gains from a first-order model with delay, as identified from a recorded step of the levers.

Rules: SIMC (Skogestad, Simple analytic rules for model reduction and PID controller tuning, 2003; derivative of a model
without an integrator by Grimholt and Skogestad, 2018) and Ziegler and Nichols' open-loop rule (1942). Both are made for
continuous controllers: a delay counts up to the sample that sees its end, and the delay of sampling itself is added.
The resulting gains are per sample. Their stability is checked by `stability`, which follows the sampled loop exactly:
SIMC's gains are stable, Ziegler and Nichols' need not be if the delay is shorter than a period.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from controller.balance.control.linear import MOST_DELAY, LinearPlant
from controller.balance.errors import GainsError
from controller.balance.values import Form, Gains

_NEARLY_ALL: Final = 0.95


@dataclass(frozen=True, slots=True)
class FirstOrder:
    """A plant as seen in its step response: the decrease of the error per unit of output, lag and delay."""

    gain: float
    lag_s: float
    delay_s: float

    def sampled(self, period_s: float, *, accumulates: bool = True) -> LinearPlant:
        """Return it as seen by a loop of this period; raise GainsError if that is out of range.

        A delay that ends between two samples counts up to the earlier one if nearly all of the response has happened by
        the later one, else up to the later one.
        """
        delay = self._delay_samples(period_s)
        if delay > MOST_DELAY:
            raise GainsError(
                f"a delay of {self.delay_s:g} s is {delay} samples of {period_s:g} s: at most {MOST_DELAY}"
            )
        return LinearPlant(
            gain=self.gain, lag_samples=self.lag_s / period_s, delay_samples=delay, accumulates=accumulates
        )

    def delay_seen_s(self, period_s: float) -> float:
        """Return its delay as seen by samples, as in `sampled`."""
        return self._delay_samples(period_s) * period_s

    def _delay_samples(self, period_s: float) -> int:
        periods = round(self.delay_s / period_s, 6)
        whole = math.floor(periods)
        left_s = (whole + 1.0 - periods) * period_s
        answered = 1.0 - math.exp(-left_s / self.lag_s) if self.lag_s > 0.0 else 1.0
        return whole if periods == whole or answered >= _NEARLY_ALL else whole + 1


class TuningRule(StrEnum):
    """Rule for gains from a model."""

    SIMC = "simc"
    ZIEGLER_NICHOLS = "ziegler-nichols"


@dataclass(frozen=True, slots=True)
class _Continuous:
    """A controller kp + ki / s + kd s."""

    kp: float
    ki_per_s: float
    kd_s: float

    def per_sample(self, period_s: float) -> Gains:
        return Gains(self.kp, self.ki_per_s * period_s, self.kd_s / period_s)


_HOLD: Final = 0.5
"""Delay, in periods, of holding a value between two samples: SIMC's models include it."""
_SAMPLING: Final = 1.0
"""Periods of delay for Ziegler and Nichols' rule: it leaves a quarter of each swing, and has no margin."""


def tuned(
    plant: FirstOrder,
    period_s: float,
    form: Form,
    rule: TuningRule = TuningRule.SIMC,
    *,
    accumulates: bool = True,
    speed_s: float | None = None,
) -> Gains:
    """Return gains per sample for a plant; `speed_s` is SIMC's time constant of the closed loop.

    It defaults to the delay, as SIMC advises, but at least a period. Raise GainsError if rule and plant are
    incompatible.
    """
    if not (period_s > 0.0 and math.isfinite(period_s)):
        raise GainsError(f"the period is {period_s:g} s, not a finite number above 0")
    plant.sampled(period_s, accumulates=accumulates)  # raises for invalid values
    seen_s = plant.delay_seen_s(period_s)
    if rule is TuningRule.ZIEGLER_NICHOLS:
        delay_s = seen_s + _SAMPLING * period_s
        return _ziegler_nichols(plant, delay_s, period_s, form, accumulates=accumulates).per_sample(period_s).of(form)
    if speed_s is not None and not speed_s > 0.0:
        raise GainsError(f"the closed loop's time constant is {speed_s:g} s, not above 0")
    delay_s = seen_s + _HOLD * period_s
    if accumulates:
        return _simc_accumulating(plant, delay_s, period_s, form, speed_s).per_sample(period_s).of(form)
    return _simc_first_order(plant, delay_s, period_s, form, speed_s).per_sample(period_s).of(form)


def _simc_accumulating(
    plant: FirstOrder, delay_s: float, period_s: float, form: Form, speed_s: float | None
) -> _Continuous:
    """Accumulating levers make an integrator of slope gain / period. The remaining lag is braked or counts as delay."""
    slope = plant.gain / period_s
    if not form.differentiates:
        delay_s += 0.5 * plant.lag_s
    closed_s = max(delay_s, period_s) if speed_s is None else speed_s
    kp = 1.0 / (slope * (closed_s + delay_s))
    ti_s = 4.0 * (closed_s + delay_s)
    td_s = plant.lag_s
    if form is Form.PID:
        series = 1.0 + td_s / ti_s  # SIMC gives gains of a series form
        return _Continuous(kp * series, kp / ti_s, kp * td_s)
    return _Continuous(kp, kp / ti_s, kp * td_s)


def _simc_first_order(
    plant: FirstOrder, delay_s: float, period_s: float, form: Form, speed_s: float | None
) -> _Continuous:
    closed_s = max(delay_s, period_s) if speed_s is None else speed_s
    if form.integrates and plant.lag_s == 0.0:
        return _Continuous(0.0, 1.0 / (plant.gain * (closed_s + delay_s)), 0.0)
    if plant.lag_s == 0.0:
        raise GainsError(f"a plant without lag whose levers do not accumulate needs an integral, not {form}")
    kp = plant.lag_s / (plant.gain * (closed_s + delay_s))
    ti_s = min(plant.lag_s, 4.0 * (closed_s + delay_s))
    return _Continuous(kp, kp / ti_s, kp * delay_s / 3.0)


def _ziegler_nichols(
    plant: FirstOrder, delay_s: float, period_s: float, form: Form, *, accumulates: bool
) -> _Continuous:
    if accumulates:
        slope, delay_s = plant.gain / period_s, delay_s + plant.lag_s
    elif plant.lag_s == 0.0:
        raise GainsError("ziegler-nichols needs a plant with lag, or levers that accumulate; use simc")
    else:
        slope = plant.gain / plant.lag_s
    gain = 1.0 / (slope * delay_s)
    match form:
        case Form.P:
            return _Continuous(gain, 0.0, 0.0)
        case Form.PI:
            return _Continuous(0.9 * gain, 0.9 * gain / (delay_s / 0.3), 0.0)
        case Form.PD | Form.PID:
            return _Continuous(1.2 * gain, 1.2 * gain / (2.0 * delay_s), 1.2 * gain * 0.5 * delay_s)
