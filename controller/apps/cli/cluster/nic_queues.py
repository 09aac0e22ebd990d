"""`millrace nic list` and `nic mode`: polled queues of nodes, as their managers report and change them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from controller.apiserver.resources.nic import PolledQueue

_COLUMNS: Final = (
    *("node", "queue", "kind", "program", "process", "user", "core", "mode", "cpu %"),
    *("received", "sent", "dropped", "polls", "empty polls", "held by"),
)


class ModeWord(StrEnum):
    """Mode of a polling thread."""

    WAITING = "waiting"
    POLLING = "polling"
    HYBRID = "hybrid"


def list_queues(
    node: Annotated[str | None, typer.Option("--node", help="Only this node's.")] = None,
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """List the polled queues of nodes: who polls them, on which core, in which mode, with their counters."""
    from controller.apiserver.resources import Node  # noqa: PLC0415

    with client_of(address) as client:
        nodes = client.of(Node).list().items if node is None else (client.of(Node).get(node),)
    rows = [cells for each in nodes for cells in _rows(each.metadata.name, each.status.nic_queues)]
    show(_COLUMNS, rows, form)


def set_mode(  # noqa: PLR0917 - a command line's options
    node: Annotated[str, typer.Argument(metavar="NODE")],
    queue: Annotated[str, typer.Argument(metavar="DEVICE[:QUEUE]", help="A queue, or all of the device.")],
    mode: Annotated[ModeWord, typer.Argument(help="What the polling thread does while nothing comes.")],
    process: Annotated[int | None, typer.Option(min=1, help="Process, if several poll the device.")] = None,
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """Change how a queue is polled, and show what is in force then; no frame is lost by it."""
    from controller.apiserver.resources.nic import NicMode, NicModeRequest  # noqa: PLC0415

    device, number = device_and_queue(queue)
    request = NicModeRequest(device=device, queue=number, mode=NicMode(mode.value), process=process)
    with client_of(address) as client:
        answer = client.set_nic_mode(node, request)
    show(_COLUMNS, _rows(node, answer.queues), form)


def device_and_queue(text: str) -> tuple[str, int | None]:
    """Return the device and the queue's number; a device's own name may have colons (eth0:1)."""
    device, separator, number = text.rpartition(":")
    if not separator:
        return text, None
    if not device or not number.isdecimal() or int(number) > 65_535:
        raise typer.BadParameter(f"{text!r} is not a device, or DEVICE:QUEUE", param_hint="DEVICE[:QUEUE]")
    return device, int(number)


def _rows(node: str, queues: Iterable[PolledQueue]) -> list[Cells]:
    return [
        (
            node,
            queue.name if queue.network_namespace is None else f"{queue.name} in namespace {queue.network_namespace}",
            queue.kind,
            queue.program,
            queue.process,
            queue.user,
            queue.core,
            queue.mode.value,
            None if queue.cpu_share is None else round(100 * queue.cpu_share, 1),
            queue.received,
            queue.sent,
            queue.dropped,
            queue.polls,
            queue.empty_polls,
            _held_by(queue),
        )
        for queue in queues
    ]


def _held_by(queue: PolledQueue) -> str:
    """Return whether the manager has granted the queue, and whether the kernel shows it."""
    grant = "" if not queue.is_granted else f"grant for job {queue.job}" if queue.job else "grant"
    return grant if queue.is_confirmed else f"{grant} (unconfirmed)".strip()
