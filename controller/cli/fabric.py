"""`millrace fabric`: a topology that stays up."""

from __future__ import annotations

import logging

import typer

from controller.cli.common import SettingsFile, log_to_stderr, ready

fabric = typer.Typer(
    name="fabric", help="A topology as a daemon, in virtual time or in the kernel.", no_args_is_help=True
)


@fabric.callback()
def _fabric() -> None:
    """Keep `serve` a word of its own."""


@fabric.command()
def serve(settings: SettingsFile) -> None:
    """Run a topology's switches, cables and hosts until SIGTERM; reports go to a collector that runs elsewhere."""
    from dataplane.fabric.live import process  # noqa: PLC0415

    log_to_stderr("fabric")
    # A line for each port that a controller sets says nothing where one process has all switches.
    logging.getLogger("millrace.switch").setLevel(logging.WARNING)
    process.run(process.load_settings(settings), ready("fabric"))
