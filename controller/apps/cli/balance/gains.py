"""`millrace balance gains`: a controller's initial gains, and their stability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.balance.loops import (
    MARGIN,
    AbsoluteOption,
    DelayOption,
    GainOption,
    LagOption,
    PeriodOption,
    margin_cells,
    plant_of,
    unit_of,
)
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from controller.balance.control.expert import ExpertRule
    from controller.balance.control.linear import LinearPlant
    from controller.balance.values import Form, Gains


def gains(  # noqa: PLR0917 - a command line's options
    kp: Annotated[float, typer.Option(help="Output per error, near the balance.")] = 1.0,
    ki: Annotated[float, typer.Option(help="Output per error and sample; 0: the rule's usual share of kp.")] = 0.05,
    kd: Annotated[float, typer.Option(help="Output per change of the error; 0: the rule's usual share of kp.")] = 0.1,
    law: Annotated[str, typer.Option("--form", metavar="P|PI|PD|PID", help="Terms of the controller.")] = "PID",
    units: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", min=1, max=100_000, help="Use a unit's model with this many sub-units as plant."
        ),
    ] = None,
    gain: GainOption = None,
    lag: LagOption = 0.0,
    delay: DelayOption = 0.0,
    period: PeriodOption = 1.0,
    absolute: AbsoluteOption = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the initial gains of the expert rule, by the size of the error and of its change.

    With --gain, --lag and --delay, or with --units and --delay, the gains are checked against that plant: how quickly
    errors decay (factor per sample), how many times as large all gains may be, what additional phase (degrees) and
    delay (samples) are tolerated, and how far the loop's curve stays from -1. Unstable gains are refused.
    """
    from controller.balance.control.expert import around  # noqa: PLC0415
    from controller.balance.values import Gains  # noqa: PLC0415

    acting = form_of(law)
    rule = around(Gains(kp, ki, kd))
    plant = _plant(units, gain, lag, delay, period, absolute=absolute)
    columns = ("error", "change", "kp", "ki", "kd", *(MARGIN if plant is not None else ()))
    rows = [(*where, *_cells(rule.of_row(row).of(acting), plant, where)) for row, where in enumerate(_ranges(rule))]
    show(columns, rows, form)


def _plant(
    units: int | None, gain: float | None, lag_s: float, delay_s: float, period_s: float, *, absolute: bool
) -> LinearPlant | None:
    if units is None:
        plant = plant_of(gain, lag_s, delay_s, period_s)
        return None if plant is None else plant.sampled(period_s, accumulates=not absolute)
    if gain is not None or lag_s or absolute:
        raise typer.BadParameter("--units excludes --gain, --lag and --absolute: it is a model of a unit")
    plant_of(1.0, 0.0, delay_s, period_s)  # for the errors that it raises
    return unit_of(units, delay_s, period_s)


def form_of(text: str) -> Form:
    """Return a controller's form; refuse any other word."""
    from controller.balance.values import Form  # noqa: PLC0415

    if text.upper() not in set(Form):
        raise typer.BadParameter(f"--form {text}: expected one of {', '.join(Form)}")
    return Form(text.upper())


def _ranges(rule: ExpertRule) -> tuple[tuple[str, str], ...]:
    return (
        (f"|e| >= {rule.far:g}", "any"),
        (f"{rule.near:g} <= |e| < {rule.far:g}", "any"),
        (f"|e| < {rule.near:g}", f"|ec| >= {rule.moving:g}"),
        (f"|e| < {rule.near:g}", f"|ec| < {rule.moving:g}"),
    )


def _cells(gains: Gains, plant: LinearPlant | None, where: tuple[str, str]) -> Cells:
    from controller.balance.control.stability import refuse_unstable  # noqa: PLC0415

    values = tuple(float(f"{value:.6g}") for value in (gains.kp, gains.ki, gains.kd))
    if plant is None:
        return values
    return (*values, *margin_cells(refuse_unstable(gains, plant, f"{where[0]}, change {where[1]}")))
