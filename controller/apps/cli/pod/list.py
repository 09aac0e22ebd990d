"""`millrace pod list`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.cluster.resources import age_of
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from controller.apiserver.resources import Pod

COLUMNS = ("name", "phase", "ready", "restarts", "node", "group", "age", "reasons")


def list_(
    labels: Annotated[str, typer.Option("--labels", "-l", metavar="a=b,!c", help="Only with these labels.")] = "",
    node: Annotated[str | None, typer.Option(help="Only pods on this node.")] = None,
    group: Annotated[str | None, typer.Option(help="Only pods of this group.")] = None,
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """List pods with their node, running containers and reason for waiting."""
    from controller.apiserver.resources import Pod  # noqa: PLC0415

    given = (("node", node), ("group", group))
    fields = ",".join(f"{name}={value}" for name, value in given if value is not None)
    with client_of(address) as client:
        listed = client.of(Pod).list(labels=labels, fields=fields)
    now_ns = time.time_ns()
    show(COLUMNS, (_cells(pod, now_ns) for pod in listed.items), form)
    if listed.age_s is not None:
        typer.echo(f"the storage is unavailable: this is {listed.age_s} s old", err=True)


def phase_of(pod: Pod) -> str:
    """Return a pod's phase for people."""
    return "deleting" if pod.metadata.deleting_ns is not None else pod.status.phase.value


def _cells(pod: Pod, now_ns: int) -> Cells:
    status = pod.status
    running = sum(container.state == "running" for container in status.containers)
    return (
        pod.metadata.name,
        phase_of(pod),
        f"{running}/{len(pod.spec.containers)}",
        sum(container.restarts for container in status.containers),
        status.node,
        pod.spec.group,
        age_of(pod, now_ns),
        "; ".join(status.reasons[:2]),
    )
