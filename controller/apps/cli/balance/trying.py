"""`millrace balance try`: controllers under loads of each kind, on a model of a unit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.balance.loops import margin_cells
from controller.apps.cli.shared.common import slow
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from controller.balance.control.controller import ControlSettings
    from controller.balance.trials.trial import LoadKind, Trial

_COLUMNS = (
    "load",
    "controller",
    "settles s",
    "overshoot",
    "steady error",
    "mean |e|",
    "moves",
    "late moves",
    "stable to",
)


@slow("trying controllers on plants")
def try_controllers(  # noqa: PLR0917 - a command line's options
    settings: Annotated[
        Path | None,
        typer.Option("--settings", "-s", metavar="FILE", help="Gains of one controller; default: one of each form."),
    ] = None,
    load: Annotated[str, typer.Option(metavar="all|step|ramp|burst|noisy", help="Shape of the load.")] = "all",
    delay: Annotated[int, typer.Option(metavar="SAMPLES", min=0, max=100, help="Delay of reports.")] = 2,
    noise: Annotated[
        float, typer.Option(metavar="SHARE", min=0, max=1, help="Standard deviation of reported bus and load.")
    ] = 0.0,
    units: Annotated[int, typer.Option(metavar="NUMBER", min=1, max=10_000, help="Initial sub-units.")] = 100,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw error, output and sub-units (.png or .svg).")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show how controllers follow a load that steps, ramps, bursts or is noisy, on a model of a unit.

    The interval table moves the unit's sub-units. A load of 10 % of the bus grows to 100 %; at the
    start the unit has 100 sub-units where 50 would do. An error has settled once it stays below 0.1.
    """
    from controller.balance.plants import Plant  # noqa: PLC0415
    from controller.balance.trials.trial import Ground, trials  # noqa: PLC0415
    from controller.balance.values import Precision, UnitState  # noqa: PLC0415

    ground = Ground(Plant(delay_s=float(delay), noise=noise), UnitState(Precision.INT8, 1000.0, units))
    outcomes = list(trials(_controllers(settings), ground, _kinds(load)))
    show(_COLUMNS, (_cells(trial) for trial in outcomes), form)
    if picture is not None:
        from controller.balance.trials.picture import draw_trials  # noqa: PLC0415

        draw_trials(picture, outcomes)
        typer.echo(f"wrote {picture}", err=True)


def _controllers(settings: Path | None) -> dict[str, ControlSettings]:
    from controller.balance.control.controller import ControlSettings  # noqa: PLC0415
    from controller.balance.trials.trial import usual_controllers  # noqa: PLC0415
    from dataplane.config import load as load_settings  # noqa: PLC0415

    return usual_controllers() if settings is None else {settings.stem: load_settings(settings, ControlSettings)}


def _kinds(text: str) -> tuple[LoadKind, ...]:
    from controller.balance.trials.trial import LoadKind  # noqa: PLC0415

    if text == "all":
        return tuple(LoadKind)
    if text not in set(LoadKind):
        raise typer.BadParameter(f"--load {text}: expected all, {', '.join(LoadKind)}")
    return (LoadKind(text),)


def _cells(trial: Trial) -> Cells:
    figures = trial.figures
    return (
        str(trial.load),
        trial.controller,
        "never" if figures.settle_s is None else figures.settle_s,
        round(figures.overshoot, 3),
        # Adding 0.0 turns -0.0 into 0.0.
        round(figures.steady_error, 3) + 0.0,
        round(figures.mean_error, 3),
        trial.moves,
        trial.late_moves,
        margin_cells(trial.margin)[1] if trial.margin.is_stable else "no",
    )
