"""`millrace pod explain`: every decision about a pod, node by node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.cluster.decisions import COLUMNS, cells, show_decision, show_history
from controller.apps.cli.pod.list import phase_of
from controller.apps.cli.shared.output import Format, FormatOption, show

if TYPE_CHECKING:
    from controller.apiserver.resources import Pod


def explain(
    name: Annotated[str, typer.Argument(metavar="POD")],
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """Explain why a pod runs where it does, or waits: rejected nodes, scores, earlier decisions."""
    from controller.apiserver.resources import Decision, Pod  # noqa: PLC0415

    with client_of(address) as client:
        pod = client.of(Pod).get(name)
        records = client.of(Decision).list(fields=f"about={name}").items
    decisions = sorted(records, key=lambda decision: decision.metadata.revision)
    if form is not Format.TABLE:
        show(COLUMNS, map(cells, reversed(decisions)), form)
        return
    if not decisions:
        _show_pod(pod)
        typer.echo("no decision yet: its scheduler is not running, or has yet to decide")
        return
    shown = next((decision for decision in decisions if decision.metadata.name == pod.status.decision), decisions[-1])
    _show_pod(pod, shown.spec.reason)
    show_decision(shown)
    show_history(decisions)


def _show_pod(pod: Pod, decided: str = "") -> None:
    """Print a pod's state and node; the decision's reason follows below."""
    status = pod.status
    others = [reason for reason in status.reasons if reason != decided]
    where = "" if status.node is None else f" on {status.node}"
    reasons = f": {'; '.join(others)}" if others else ""
    typer.echo(f"{pod.metadata.name} is {phase_of(pod)}{where}{reasons}")
    if status.nominated is not None:
        typer.echo(f"nominated for {status.nominated}: room is being made there")
    location = pod.spec.location
    if location is not None:
        stated = ((part, getattr(location, part)) for part in ("node", "device", "device_kind"))
        typer.echo(f"its manifest sets {', '.join(f'{part} {value}' for part, value in stated if value is not None)}")
    if pod.spec.brought:
        typer.echo(pod.spec.brought)
    if status.devices:
        held = (f"device {share.number} ({share.thousandths / 1000:.0%})" for share in status.devices)
        typer.echo(f"it holds {', '.join(held)}")
