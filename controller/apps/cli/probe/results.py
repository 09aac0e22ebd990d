"""`millrace probe results` and `efficiency`: measurements of probes, their scores, and scaling with units."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.shared.amounts import in_days
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show, utc
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from controller.apiserver.client import SyncApiClient
    from controller.apiserver.resources import ProbeResult
    from controller.probing.evaluation import Threshold, Trust
    from controller.probing.evaluation.checks import UseWork
    from controller.probing.evaluation.history import Place
    from controller.probing.evaluation.policy import Policy

Days = Annotated[float, typer.Option("--days", parser=in_days(), help="Only results of the last days.")]
CentreOption = Annotated[str | None, typer.Option("--centre", help="Only at this centre.")]

_DAY_NS: Final = 86_400 * NS_PER_S
_COLUMNS: Final = (
    *("time", "centre", "probe", "task type", "unit", "units", "outcome", "run time s", "95 % of the mean s"),
    *("error", "score", "policy", "notes"),
)
_ESTIMATE_COLUMNS: Final = ("centre", "probe", "unit", "units", "seconds", "low", "high", "basis", "reasons")
_CURVE_COLUMNS: Final = ("centre", "unit", "units", "runs", "run time s", "speed-up", "95 %", "efficiency", "fit")


def results(  # noqa: PLR0917 - a command line's options
    centre: CentreOption = None,
    probe: Annotated[str | None, typer.Option(help="Only of this probe task.")] = None,
    task_type: Annotated[str | None, typer.Option("--task-type", help="Only for tasks of this type.")] = None,
    days: Days = 7.0,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Score by this policy; default: as recorded.")
    ] = None,
    estimates: Annotated[
        bool, typer.Option("--estimates", help="Summarise: one line per centre, unit type and count.")
    ] = False,
    address: Address = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show measurements of probes: a line per number of units, oldest first; times are UTC."""
    from controller.probing.evaluation.history import read_results  # noqa: PLC0415
    from controller.probing.evaluation.policy import load_policy  # noqa: PLC0415

    chosen = None if policy is None else load_policy(policy)
    now_ns = time.time_ns()
    with client_of(address) as client:
        measured = read_results(
            client, centre=centre, probe=probe, task_type=task_type, since_ns=now_ns - int(days * _DAY_NS)
        )
        if estimates:
            show(_ESTIMATE_COLUMNS, list(_estimates(client, measured, now_ns)), form)
            return
    show(_COLUMNS, (cells for result in measured for cells in _cells(result, chosen)), form)


def _cells(result: ProbeResult, policy: Policy | None) -> Iterator[Cells]:
    from controller.probing.evaluation import averaged, scored  # noqa: PLC0415

    status = result.status if policy is None else scored(policy, result.status)
    spec = result.spec
    where = (spec.centre, spec.probe, spec.task_type, status.unit or spec.unit)
    if not status.runs:
        could = f"could run on {', '.join(status.could_run)}" if status.could_run else "nothing was run"
        told = "; ".join(status.problems)
        yield (utc(result.metadata.created_ns), *where, 0, could, None, None, None, None, None, told)
    for run in status.runs:
        times = averaged(run.run_times_s)
        mean, bounds = (None, None) if times is None else (times.mean, f"{times.low:.4g} to {times.high:.4g}")
        error = averaged(run.accuracies)
        notes = [*([run.problem] if run.problem else []), *(run.notes or (() if times is None else times.reasons))]
        yield (
            utc(run.started_ns or result.metadata.created_ns),
            *where,
            run.units,
            run.outcome,
            mean,
            bounds,
            None if error is None else error.mean,
            run.score,
            status.scored_by or None,
            "; ".join(notes),
        )


def _estimates(client: SyncApiClient, results: Sequence[ProbeResult], now_ns: int) -> Iterator[Cells]:
    from controller.probing.evaluation import estimate_of  # noqa: PLC0415
    from controller.probing.evaluation.history import by_place  # noqa: PLC0415

    centres = sorted({result.spec.centre for result in results})
    work = _work(client, sorted({result.spec.probe for result in results}))
    trusted = {
        name: _trust(client, name, [result for result in results if result.spec.centre == name], work, now_ns)
        for name in centres
    }
    for group, of_place in by_place(results).items():
        for units in sorted({run.units for result in of_place for run in result.status.runs}):
            estimate = estimate_of(of_place, now_ns, units=units, trust=trusted[group.centre])
            figures = (estimate.seconds, estimate.low, estimate.high, str(estimate.basis), "; ".join(estimate.reasons))
            yield (group.centre, group.probe, group.unit, units, *figures)


def _trust(
    client: SyncApiClient,
    centre: str,
    results: Sequence[ProbeResult],
    work: Mapping[str, Mapping[str, UseWork]],
    now_ns: int,
) -> Trust:
    from controller.apiserver.resources import Centre, Task  # noqa: PLC0415
    from controller.cluster.estimates import Basis  # noqa: PLC0415
    from controller.common.errors import NotFoundError  # noqa: PLC0415
    from controller.probing.evaluation import Evidence, Trust, trust_of  # noqa: PLC0415
    from controller.probing.evaluation.checks import limits_of  # noqa: PLC0415

    try:
        resource = client.of(Centre).get(centre)
    except NotFoundError as error:
        return Trust(Basis.NONE, (str(error),))
    tasks = client.of(Task).list(fields=f"centre={centre}").items
    limits = {unit.name: limits_of(unit) for unit in resource.status.units}
    return trust_of(Evidence(results, resource, tasks, limits, work), now_ns)


def _work(client: SyncApiClient, names: Sequence[str]) -> dict[str, Mapping[str, UseWork]]:
    """Return the uses of the probe tasks that are still stored."""
    from controller.apiserver.resources import ProbeTask  # noqa: PLC0415
    from controller.common.errors import NotFoundError  # noqa: PLC0415
    from controller.probing.evaluation.checks import work_by_use  # noqa: PLC0415
    from controller.probing.files import of_spec  # noqa: PLC0415
    from controller.probing.library import KernelLibrary  # noqa: PLC0415

    kernels = {kernel.identifier: kernel for kernel in KernelLibrary().kernels()}
    works: dict[str, Mapping[str, UseWork]] = {}
    for name in names:
        with suppress(NotFoundError):
            works[name] = work_by_use(of_spec(name, client.of(ProbeTask).get(name).spec), kernels)
    return works


def efficiency(  # noqa: PLR0917 - a command line's options
    probe: Annotated[str, typer.Argument(help="Name of a probe task.")],
    centre: CentreOption = None,
    days: Days = 30.0,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it (.png or .svg).")] = None,
    address: Address = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show how a probe scales with units at each centre: speed-up, efficiency, and the threshold, if any."""
    from controller.probing.evaluation import threshold_of  # noqa: PLC0415
    from controller.probing.evaluation.history import by_place, read_results, run_times_by_units  # noqa: PLC0415

    with client_of(address) as client:
        results = read_results(client, centre=centre, probe=probe, since_ns=time.time_ns() - int(days * _DAY_NS))
    sound = [result for result in results if _is_plausible(result)]
    thresholds = {group: threshold_of(run_times_by_units(of_place)) for group, of_place in by_place(sound).items()}
    if not thresholds:
        where = "" if centre is None else f" at {centre}"
        typer.echo(f"no result of {probe}{where} in the last {days:g} days", err=True)
        raise typer.Exit(1)
    show(_CURVE_COLUMNS, [cells for group, threshold in thresholds.items() for cells in _curve(group, threshold)], form)
    for group, threshold in thresholds.items():
        summary = (
            f"threshold {threshold.units}: {threshold.reason}"
            if threshold.units is not None
            else f"no threshold: {threshold.reason}"
        )
        typer.echo(f"{group.centre}{', ' + group.unit if group.unit else ''}: {summary}", err=form is not Format.TABLE)
    if picture is not None:
        _draw(probe, thresholds, picture)


def _is_plausible(result: ProbeResult) -> bool:
    """Return whether a result is plausible; otherwise print on stderr why it is left out."""
    from controller.probing.evaluation.checks import impossible  # noqa: PLC0415

    if (reason := impossible(result, None, {})) is not None:
        typer.echo(f"{result.metadata.name} left out: {reason}", err=True)
    return reason is None


def _curve(group: Place, threshold: Threshold) -> Iterator[Cells]:
    fitted = threshold.fitted or (None,) * len(threshold.curve)
    for point, fit in zip(threshold.curve, fitted, strict=True):
        yield (
            group.centre,
            group.unit,
            point.units,
            len(point.run_time_s.kept),
            point.run_time_s.mean,
            round(point.speed_up, 3),
            f"{point.speed_up_low:.3g} to {point.speed_up_high:.3g}",
            round(point.efficiency, 3),
            None if fit is None else round(fit, 3),
        )


def _draw(probe: str, thresholds: dict[Place, Threshold], file: Path) -> None:
    from controller.probing.evaluation.picture import MOST_CURVES, draw_efficiency  # noqa: PLC0415

    named = {
        f"{group.centre}{', ' + group.unit if group.unit else ''}": threshold for group, threshold in thresholds.items()
    }
    drawn = dict(list(named.items())[:MOST_CURVES])
    draw_efficiency(f"{probe}: speed-up and efficiency", drawn, file)
    left = f", the first {MOST_CURVES} curves" if len(named) > MOST_CURVES else ""
    typer.echo(f"wrote {file}{left}", err=True)
