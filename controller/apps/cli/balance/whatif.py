"""`millrace balance whatif`: units of a settings file in virtual time, with their rules and in the open loop."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.shared.common import check_outputs, slow
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from controller.balance.plants.loop import Trajectory
    from controller.balance.plants.scenario import Outcome

_COLUMNS = (
    *("unit", "TOPS", "watts", "TOPS per watt", "refused %", "moves a minute"),
    *("settles s", "overshoot", "steady e", "mean |e|"),
)
_STEPS = (
    *("time_s", "unit", "bus", "load", "output", "precision", "frequency_mhz", "sub_units"),
    *("concurrency", "work_tera", "energy_j"),
)


@slow("replaying")
def whatif(
    scenario: Annotated[Path, typer.Argument(metavar="FILE", help="Units, loads, rules and a pool, YAML.")],
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw error, output, levers and work (.png or .svg).")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write each step of each unit as CSV for `balance learn`.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Simulate units under a load with their rules and without (open loop), in virtual time.

    TOPS are of work done, not of capacity. A unit has settled once its error stays within 0.1.
    """
    from controller.balance.plants.scenario import answer, read_scenario  # noqa: PLC0415

    check_outputs(picture, write)
    result = answer(read_scenario(scenario))
    show(_COLUMNS, [_cells(outcome) for outcome in (*result.outcomes, result.together, result.open_loop)], form)
    if form is Format.TABLE and result.open_loop.work_tops:
        work = result.together.work_tops / result.open_loop.work_tops
        each = result.together.work_per_joule / result.open_loop.work_per_joule
        typer.echo(f"against the open loop: {work:.3f} times the work, {each:.3f} times the work per joule")
    if picture is not None:
        from controller.balance.plants.picture import draw_run  # noqa: PLC0415

        draw_run(picture, result.trajectories)
        typer.echo(f"wrote {picture}", err=True)
    if write is not None:
        _write(write, result.trajectories)
        typer.echo(f"wrote {write}", err=True)


def _cells(outcome: Outcome) -> Cells:
    cells = (outcome.name, *(_round(part) for part in (outcome.work_tops, outcome.watts, outcome.work_per_joule)))
    cells = (*cells, _round(100 * outcome.refused_share), _round(outcome.moves_per_minute))
    figures = outcome.figures
    if figures is None:
        return (*cells, None, None, None, None)
    settle = None if figures.settle_s is None else _round(figures.settle_s)
    return (
        *cells,
        settle,
        *(_round(part, 3) for part in (figures.overshoot, figures.steady_error, figures.mean_error)),
    )


def _round(value: float, digits: int = 5) -> float:
    """Return a figure with the given number of significant digits."""
    return float(f"{value:.{digits}g}")


def _write(path: Path, trajectories: tuple[Trajectory, ...]) -> None:
    from controller.balance.errors import PlantError  # noqa: PLC0415

    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow(_STEPS)
            for trajectory in trajectories:
                for step, record in enumerate(trajectory.records()):
                    sample, state = record.sample, record.state
                    levers = (str(state.precision), state.frequency_mhz, state.sub_units, state.concurrency)
                    done = (float(trajectory.work_tera[step]), float(trajectory.energy_j[step]))
                    reported = (sample.time_s, trajectory.name, sample.bus, sample.load, float(trajectory.output[step]))
                    out.writerow((*reported, *levers, *done))
    except OSError as error:
        raise PlantError(f"{path}: {error.strerror or error}") from error
