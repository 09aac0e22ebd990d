"""`millrace api`: the service access point, and its tokens."""

from __future__ import annotations

import typer

from controller.cli.common import SettingsFile, log_to_stderr, ready

api = typer.Typer(name="api", help="The service access point, and its tokens.", no_args_is_help=True)


@api.command()
def serve(settings: SettingsFile) -> None:
    """Run the service access point: resources over HTTP, kept in a storage."""
    from controller.api import process  # noqa: PLC0415

    log_to_stderr("api")
    process.run(process.load_settings(settings), ready("api"))
