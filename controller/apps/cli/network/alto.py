"""`millrace alto`: the ALTO server (RFC 7285)."""

from __future__ import annotations

import typer

from controller.apps.cli.shared.common import SettingsFile, run_daemon

alto = typer.Typer(name="alto", help="Serve the cost map by ALTO (RFC 7285, RFC 9439).")


@alto.callback(invoke_without_command=True, no_args_is_help=True)
def commands() -> None:
    """Serve the cost map to ALTO clients."""


@alto.command()
def serve(settings: SettingsFile) -> None:
    """Run the ALTO server: network maps, cost maps and costs between addresses over HTTP."""
    from controller.cluster.alto import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)
