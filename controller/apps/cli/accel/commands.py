"""The commands of `millrace accel`, one file each."""

from __future__ import annotations

import typer

from controller.apps.cli.accel.explain import explain
from controller.apps.cli.accel.figures import figures
from controller.apps.cli.accel.measure import measure
from controller.apps.cli.accel.network import network
from controller.apps.cli.accel.run import run
from controller.apps.cli.accel.worker import worker

accel = typer.Typer(
    name="accel",
    help="CPU, accelerator or switch for each operator of a distributed job, before it runs.",
    no_args_is_help=True,
)


accel.command()(explain)
accel.command()(figures)
accel.command()(measure)
accel.command()(network)
accel.command()(run)
accel.command()(worker)
