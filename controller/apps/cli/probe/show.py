"""`millrace probe show`: a probe task as text, and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controller.apps.cli.api import Address
from controller.apps.cli.output import Format, OneFormat
from controller.apps.cli.probe.source import Source, probe_of


def show(
    source: Source,
    picture: Annotated[
        Path | None, typer.Option("--picture", "-p", metavar="FILE", help="Draw its graph, .svg or .png.")
    ] = None,
    address: Address = None,
    form: OneFormat = Format.TABLE,
) -> None:
    """Show a probe task: its kernels with repetitions and sizes, and which means feed which kernel."""
    from controller.probing.files import dumps  # noqa: PLC0415
    from controller.probing.text import lines_of  # noqa: PLC0415

    probe = probe_of(source, address)
    if form is Format.JSON:
        typer.echo(dumps(probe, as_json=True), nl=False)
    else:
        for line in lines_of(probe):
            typer.echo(line)
    if picture is not None:
        from controller.probing.picture import draw  # noqa: PLC0415

        draw(probe, picture)
        typer.echo(f"{picture} is drawn", err=True)
