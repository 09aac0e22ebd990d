"""`millrace task costs`: what tasks have cost, by user, label or type."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.shared.output import Format, FormatOption, show
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from controller.apiserver.resources import Task


def costs(
    by: Annotated[
        str, typer.Option("--by", metavar="user|type|centre|LABEL", help="Group by this; a label by its name.")
    ] = "user",
    labels: Annotated[str, typer.Option("--labels", "-l", metavar="a=b,!c", help="Only with these labels.")] = "",
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """Sum the cost of tasks: units times seconds times a price by the score measured where they ran.

    Probes belong to centres and schedulers, and have a separate line.
    """
    from controller.apiserver.resources import Task  # noqa: PLC0415

    with client_of(address) as client:
        tasks = client.of(Task).list(labels=labels).items
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for task in tasks:
        if task.status.cost is not None:
            line = sums["(probes)" if task.spec.is_probe else _key(task, by)]
            line[0] += 1
            line[1] += _unit_s(task)
            line[2] += task.status.cost
    rows = (
        (key, int(number), round(unit_s, 3), round(cost, 4)) for key, (number, unit_s, cost) in sorted(sums.items())
    )
    show((by, "tasks", "unit-seconds", "cost"), rows, form)


def _key(task: Task, by: str) -> str:
    match by:
        case "user":
            return task.status.user or "(nobody)"
        case "type":
            return task.spec.task_type or "(none)"
        case "centre":
            return " ".join(member.centre for member in task.status.members) or task.status.centre or "(none)"
    return task.metadata.labels.get(by, "(none)")


def _unit_s(task: Task) -> float:
    status = task.status
    began_ns = status.started_ns or status.dispatched_ns
    if began_ns is None or status.finished_ns is None:
        return 0.0
    held_s = (status.finished_ns - began_ns) / NS_PER_S
    return task.all_units * (held_s if status.run_time_s is None else min(status.run_time_s, held_s))
