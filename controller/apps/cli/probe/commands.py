"""The commands of `millrace probe`, one file each."""

from __future__ import annotations

import typer

from controller.apps.cli.probe.build import build
from controller.apps.cli.probe.hours import hours
from controller.apps.cli.probe.kernels.commands import kernels
from controller.apps.cli.probe.results import efficiency, results
from controller.apps.cli.probe.run import run
from controller.apps.cli.probe.send import send
from controller.apps.cli.probe.show import show
from controller.apps.cli.probe.trace import trace

probe = typer.Typer(
    name="probe", help="What compute centres really deliver: probe kernels, probe tasks, results.", no_args_is_help=True
)

probe.add_typer(kernels)
probe.command()(build)
probe.command()(run)
probe.command()(show)
probe.command()(send)
probe.command()(results)
probe.command()(efficiency)
probe.command()(hours)
probe.command()(trace)
