"""`millrace probe send`: a probe task to centres, on demand, with the units chosen in one of four ways."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.shared.output import Format, FormatOption, show
from controller.apps.cli.task.waiting import Timeout, Wait

if TYPE_CHECKING:
    from controller.apiserver.client import SyncApiClient
    from controller.apiserver.resources import Centre, ProbeTask, Task

UNIT_COLUMNS = ("centre", "unit", "count", "free", "can run it", "lacks")


def send(  # noqa: PLR0917 - a command line's options
    probe: Annotated[str, typer.Argument(metavar="PROBE", help="Name of a stored probe task.")],
    centre: Annotated[
        list[str] | None, typer.Option("--centre", "-c", help="Target centre; repeatable; default: all.")
    ] = None,
    show_units: Annotated[bool, typer.Option("--show-units", help="Show the centres' unit types instead.")] = False,
    unit: Annotated[str | None, typer.Option(help="Run on units of this type.")] = None,
    choose: Annotated[
        str, typer.Option(metavar="configuration|asked|centre", help="Chooser of units that are not stated.")
    ] = "configuration",
    units: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N...]", help="Numbers of parallel units; one run each; default: 1, or as --choose centre picks."
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, max=10_000, help="Repetitions of each run.")] = 3,
    limit: Annotated[float, typer.Option(parser=in_seconds(0.1, 86_400), help="Time limit of a run.")] = 120.0,
    wait: Wait = False,
    timeout: Timeout = 600.0,
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """Send a probe task to centres, as an ordinary task marked as a probe, run once their units are free."""
    from controller.apiserver.resources import Centre, ProbeTask  # noqa: PLC0415

    counts = _counts("1" if units is None and choose != "centre" else units)
    with client_of(address) as client:
        probe_task = client.of(ProbeTask).get(probe)
        centres = {item.metadata.name: item for item in client.of(Centre).list().items}
        _check(centres, centre or ())
        chosen = [centres[name] for name in centre or sorted(centres)]
        if show_units:
            show(UNIT_COLUMNS, (row for candidate in chosen for row in _unit_rows(candidate, probe_task)), form)
            return
        tasks = [_task(probe_task, candidate, unit, choose, counts, repeat, limit) for candidate in chosen]
        names = [_create(client, task) for task in tasks]
    if wait:
        from controller.apps.cli.task.waiting import until_ended  # noqa: PLC0415

        asyncio.run(until_ended(address, names, timeout))


def _create(client: SyncApiClient, task: Task) -> str:
    made = client.of(type(task)).create(task)
    typer.echo(f"probe {made.metadata.name} is sent to {made.spec.centre}")
    return made.metadata.name


def _check(centres: dict[str, Centre], wanted: Sequence[str]) -> None:
    from controller.common.errors import NotFoundError  # noqa: PLC0415

    if strange := next((name for name in wanted if name not in centres), None):
        raise NotFoundError(f"there is no Centre {strange}; known: {', '.join(sorted(centres)) or 'none'}")
    if not centres:
        raise NotFoundError("there is no Centre to send it to")


def _task(  # noqa: PLR0917 - what the command line says
    probe: ProbeTask, centre: Centre, unit: str | None, choose: str, counts: tuple[int, ...], repeat: int, limit: float
) -> Task:
    from controller.apiserver.resources import Metadata, Task  # noqa: PLC0415
    from controller.apiserver.resources.task import Program, ProgramKind, TaskSpec, UnitChoice  # noqa: PLC0415

    if choose not in {"configuration", "asked", "centre"}:
        raise typer.BadParameter(f"--choose {choose}: expected configuration, asked or centre")
    _check_unit(centre, unit, counts)
    spec = TaskSpec(
        program=Program(kind=ProgramKind.PROBE, entry=probe.metadata.name),
        task_type=probe.spec.task_type,
        is_probe=True,
        centre=centre.metadata.name,
        unit=unit,
        units=counts,
        repetitions=repeat,
        choice=UnitChoice.USER if unit is not None and counts else UnitChoice(choose),
        limit_s=limit,
    )
    # Cut, because names have 100 characters at most; the time keeps them apart.
    name = f"demand-{probe.metadata.name[:40]}-{centre.metadata.name[:30]}-{time.time_ns() // 1000 % 10**10}"
    return Task(metadata=Metadata(name=name), spec=spec)


def _check_unit(centre: Centre, unit: str | None, counts: tuple[int, ...]) -> None:
    """Raise NotFoundError for units that a centre does not have."""
    from controller.common.errors import NotFoundError  # noqa: PLC0415

    types = {unit_type.name: unit_type.count for unit_type in centre.status.units}
    available = ", ".join(f"{name} ({count})" for name, count in types.items()) or "none"
    if unit is not None and unit not in types:
        raise NotFoundError(f"Centre {centre.metadata.name} has no unit {unit}; it has {available}")
    most = types[unit] if unit is not None else max(types.values(), default=0)
    if max(counts, default=1) > most:
        raise NotFoundError(
            f"Centre {centre.metadata.name} does not have {max(counts, default=1)} units of a type; it has {available}"
        )


def _unit_rows(centre: Centre, probe: ProbeTask) -> list[tuple[object, ...]]:
    kernels = {use.kernel for use in probe.spec.uses}
    rows: list[tuple[object, ...]] = []
    for unit_type in centre.status.units:
        lacks = ", ".join(sorted(kernels - set(unit_type.operators)))
        rows.append(
            (centre.metadata.name, unit_type.name, unit_type.count, centre.free_of(unit_type), not lacks, lacks or None)
        )
    return rows


def _counts(text: str | None) -> tuple[int, ...]:
    """Return numbers of units; none if the centre picks it."""
    if text is None:
        return ()
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and int(word) for word in words):
        raise typer.BadParameter(f"--units {text}: expected numbers above 0, such as 1,2,4")
    return tuple(sorted({int(word) for word in words}))
