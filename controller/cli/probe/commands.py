"""The commands of `millrace probe`, one file each."""

from __future__ import annotations

import typer

from controller.cli.probe.build import build
from controller.cli.probe.hours import hours
from controller.cli.probe.kernels.commands import kernels
from controller.cli.probe.results import efficiency, results
from controller.cli.probe.run import run
from controller.cli.probe.send import send
from controller.cli.probe.show import show
from controller.cli.probe.trace import trace

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
