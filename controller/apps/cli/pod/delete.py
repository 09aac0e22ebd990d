"""`millrace pod delete`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.pod.waiting import Timeout, Wait


def delete(
    names: Annotated[list[str], typer.Argument(metavar="POD...")],
    wait: Wait = False,
    timeout: Timeout = 300.0,
    address: Address = None,
) -> None:
    """Delete pods; a running pod is stopped first, and removed when its node has released it."""
    from controller.apiserver.resources import Pod  # noqa: PLC0415

    going = []
    with client_of(address) as client:
        for name in names:
            pod = client.of(Pod).delete(name)
            if pod.metadata.deleting_ns is not None:
                going.append(name)
                typer.echo(f"pod {name} is being deleted")
            else:
                typer.echo(f"pod {name} is deleted")
    if wait and going:
        from controller.apps.cli.pod.waiting import until_gone  # noqa: PLC0415

        asyncio.run(until_gone(address, going, timeout))
        for name in going:
            typer.echo(f"pod {name} is gone")
