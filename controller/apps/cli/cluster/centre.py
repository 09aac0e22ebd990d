"""`millrace centre`: the agent of a compute centre."""

from __future__ import annotations

import typer

from controller.apps.cli.common import SettingsFile, run_daemon

centre = typer.Typer(name="centre", help="Run the tasks dispatched to a compute centre.", no_args_is_help=True)


@centre.callback()
def _centre() -> None:
    """Run the tasks dispatched to a compute centre."""


@centre.command()
def serve(settings: SettingsFile) -> None:
    """Run a centre's agent: it divides resources into units, reports them, and runs tasks dispatched to them."""
    from controller.workloads.centres import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)
