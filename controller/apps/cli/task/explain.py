"""`millrace task explain`: every decision about a task, centre by centre."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.cluster.decisions import COLUMNS, cells, show_decision, show_history
from controller.apps.cli.cluster.names import complete_name_of
from controller.apps.cli.output import Format, FormatOption, show
from controller.apps.cli.task.waiting import line_of


def explain(
    name: Annotated[str, typer.Argument(metavar="TASK", autocompletion=complete_name_of("tasks"))],
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """Explain why a task runs where it does, or waits: rejected centres, scores, earlier decisions."""
    from controller.apiserver.resources import Decision, Task  # noqa: PLC0415

    with client_of(address) as client:
        task = client.of(Task).get(name)
        listed = client.of(Decision).list(fields=f"about={name}").items
        its_type = task.spec.task_type
        probes = client.of(Task).list(fields="probe=true").items if its_type else ()
    decisions = sorted(listed, key=lambda decision: decision.metadata.revision)
    if form is not Format.TABLE:
        show(COLUMNS, map(cells, reversed(decisions)), form)
        return
    typer.echo(f"{name} is {line_of(task)}")
    for probe in probes:
        if probe.spec.task_type == its_type and probe.status.phase.value not in {"succeeded", "failed"}:
            typer.echo(f"probe {probe.metadata.name} is {line_of(probe)}")
    if not decisions:
        typer.echo("no decision yet: it is being probed, or no task scheduler runs")
        return
    shown = next((decision for decision in decisions if decision.metadata.name == task.status.decision), decisions[-1])
    show_decision(shown, "centre")
    show_history(decisions)
