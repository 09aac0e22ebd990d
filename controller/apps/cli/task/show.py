"""`millrace task show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.shared.output import Format, FormatOption, utc
from controller.apps.cli.shared.output import show as show_rows
from controller.apps.cli.task.waiting import phase_of

if TYPE_CHECKING:
    from controller.apiserver.resources.task import Member


def part_line(member: Member) -> str:
    """Return a line on the part of a task that one of its centres runs."""
    why = f": {'; '.join(member.reasons)}" if member.reasons else ""
    return f"{member.centre}: {member.units} of {member.unit}, {member.phase.value}{why}"


def show(
    name: Annotated[str, typer.Argument(metavar="TASK")],
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """Show a task: its centre, start, expected run time and cost."""
    from controller.apiserver.resources import Task  # noqa: PLC0415
    from controller.apiserver.resources.operator_devices import text_of  # noqa: PLC0415

    with client_of(address) as client:
        task = client.of(Task).get(name)
    spec, status = task.spec, task.status
    times = (
        ("submitted", task.metadata.created_ns),
        ("dispatched", status.dispatched_ns),
        ("started", status.started_ns),
        ("finished", status.finished_ns),
        ("deadline", spec.deadline_ns),
    )
    rows = [
        ("phase", phase_of(task)),
        ("type", spec.task_type),
        ("program", f"{spec.program.kind} {spec.program.entry}".strip()),
        ("user", status.user or None),
        ("centre", None if status.members else status.centre),
        *(("part", part_line(member)) for member in status.members),
        ("unit", status.unit),
        ("units", status.units),
        ("operators run on", text_of(status.operator_devices) if status.operator_devices else None),
        ("runs after", ", ".join(spec.predecessors) or None),
        ("if one fails", spec.on_failure.value if spec.predecessors else None),
        ("could run on", ", ".join(status.could_run) or None),
        *((what, None if at is None else utc(at)) for what, at in times),
        ("expected, at most", None if status.expected_s is None else f"{status.expected_s:.4g} s"),
        ("ran", None if status.run_time_s is None else f"{status.run_time_s:.4g} s"),
        ("exit", status.exit_code),
        ("cost", None if status.cost is None else f"{status.cost:.4g}"),
        ("result", status.result),
        ("dispatches", status.epoch or None),
        ("operators", len(spec.operators) or None),
        ("reasons", "; ".join(status.reasons) or None),
    ]
    show_rows(("what", "value"), (row for row in rows if row[1] is not None), form)
