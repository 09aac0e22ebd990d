"""The loop of each form, tuned for one plant: gains, margin, and step response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from controller.balance.control.linear import LinearPlant, errors_in_loop
from controller.balance.control.pid import PidSettings
from controller.balance.control.response import Figures, figures_of
from controller.balance.control.stability import Margin, margin_of
from controller.balance.control.tuning import FirstOrder, TuningRule, tuned
from controller.balance.errors import GainsError
from controller.balance.values import Form, Gains

PUSHED: Final = 0.5
"""The initial error of a trial: that of the worked example."""
_LEAST_STEPS: Final = 60
_MOST_STEPS: Final = 5000


@dataclass(frozen=True, slots=True)
class TunedLoop:
    """A form's loop: gains and margin, None if the rule has none for this plant, as `why_not` explains.

    `errors` are those of each sample from the disturbance on, at `times_s`; empty if the loop is unstable.
    """

    form: Form
    gains: Gains | None = None
    margin: Margin | None = None
    times_s: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    figures: Figures | None = None
    why_not: str = ""


def tuned_loops(
    plant: FirstOrder,
    period_s: float,
    rule: TuningRule = TuningRule.SIMC,
    *,
    accumulates: bool = True,
    speed_s: float | None = None,
) -> tuple[TunedLoop, ...]:
    """Return the loop of each form; raise GainsError if the rule has gains for none of them."""
    loops: list[TunedLoop] = []
    for form in Form:
        try:
            gains = tuned(plant, period_s, form, rule, accumulates=accumulates, speed_s=speed_s)
        except GainsError as error:
            loops.append(TunedLoop(form, why_not=str(error)))
            continue
        loops.append(_tried(form, gains, plant.sampled(period_s, accumulates=accumulates), period_s))
    if all(loop.gains is None for loop in loops):
        raise GainsError(loops[0].why_not)
    return tuple(loops)


def _tried(form: Form, gains: Gains, plant: LinearPlant, period_s: float) -> TunedLoop:
    margin = margin_of(gains, plant)
    if not margin.is_stable:
        return TunedLoop(form, gains, margin)
    settings = PidSettings(form=form, kp=gains.kp, ki=gains.ki, kd=gains.kd)
    steps = min(max(_LEAST_STEPS, round(20 * (plant.lag_samples + plant.delay_samples + 1))), _MOST_STEPS)
    errors = tuple(errors_in_loop(settings, plant, [PUSHED] * steps))
    times_s = tuple(index * period_s for index in range(steps))
    return TunedLoop(form, gains, margin, times_s, errors, figures_of(times_s, errors))
