"""Shared parts of the control-loop commands: the plant as options, the columns of a margin."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.shared.amounts import in_seconds

if TYPE_CHECKING:
    from controller.balance.control.linear import LinearPlant
    from controller.balance.control.stability import Margin
    from controller.balance.control.tuning import FirstOrder

GainOption = Annotated[
    float | None,
    typer.Option("--gain", metavar="NUMBER", help="Plant gain: decrease of the error per unit of output."),
]
LagOption = Annotated[float, typer.Option("--lag", parser=in_seconds(), help="Time constant of the plant.")]
DelayOption = Annotated[float, typer.Option("--delay", parser=in_seconds(), help="Dead time of the plant.")]
PeriodOption = Annotated[float, typer.Option("--period", parser=in_seconds(), help="Sampling period.")]
AbsoluteOption = Annotated[bool, typer.Option("--absolute", help="The output sets levers instead of moving them.")]
_OVERLOAD_TOPS: Final = 1e9
"""More than any unit can do: then its error responds most."""
MARGIN: Final = ("dies away", "stable to", "phase", "delay", "to -1")
"""Columns of a margin: see `Margin`."""


def plant_of(gain: float | None, lag_s: float, delay_s: float, period_s: float) -> FirstOrder | None:
    """Return the plant that the options describe, None if they describe none; refuse an impossible one."""
    from controller.balance.control.tuning import FirstOrder  # noqa: PLC0415

    for name, value in (("--lag", lag_s), ("--delay", delay_s)):
        if not math.isfinite(value):
            raise typer.BadParameter(f"{name} {value}: expected a finite number of seconds")
    if not (period_s > 0.0 and math.isfinite(period_s)):
        raise typer.BadParameter(f"--period {period_s:g}: expected a finite number of seconds above 0")
    if gain is None:
        if lag_s or delay_s:
            raise typer.BadParameter("--lag and --delay require --gain")
        return None
    return FirstOrder(gain, lag_s, delay_s)


def unit_of(units: int, delay_s: float, period_s: float) -> LinearPlant:
    """Return the response of a unit's model with all sub-units busy and moved by the interval table."""
    from controller.balance.plants import Plant  # noqa: PLC0415
    from controller.balance.plants.linear import linearised  # noqa: PLC0415
    from controller.balance.rules import IntervalRule  # noqa: PLC0415
    from controller.balance.values import LeverKind, Precision, UnitState  # noqa: PLC0415

    model = Plant(delay_s=delay_s)
    unit = UnitState(Precision.INT8, model.reference_mhz, units)
    return linearised(model, unit, _OVERLOAD_TOPS, IntervalRule(levers=(LeverKind.SUB_UNITS,)), period_s)


def margin_cells(margin: Margin) -> tuple[object, ...]:
    """Return a margin as cells, rounded to its significant digits."""
    reach = "no" if margin.stable_to is None else _rounded(margin.stable_to)
    if not margin.is_stable:
        return ("it grows" if margin.radius > 1.0 else "no", reach, "", "", "")
    return (
        _rounded(margin.radius),
        reach,
        *(_rounded(value) for value in (margin.phase_deg, margin.delay_samples, margin.distance)),
    )


def _rounded(value: float | None) -> object:
    return "" if value is None else "any" if math.isinf(value) else float(f"{value:.3g}")
