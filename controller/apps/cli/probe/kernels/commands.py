"""The commands of `millrace probe kernels`, one file each."""

from __future__ import annotations

import typer

from controller.apps.cli.probe.kernels.list import list_
from controller.apps.cli.probe.kernels.run import run
from controller.apps.cli.probe.kernels.serve import serve
from controller.apps.cli.probe.kernels.show import show
from controller.apps.cli.probe.kernels.write import add, change, delete

kernels = typer.Typer(name="kernels", help="Manage the library of probe kernels.", no_args_is_help=True)

kernels.command("list")(list_)
kernels.command()(show)
kernels.command()(run)
kernels.command()(add)
kernels.command()(change)
kernels.command()(delete)
kernels.command()(serve)
