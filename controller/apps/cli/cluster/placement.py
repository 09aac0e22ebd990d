"""`millrace placement`: the workload controller, which reconciles groups of pods."""

from __future__ import annotations

import typer

from controller.apps.cli.shared.common import SettingsFile, run_daemon

placement = typer.Typer(
    name="placement", help="Create groups' pods, and replace those of silent nodes.", no_args_is_help=True
)


@placement.callback()
def _group() -> None:
    """Create groups' pods, and replace those of silent nodes."""


@placement.command()
def serve(settings: SettingsFile) -> None:
    """Run the workload controller: create groups' pods, handle silent nodes, remove what is no longer wanted."""
    from controller.workloads.placement import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)
