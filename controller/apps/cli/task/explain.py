"""`millrace task explain`: every decision about a task, centre by centre."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.cluster.decisions import COLUMNS, cells, show_decision, show_history
from controller.apps.cli.shared.output import Format, FormatOption, show
from controller.apps.cli.task.waiting import line_of, predecessor_line

if TYPE_CHECKING:
    from controller.apiserver.resources import Task


_MOST_PREDECESSORS: Final = 16
"""Predecessors that are read and shown."""


def explain(
    name: Annotated[str, typer.Argument(metavar="TASK")],
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """Explain why a task runs where it does, or waits: rejected centres, scores, earlier decisions."""
    from controller.apiserver.resources import Decision, Task  # noqa: PLC0415

    with client_of(address) as client:
        task = client.of(Task).get(name)
        listed = client.of(Decision).list(fields=f"about={name}").items
        before = [(name, predecessor_line(client, name)) for name in task.spec.predecessors[:_MOST_PREDECESSORS]]
        its_type = task.spec.task_type
        probes = client.of(Task).list(fields="probe=true").items if its_type else ()
    decisions = sorted(listed, key=lambda decision: decision.metadata.revision)
    if form is not Format.TABLE:
        show(COLUMNS, map(cells, reversed(decisions)), form)
        return
    typer.echo(f"{name} is {line_of(task)}")
    for predecessor, state in before:
        typer.echo(f"after {predecessor}: {state}")
    if len(task.spec.predecessors) > len(before):
        typer.echo(f"after {len(task.spec.predecessors) - len(before)} more tasks")
    for probe in probes:
        if probe.spec.task_type == its_type and probe.status.phase.value not in {"succeeded", "failed"}:
            typer.echo(f"probe {probe.metadata.name} is {line_of(probe)}")
    if not decisions:
        typer.echo(f"no decision yet: it is being probed, or no task scheduler with profile {task.spec.profile} runs")
        return
    shown = next((decision for decision in decisions if decision.metadata.name == task.status.decision), decisions[-1])
    show_decision(shown, "centre")
    if task.spec.operators and task.spec.program.tables:
        show(("operator", "rows", "device", "expected s", "feeds"), _operators(task), Format.TABLE)
        for reason in task.status.reasons:
            typer.echo(reason)
    show_history(decisions)


def _operators(task: Task) -> Iterator[tuple[object, ...]]:
    """Yield the operators of a statement: the rows that they read, and the device and time that were decided."""
    chosen = {each.operator: each for each in task.status.operator_devices}
    for operator in task.spec.operators:
        sizes, choice = operator.sizes, chosen.get(operator.name)
        rows = sizes.get("rows", sizes.get("left_rows", 0) + sizes.get("right_rows", 0))
        expected = "" if choice is None or choice.seconds is None else f"{choice.seconds:.3g}"
        device = "not decided" if choice is None else choice.device.value + ("+switch" if choice.by_switch else "")
        yield operator.name, rows, device, expected, ", ".join(operator.feeds)
