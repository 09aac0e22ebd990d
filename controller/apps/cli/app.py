"""The command line; each command's module is imported when the command is called."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.apps.cli.lazy import LazyGroup
from controller.apps.cli.log_options import OPTIONS, LogFormat, LogLevel, LogOptions
from controller.apps.cli.table import ABOUT, COMMANDS, help_text


class _Millrace(LazyGroup):
    rows = tuple(row for rows in COMMANDS.values() for row in rows)

    def get_help(self, ctx: typer.Context) -> str:  # type: ignore[override]  # noqa: ARG002
        """Return the help, which `millrace --help` prints without coming here."""
        return help_text()


app = typer.Typer(
    name="millrace",
    help=ABOUT,
    cls=_Millrace,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # errors of usage are plain lines, and Rich need not be loaded for them
)


def _version(wanted: bool) -> None:
    if wanted:
        from controller.apps.cli.version import version  # noqa: PLC0415

        version()
        raise typer.Exit


@app.callback()
def _millrace(
    version: Annotated[  # noqa: ARG001 - it acts by itself
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    log_level: Annotated[
        LogLevel, typer.Option(envvar="MILLRACE_LOG_LEVEL", help="Minimum log level of daemons.")
    ] = LogLevel.INFO,
    log_format: Annotated[
        LogFormat, typer.Option(envvar="MILLRACE_LOG_FORMAT", help="Log format of daemons.")
    ] = LogFormat.TEXT,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no ready line and no progress; log warnings and errors only.")
    ] = False,
) -> None:
    level = max(log_level, LogLevel.WARNING, key=list(LogLevel).index) if quiet else log_level
    OPTIONS.set(LogOptions(level, log_format, quiet))
