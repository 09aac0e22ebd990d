"""The commands of `millrace probe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from controller.apps.cli.cluster.api import Address
from controller.apps.cli.probe.build import build
from controller.apps.cli.probe.builder import builder
from controller.apps.cli.probe.hours import hours
from controller.apps.cli.probe.kernels.commands import kernels
from controller.apps.cli.probe.policy import policy
from controller.apps.cli.probe.results import efficiency, results
from controller.apps.cli.probe.run import Source, probe_of, run
from controller.apps.cli.probe.send import send
from controller.apps.cli.probe.trace import trace
from controller.apps.cli.shared.output import Format, OneFormat


def show(
    source: Source,
    picture: Annotated[
        Path | None, typer.Option("--picture", "-p", metavar="FILE", help="Draw its graph, .svg or .png.")
    ] = None,
    address: Address = None,
    form: OneFormat = Format.TABLE,
) -> None:
    """Show a probe task: its kernels with repetitions and sizes, and the links between them."""
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
        typer.echo(f"wrote {picture}", err=True)


probe = typer.Typer(
    name="probe",
    help="Measure what compute centres deliver: probe kernels, probe tasks, results.",
    no_args_is_help=True,
)

probe.add_typer(kernels)
probe.add_typer(builder)
probe.add_typer(policy)
probe.command()(build)
probe.command()(run)
probe.command()(show)
probe.command()(send)
probe.command()(results)
probe.command()(efficiency)
probe.command()(hours)
probe.command()(trace)
