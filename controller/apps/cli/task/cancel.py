"""`millrace task cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of

if TYPE_CHECKING:
    from controller.apiserver.client.synchronous import SyncApiClient
    from controller.apiserver.resources import Task


def cancel(
    names: Annotated[list[str], typer.Argument(metavar="TASK...")],
    address: Address = None,
) -> None:
    """Cancel tasks; a running task is stopped by its centre first, and removed once its units are free.

    An ended task stays: `millrace delete task NAME` removes its record.
    """
    from controller.common.errors import ControllerError, StaleError  # noqa: PLC0415

    ended = []
    with client_of(address) as client:
        for name in names:
            try:
                task = _cancelled(client, name)
            except StaleError as error:
                ended.append(str(error))
                continue
            outcome = "is cancelled" if task.metadata.deleting_ns is None else "is being stopped"
            typer.echo(f"task {name} {outcome}")
    if ended:
        raise ControllerError("; ".join(ended))


def _cancelled(client: SyncApiClient, name: str) -> Task:
    """Delete a task that has not ended, and return its last state; raise StaleError if it has."""
    from controller.apiserver.resources import Task  # noqa: PLC0415
    from controller.apiserver.resources.task import TASK_ENDED  # noqa: PLC0415
    from controller.common.errors import StaleError  # noqa: PLC0415

    while True:
        task = client.of(Task).get(name)
        if task.status.phase in TASK_ENDED:
            record = f"`millrace delete task {name}` removes its record"
            raise StaleError(f"task {name} has already {task.status.phase.value}: nothing to cancel; {record}")
        try:
            return client.of(Task).delete(name, expected=task.metadata.revision)
        except StaleError:  # it changed in between, and may have ended
            continue
