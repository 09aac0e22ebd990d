"""`millrace view`: the operators' page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of


def view(
    history: Annotated[
        Path | None,
        typer.Argument(metavar="[FOLDER]", help="A collector's history, or a folder that has one: show it, alone."),
    ] = None,
    viewer: Annotated[bool, typer.Option("--viewer", help="For somebody who may look and change nothing.")] = False,
    topology: Annotated[
        str | None, typer.Option(metavar="FILE", help="The history's topology; default: the one that it names.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="TCP port for a history; 0: any.")] = 0,
    address: Address = None,
) -> None:
    """Print an address that opens the operators' page, once, within a minute; of a history, serve it."""
    from controller.common.errors import ApiError  # noqa: PLC0415

    if history is not None:
        from controller.apps.page import run_recorded  # noqa: PLC0415

        run_recorded(history, topology, port, typer.echo)
        return
    with client_of(address) as client:
        made = client.new_code(viewer=viewer)
    if not made.urls:
        raise ApiError("the API server listens at no HOST:PORT, so no browser reaches it: add one to listen")
    for url in made.urls:
        typer.echo(f"{url}/#{made.code}")
