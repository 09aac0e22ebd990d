"""`millrace accel explain`: where each operator of a query or a program is to run, and what would flip it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.accel.ground import (
    FanInOption,
    FeedOption,
    HardwareOption,
    MachinesOption,
    RateOption,
    ServerOption,
    TopologyOption,
    ground_of,
)
from controller.apps.cli.amounts import in_seconds
from controller.apps.cli.output import Format, FormatOption, show

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.acceleration.calibration import Calibration
    from controller.acceleration.network.grounds import Ground
    from controller.acceleration.network.switches import Sums
    from controller.acceleration.plans import Explained, Plan
    from controller.acceleration.values import Accelerator


def explain(  # noqa: PLR0917 - a command line's options
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...",
            help='"select ...", x.sql, x.py, x.py:function, or a graph in YAML or JSON; several are a pipeline.',
        ),
    ],
    topology: TopologyOption = None,
    hardware: HardwareOption = None,
    feed: FeedOption = None,
    server: ServerOption = None,
    rate: RateOption = None,
    machines: MachinesOption = None,
    fan_in: FanInOption = None,
    preset: Annotated[
        float | None, typer.Option(help="The CPU has to take so many times as long, 1 or more; else the file's.")
    ] = None,
    t: Annotated[
        list[str] | None, typer.Option("--t", metavar="KIND=SECONDS", help="CPU seconds of a kind for 100 MB.")
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CPU times as measured (accel measure); else built-in ones.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option(metavar="NAME=ROWS:BYTES", help="A table that is not there; may be repeated.")
    ] = None,
    tables: Annotated[Path | None, typer.Option(metavar="FILE", help="Tables that are not there, YAML.")] = None,
    database: Annotated[Path | None, typer.Option(metavar="FILE", help="DuckDB's, that a query is for.")] = None,
    join: Annotated[str, typer.Option(metavar="hash-join|square|linear", help="The class of joins.")] = "hash-join",
    skew: Annotated[float, typer.Option(help="The fullest machine's data over the mean, 1 or more.")] = 1.0,
    tenths: Annotated[
        bool, typer.Option("--tenths", help="Outputs are a tenth of inputs, not what the plan expects.")
    ] = False,
    deadline: Annotated[float, typer.Option(parser=in_seconds(0.1), help="After which a program is stopped.")] = 120.0,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the plan (.png or .svg).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="A document for programs; as --format json.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show, for each operator, its class, its times in parts, their ratio, where it is to run, and what would flip it.

    A query is planned by DuckDB, not run; a program is run once, watched. Seconds are of all machines together.
    """
    from controller.acceleration.plans import Stated, plan_of  # noqa: PLC0415
    from controller.acceleration.plans import explain as explained_of  # noqa: PLC0415
    from controller.acceleration.plans.works import reading_of  # noqa: PLC0415
    from controller.apps.cli.accel.targets import tables_of, target_of  # noqa: PLC0415

    reading = reading_of(join, skew, has_tenths=tenths)
    ground = ground_of(topology, hardware, feed=feed, server=server, rate=rate, machines=machines, fan_in=fan_in)
    if preset is not None:
        ground = replace(ground, preset=preset)
    measured = _calibration(calibration)
    known = Stated(dict(map(_stated, t or ())), measured)
    if hardware is None:
        ground = _with_measured(ground, measured)
    found = target_of(target, database, tables_of(table or (), tables), deadline)
    plan = plan_of(found.graph, ground.machines.count, known, reading)
    others = partial(ground.others, sums=_sums(plan, found.aggregates))
    explained = explained_of(plan, ground.machines, ground.accelerators, preset=ground.preset, others=others)
    explained = replace(explained, notes=(*found.notes, *ground.notes, *explained.notes))
    _show(explained, Format.JSON if as_json else form)
    if picture is not None:
        from controller.acceleration.plans.picture import draw  # noqa: PLC0415

        draw(explained, picture)
        typer.echo(f"wrote {picture}", err=True)


def _sums(plan: Plan, aggregates: Mapping[str, tuple[str, ...]]) -> list[Sums | str]:
    """Return what switches could add up for each operator, or why it adds up nothing."""
    from controller.acceleration.network.switches import sums_of  # noqa: PLC0415

    return [
        sums_of(aggregates[work.name], math.ceil(work.groups or 1))
        if work.name in aggregates
        else f"a {work.kind} adds up nothing"
        for work in plan.works
    ]


def _calibration(path: Path | None) -> Calibration:
    from controller.acceleration.calibration import DEFAULT, load  # noqa: PLC0415

    return DEFAULT if path is None else load(path)


def _with_measured(ground: Ground, calibration: Calibration) -> Ground:
    """Return machines with the accelerators that a calibration knows, where no hardware file says what they have."""
    from dataplane.topology.values import DeviceKind  # noqa: PLC0415

    known = [one for kind in DeviceKind if (one := calibration.accelerator_of(kind)) is not None]
    found = [way for one in known for way in _ways(one)]
    if not found:
        return ground
    labels = ", ".join(one.label for one in found)
    note = f"{labels}: the calibration's ({calibration.machine}); no hardware file says more"
    return replace(ground, accelerators=tuple(found), notes=(*ground.notes, note))


def _ways(accelerator: Accelerator) -> list[Accelerator]:
    """Return an accelerator that compresses nothing, and as a choice of its own one that does where it can."""
    if accelerator.compression is None:
        return [accelerator]
    return [replace(accelerator, compression=None), replace(accelerator, name=f"{accelerator.label}-packed")]


def _stated(text: str) -> tuple[str, float]:
    kind, _, seconds = text.partition("=")
    try:
        return kind, float(seconds)
    except ValueError:
        raise typer.BadParameter(f"--t {text}: KIND=SECONDS, as in filter=0.005") from None


def _show(explained: Explained, form: Format) -> None:
    from controller.acceleration.plans.text import (  # noqa: PLC0415
        COLUMNS,
        document_of,
        rows_of,
        summary_lines,
    )

    if form is Format.JSON:
        typer.echo(json.dumps(document_of(explained), indent=1, ensure_ascii=False))
        return
    show(COLUMNS, rows_of(explained), form)
    for line in summary_lines(explained):
        typer.echo(line, err=form is not Format.TABLE)
