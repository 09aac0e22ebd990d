"""`millrace balance tune`: gains from a recorded step of the levers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.balance.loops import (
    MARGIN,
    AbsoluteOption,
    DelayOption,
    GainOption,
    LagOption,
    margin_cells,
    plant_of,
)
from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.shared.common import slow
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from controller.balance.control.loops import TunedLoop


@slow("tuning")
def tune(  # noqa: PLR0917 - a command line's options
    recording: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="CSV: time_s, output, error; the output steps once.")
    ] = None,
    rule: Annotated[str, typer.Option(metavar="simc|ziegler-nichols", help="Tuning rule.")] = "simc",
    speed: Annotated[float | None, typer.Option(parser=in_seconds(), help="SIMC: closed-loop time constant.")] = None,
    gain: GainOption = None,
    lag: LagOption = 0.0,
    delay: DelayOption = 0.0,
    period: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Sampling period; default: the recording's, else 1."),
    ] = None,
    absolute: AbsoluteOption = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the recording, its model and each loop (.png or .svg).")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show gains of each form for a plant, from a recorded step of its levers, or from --gain, --lag and --delay.

    Also show their stability (as in `millrace balance gains`), and how an error of 0.5 settles below 0.1.
    """
    from controller.balance.control.identification import fit_step, read_response  # noqa: PLC0415
    from controller.balance.control.loops import tuned_loops  # noqa: PLC0415
    from controller.balance.control.tuning import TuningRule  # noqa: PLC0415

    if rule not in set(TuningRule):
        raise typer.BadParameter(f"--rule {rule}: expected {' or '.join(TuningRule)}")
    given = plant_of(gain, lag, delay, 1.0 if period is None else period)
    if (recording is None) == (given is None):
        raise typer.BadParameter("give a recording, or a plant by --gain, --lag and --delay")
    response = None if recording is None else read_response(recording)
    fit = None if response is None else fit_step(response)
    plant = fit.plant if fit is not None else given
    assert plant is not None
    period_s = period if period is not None else 1.0 if response is None else response.period_s
    loops = tuned_loops(plant, period_s, TuningRule(rule), accumulates=not absolute, speed_s=speed)
    if fit is not None:
        typer.echo(
            f"gain {plant.gain:.4g}, lag {plant.lag_s:.4g} s, delay {plant.delay_s:.4g} s; off by {fit.off:.2g} (rms); "
            f"a sample each {period_s:.4g} s",
            err=form is not Format.TABLE,
        )
    show(("form", "kp", "ki", "kd", *MARGIN, "settles s", "overshoot"), (_cells(loop) for loop in loops), form)
    for loop in loops:
        if loop.why_not:
            typer.echo(f"{loop.form}: {loop.why_not}", err=form is not Format.TABLE)
    if picture is not None:
        from controller.balance.control.picture import draw_tuning  # noqa: PLC0415

        draw_tuning(picture, loops, None if response is None or fit is None else (response, fit))
        typer.echo(f"wrote {picture}", err=True)


def _cells(loop: TunedLoop) -> Cells:
    if loop.margin is None or loop.gains is None:
        return (str(loop.form), *[""] * 10)
    gains = (float(f"{value:.4g}") for value in (loop.gains.kp, loop.gains.ki, loop.gains.kd))
    settled = loop.figures
    if settled is None:
        return (str(loop.form), *gains, *margin_cells(loop.margin), "never", "")
    settles: object = "never" if settled.settle_s is None else settled.settle_s
    return (str(loop.form), *gains, *margin_cells(loop.margin), settles, float(f"{settled.overshoot:.3g}"))
