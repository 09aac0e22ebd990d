"""`millrace node`: the container manager of a node."""

from __future__ import annotations

import typer

from controller.apps.cli.shared.common import SettingsFile, run_daemon

node = typer.Typer(name="node", help="Run the pods bound to a node.", no_args_is_help=True)


@node.callback()
def _node() -> None:
    """Run the pods bound to a node."""


@node.command()
def serve(settings: SettingsFile) -> None:
    """Run a node's container manager: it runs pods bound to the node, and stops those no longer wanted."""
    from controller.workloads.nodes import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)
