"""`millrace placement`: the workload controller, which brings what is to what is wanted."""

from __future__ import annotations

import typer

from controller.apps.cli.common import SettingsFile, run_daemon

placement = typer.Typer(
    name="placement", help="Create groups' pods, and replace those of silent nodes.", no_args_is_help=True
)


@placement.callback()
def _group() -> None:
    """Create groups' pods, and replace those of silent nodes."""


@placement.command()
def serve(settings: SettingsFile) -> None:
    """Run the workload controller: pods of groups' templates, nodes that are silent, what nobody wants any more."""
    from controller.workloads.placement import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)
