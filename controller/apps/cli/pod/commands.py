"""The commands of `millrace pod`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from controller.apps.cli.api import Address, client_of
from controller.apps.cli.pod.apply import apply
from controller.apps.cli.pod.exec import exec_
from controller.apps.cli.pod.list import list_
from controller.apps.cli.pod.logs import logs
from controller.apps.cli.pod.schema import schema
from controller.apps.cli.pod.show import show
from controller.apps.cli.pod.top import top
from controller.apps.cli.pod.waiting import Timeout, Wait
from controller.apps.cli.pod.why import why


def delete(
    names: Annotated[list[str], typer.Argument(metavar="POD...")],
    wait: Wait = False,
    timeout: Timeout = 300.0,
    address: Address = None,
) -> None:
    """Delete pods; one that runs is stopped first, and goes when its node has released it."""
    from controller.apiserver.resources import Pod  # noqa: PLC0415

    going = []
    with client_of(address) as client:
        for name in names:
            found = client.of(Pod).delete(name)
            if found.metadata.deleting_ns is not None:
                going.append(name)
                typer.echo(f"pod {name} is being deleted")
            else:
                typer.echo(f"pod {name} is deleted")
    if wait and going:
        from controller.apps.cli.pod.waiting import until_gone  # noqa: PLC0415

        asyncio.run(until_gone(address, going, timeout))
        for name in going:
            typer.echo(f"pod {name} is gone")


pod = typer.Typer(name="pod", help="Run containers: scripts, places and why, logs, commands.", no_args_is_help=True)

pod.command()(apply)
pod.command("list")(list_)
pod.command()(show)
pod.command()(why)
pod.command()(logs)
pod.command("exec", context_settings={"allow_interspersed_args": False})(exec_)
pod.command()(delete)
pod.command()(top)
pod.command()(schema)
