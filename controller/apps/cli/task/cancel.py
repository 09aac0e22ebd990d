"""`millrace task cancel`."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.cluster.names import complete_name_of


def cancel(
    names: Annotated[list[str], typer.Argument(metavar="TASK...", autocompletion=complete_name_of("tasks"))],
    address: Address = None,
) -> None:
    """Cancel tasks; a running task is stopped by its centre first, and removed once its units are free."""
    from controller.apiserver.resources import Task  # noqa: PLC0415

    with client_of(address) as client:
        for name in names:
            task = client.of(Task).delete(name)
            outcome = "is cancelled" if task.metadata.deleting_ns is None else "is being stopped"
            typer.echo(f"task {name} {outcome}")
