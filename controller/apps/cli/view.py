"""`millrace view`: the operators' page."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of


def view(
    viewer: Annotated[bool, typer.Option("--viewer", help="For somebody who may look and change nothing.")] = False,
    address: Address = None,
) -> None:
    """Print an address that opens the operators' page, once, within a minute."""
    from controller.common.errors import ApiError  # noqa: PLC0415

    with client_of(address) as client:
        made = client.new_code(viewer=viewer)
    if not made.urls:
        raise ApiError("the API server listens at no HOST:PORT, so no browser reaches it: add one to listen")
    for url in made.urls:
        typer.echo(f"{url}/#{made.code}")
