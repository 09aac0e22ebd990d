"""`millrace probe builder`: builds probe tasks for schedulers, in a process of its own."""

from __future__ import annotations

import typer

from controller.apps.cli.shared.common import SettingsFile, run_daemon

builder = typer.Typer(name="builder", help="Build the probe tasks of new types for schedulers.", no_args_is_help=True)


@builder.callback()
def commands() -> None:
    """Build the probe tasks of new types for schedulers."""


@builder.command()
def serve(settings: SettingsFile) -> None:
    """Run a builder: it builds the probes of types that have none, for schedulers with `probing.builds: false`."""
    from controller.scheduling import builder as process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)
