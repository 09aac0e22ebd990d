"""`millrace accel explain`: where each operator of a query or a program is to run, and what would flip it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.accel.devices import AssumeOption, RootOption, with_devices
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
from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.shared.common import slow
from controller.apps.cli.shared.output import Format, FormatOption, show

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.acceleration.calibration import Calibration
    from controller.acceleration.network.switches import Sums
    from controller.acceleration.plans import Explained, Plan
    from controller.apps.cli.accel.targets import Target
    from controller.cluster.operators.sql import SqlTable


@slow("planning")
def explain(  # noqa: PLR0917 - a command line's options
    target: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET...",
            help='"select ...", x.sql, x.py, x.py:function, or a graph in YAML or JSON; several are a pipeline.',
        ),
    ] = None,
    topology: TopologyOption = None,
    hardware: HardwareOption = None,
    assume: AssumeOption = None,
    root: RootOption = None,
    feed: FeedOption = None,
    server: ServerOption = None,
    rate: RateOption = None,
    machines: MachinesOption = None,
    fan_in: FanInOption = None,
    preset: Annotated[
        float | None, typer.Option(help="Minimum ratio of CPU to GPU time, at least 1; default: the file's.")
    ] = None,
    tie_band: Annotated[
        float | None,
        typer.Option(
            "--tie-band", help="The CPU keeps operators of a ratio up to this above 1; default: the file's, or 0.02."
        ),
    ] = None,
    t: Annotated[
        list[str] | None,
        typer.Option("--t", metavar="KIND=SECONDS", help="CPU seconds per 100 MB of an operator kind."),
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Measured CPU times (accel measure); default: built-in.")
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=ROWS:BYTES|FILE", help="Size of a table, or its Parquet or CSV file."),
    ] = None,
    tables: Annotated[Path | None, typer.Option(metavar="FILE", help="Sizes of missing tables, YAML.")] = None,
    database: Annotated[Path | None, typer.Option(metavar="FILE", help="DuckDB file of the query.")] = None,
    join: Annotated[str, typer.Option(metavar="hash-join|square|linear", help="Class of joins.")] = "hash-join",
    skew: Annotated[float, typer.Option(help="Largest machine's data over the mean, at least 1.")] = 1.0,
    tenths: Annotated[bool, typer.Option("--tenths", help="Assume outputs of a tenth of the inputs.")] = False,
    deadline: Annotated[float, typer.Option(parser=in_seconds(0.1), help="Time limit of a program.")] = 120.0,
    picture: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the plan (.png or .svg).")] = None,
    spark_log: Annotated[
        Path | None,
        typer.Option(metavar="FILE|FOLDER", help="Event logs of Apache Spark, or a text of its EXPLAIN FORMATTED."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show each operator's class, times by part, their ratio, where to run it, and what would change that.

    A query is planned by DuckDB, not run; a program is run once, traced. Seconds are totals over all machines. Event
    logs of Spark (--spark-log) have measured seconds, rows and bytes, and the machines that they were measured on.
    """
    from controller.acceleration.plans import Stated, plan_of  # noqa: PLC0415
    from controller.acceleration.plans import explain as explained_of  # noqa: PLC0415
    from controller.acceleration.plans.works import reading_of  # noqa: PLC0415
    from controller.apps.cli.accel.spark import explain_logs, settings_of  # noqa: PLC0415
    from controller.apps.cli.accel.targets import tables_of  # noqa: PLC0415

    if bool(target) is (spark_log is not None):
        raise typer.BadParameter("give TARGET or --spark-log, one of them")
    if spark_log is not None and _is_log(spark_log):
        network = {"--topology": topology, "--feed": feed, "--server": server, "--rate": rate, "--machines": machines}
        inputs = {"--fan-in": fan_in, "--table": table, "--tables": tables, "--database": database}
        options = {"--picture": picture, "--tenths": tenths or None, "--skew": None if skew == 1 else skew}
        _refuse(network | inputs | options | {"--join": None if join == "hash-join" else join})
        settings = settings_of(hardware, preset, dict(map(_stated, t or ())), _calibration(calibration))
        explain_logs(spark_log, settings, Format.JSON if as_json else form)
        return
    reading = reading_of(join, skew, has_tenths=tenths)
    ground = ground_of(topology, hardware, feed=feed, server=server, rate=rate, machines=machines, fan_in=fan_in)
    if preset is not None:
        ground = replace(ground, preset=preset)
    if tie_band is not None:
        ground = replace(ground, tie_band=tie_band)
    measured = _calibration(calibration)
    stated = Stated(dict(map(_stated, t or ())), measured)
    ground = with_devices(ground, measured, hardware=hardware, assume=assume or (), root=root)
    parsed = _target(target or (), spark_log, database, tables_of(table or (), tables), deadline)
    plan = _without(plan_of(parsed.graph, ground.machines.count, stated, reading), parsed.unknown)
    others = partial(ground.others, sums=_sums(plan, parsed.aggregates))
    explained = explained_of(
        plan, ground.machines, ground.accelerators, preset=ground.preset, others=others, tie_band=ground.tie_band
    )
    explained = replace(explained, notes=(*parsed.notes, *ground.notes, *explained.notes))
    _show(explained, Format.JSON if as_json else form)
    if picture is not None:
        from controller.acceleration.plans.picture import draw  # noqa: PLC0415

        draw(explained, picture)
        typer.echo(f"wrote {picture}", err=True)


def _is_log(path: Path) -> bool:
    """Return whether a file or folder is to be read as event logs; a text with a plan is none."""
    from controller.acceleration.spark.formatted import is_plan  # noqa: PLC0415

    return not is_plan(path)


def _refuse(options: Mapping[str, object]) -> None:
    """Refuse options that state what a log states itself."""
    if wrong := next((name for name, value in options.items() if value is not None), None):
        raise typer.BadParameter(f"{wrong} does not go with an event log: it states its machines, rows and bytes")


def _target(
    names: Sequence[str], spark_log: Path | None, database: Path | None, tables: Mapping[str, SqlTable], deadline: float
) -> Target:
    from controller.apps.cli.accel.spark import plan_target  # noqa: PLC0415
    from controller.apps.cli.accel.targets import target_of  # noqa: PLC0415

    if spark_log is None:
        return target_of(names, database, tables, deadline)
    if database is not None:
        raise typer.BadParameter("--database does not go with a plan of Spark: give --table or --tables")
    return plan_target(spark_log, tables)


def _without(plan: Plan, unknown: Mapping[str, str]) -> Plan:
    """Return a plan in which the times of some operators are unknown, with the reason."""
    from controller.cluster.estimates import Basis  # noqa: PLC0415

    if not unknown:
        return plan
    works = tuple(
        replace(work, basis=Basis.NONE, unknown=unknown[work.name], cpu_s_per_100mb=0.0, other_s_per_100mb=None)
        if work.name in unknown
        else work
        for work in plan.works
    )
    return replace(plan, works=works)


def _sums(plan: Plan, aggregates: Mapping[str, tuple[str, ...]]) -> list[Sums | str]:
    """Return the sums that switches could compute for each operator, or why there are none."""
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
