"""`millrace task list`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.cluster.resources import age_of
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show
from controller.apps.cli.task.waiting import phase_of

if TYPE_CHECKING:
    from controller.apiserver.resources import Task

COLUMNS = ("name", "type", "phase", "centre", "unit", "units", "user", "cost", "age", "reasons")


def list_(  # noqa: PLR0917 - a command line's options
    labels: Annotated[str, typer.Option("--labels", "-l", metavar="a=b,!c", help="Only with these labels.")] = "",
    centre: Annotated[str | None, typer.Option(help="Only tasks at this centre.")] = None,
    phase: Annotated[str | None, typer.Option(help="pending, probing, dispatched, running, succeeded, failed.")] = None,
    probes: Annotated[bool, typer.Option("--probes", help="Include probes.")] = False,
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """List tasks with their centre, units and reason for waiting."""
    from controller.apiserver.resources import Task  # noqa: PLC0415

    given = (("centre", centre), ("phase", phase))
    fields = ",".join(f"{name}={value}" for name, value in given if value is not None)
    with client_of(address) as client:
        listed = client.of(Task).list(labels=labels, fields=fields)
    now_ns = time.time_ns()
    ordered = sorted(listed.items, key=lambda task: (task.metadata.created_ns, task.metadata.name))
    show(COLUMNS, (_cells(task, now_ns) for task in ordered if probes or not task.spec.is_probe), form)
    if listed.age_s is not None:
        typer.echo(f"the storage is unavailable: this is {listed.age_s} s old", err=True)


def _cells(task: Task, now_ns: int) -> Cells:
    status = task.status
    return (
        task.metadata.name,
        task.spec.task_type,
        phase_of(task),
        " ".join(member.centre for member in status.members) or status.centre,
        status.unit,
        status.units,
        status.user,
        None if status.cost is None else round(status.cost, 4),
        age_of(task, now_ns),
        "; ".join(status.reasons[:2]),
    )
