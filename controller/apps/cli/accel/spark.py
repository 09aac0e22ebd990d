"""`millrace accel explain --spark-log`: what event logs of Apache Spark measured, and what devices would gain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from controller.apps.cli.shared.output import Format, show

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.acceleration.calibration import Calibration
    from controller.acceleration.plans.text import Cell
    from controller.acceleration.spark.qualifying import Qualified, Settings
    from controller.acceleration.values import Accelerator
    from controller.apps.cli.accel.targets import Target
    from controller.cluster.operators.sql import SqlTable

_NAMED: Final = 3
"""Files named that are left out; the others are counted."""


def explain_logs(path: Path, settings: Settings, form: Format) -> None:
    """Show the logs at a path; defects go to stderr, one line a log. Raise AccelerationError if none can be read."""
    from controller.acceleration.spark.text import COLUMNS, SUMMARY, document_of, notes_of, summary_of  # noqa: PLC0415

    if form is Format.JSON:
        documents = [document_of(one) for one in _qualified(path, settings)]
        documents.sort(key=lambda document: -(document["gain"] or 0.0))
        typer.echo(json.dumps({"applications": documents}, indent=1, ensure_ascii=False))
        return
    applications = _qualified(path, settings)
    # Before the heading of a table: an unreadable log has none.
    first = next(applications)
    summaries: list[tuple[Cell, ...]] = []
    notes: list[str] = [*settings.notes]

    def rows() -> Iterator[tuple[Cell, ...]]:
        # Of each log only its summary is kept: a folder may hold thousands.
        for one in chain([first], applications):
            summaries.append(summary_of(one))
            notes.extend(notes_of(one))
            yield from _rows(one, is_only=not path.is_dir())

    made = rows()
    show(COLUMNS, made, form)
    for _ in made:
        pass
    summaries.sort(key=lambda row: -float(row[3] or 0.0))
    if form is Format.TABLE:
        show(SUMMARY, summaries, form)
    for line in notes if form is Format.TABLE else [*(_line(row) for row in summaries), *notes]:
        typer.echo(line, err=form is not Format.TABLE)


def plan_target(path: Path, tables: Mapping[str, SqlTable]) -> Target:
    """Return the plan of a text of EXPLAIN FORMATTED as a target; raise AccelerationError for a text without one."""
    from controller.acceleration.spark.formatted import read_plans  # noqa: PLC0415
    from controller.apps.cli.accel.targets import Target  # noqa: PLC0415

    plan, *others = read_plans(path, {name: table.rows for name, table in tables.items()})
    notes = [f"{name}: no size of this table: give --table {name}=ROWS:BYTES" for name in dict.fromkeys(plan.lacking)]
    notes.append("a plan was not run: filters are assumed to drop nothing, joins to keep the rows of both sides")
    if others:
        notes.append(f"{path}: only the first of its {len(others) + 1} plans is shown")
    return Target(plan.ran.graph, {}, tuple(notes), plan.unknown)


def _rows(one: Qualified, *, is_only: bool) -> Iterator[tuple[Cell, ...]]:
    from controller.acceleration.spark.text import rows_of  # noqa: PLC0415

    for first, *rest in rows_of(one):
        name = first if is_only or not first else f"{one.application.number or one.application.name}: {first}"
        yield (name, *rest)


def _line(summary: Sequence[Cell]) -> str:
    name, seconds, with_devices, gain, gains, reasons = summary
    times = "time unknown" if seconds is None else f"{seconds} s, {with_devices} s with devices, gain {gain}"
    return f"{name}: {times}, recommended: {gains}; {reasons}"


def _qualified(path: Path, settings: Settings) -> Iterator[Qualified]:
    from controller.acceleration.errors import AccelerationError  # noqa: PLC0415
    from controller.acceleration.spark.files import logs_at  # noqa: PLC0415
    from controller.acceleration.spark.qualifying import qualify  # noqa: PLC0415
    from controller.acceleration.spark.reading import read_log  # noqa: PLC0415

    logs = logs_at(path)
    left_out: list[str] = []
    for log in logs:
        try:
            application = read_log(log)
        except AccelerationError as error:
            if len(logs) == 1:
                raise
            left_out.append(str(error))
            continue
        if application.faults:
            typer.echo(f"{application.source}: {'; '.join(application.faults)}; what is there is used", err=True)
        yield qualify(application, settings)
    if len(left_out) == len(logs):
        raise AccelerationError(f"{path}: none of its {len(logs)} files is an event log of Spark: {left_out[0]}")
    if left_out:
        more = f"; and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
        typer.echo(f"left out: {'; '.join(left_out[:_NAMED])}{more}", err=True)


def settings_of(
    hardware: Path | None, preset: float | None, t: Mapping[str, float], calibration: Calibration
) -> Settings:
    """Return the settings with a hardware file's accelerators, else the calibration's, and a note that says so."""
    from controller.acceleration.network.hardware import load_hardware  # noqa: PLC0415
    from controller.acceleration.spark.qualifying import Settings  # noqa: PLC0415
    from dataplane.topology.values import DeviceKind  # noqa: PLC0415

    if hardware is not None:
        asked = load_hardware(hardware)
        return Settings(asked.accelerators, asked.preset if preset is None else preset, t)
    found = (calibration.accelerator_of(kind) for kind in DeviceKind)
    accelerators = tuple(_of_one_core(one, calibration.cores) for one in found if one is not None)
    labels = ", ".join(one.label for one in accelerators)
    notes = (
        (f"{labels}: from the calibration ({calibration.machine}); no hardware file overrides it",) if labels else ()
    )
    return Settings(accelerators, 1.0 if preset is None else preset, t, notes)


def _of_one_core(accelerator: Accelerator, cores: int) -> Accelerator:
    """Return a calibration's accelerator, measured factors over one core, and uncompressed: nothing is sent."""
    factors = tuple((kind, factor * cores) for kind, factor in accelerator.speed_up)
    return replace(accelerator, speed_up=factors, compression=None)
