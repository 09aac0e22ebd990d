"""The command line; each command's module is imported when the command is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.models import TyperInfo

from controller.apps.cli.shared.log_options import OPTIONS, LogFormat, LogLevel, LogOptions
from controller.apps.cli.table import ABOUT, COMMANDS, Row, help_text


class LazyGroup(TyperGroup):
    """A group of the commands in `rows`; each command line sets them in a subclass."""

    rows: Sequence[Row]

    def __init__(self, **more: Any) -> None:  # noqa: ANN401 - Typer's own
        super().__init__(**more)
        self.commands = _Commands({row.name: row for row in self.rows})

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002
        """Return all names, in the order of the help."""
        return list(self.commands)


class _Commands(MutableMapping[str, Any]):
    """Commands by name; each is imported at its first lookup."""

    def __init__(self, rows: Mapping[str, Row]) -> None:
        self._rows = dict(rows)
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a command of Typer
        if name not in self._loaded:
            self._loaded[name] = _load(self._rows[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:  # noqa: ANN401
        self._loaded[name] = command
        self._rows.setdefault(name, Row(name, "", ""))

    def __delitem__(self, name: str) -> None:
        del self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def _load(row: Row) -> Any:  # noqa: ANN401 - a command of Typer
    module, _, name = row.place.partition(":")
    command = getattr(import_module(module), name)
    holder = typer.Typer()
    if isinstance(command, typer.Typer):
        holder.add_typer(command)
    else:
        holder.command(row.name)(command)
    group = typer.main.get_group_from_info(
        TyperInfo(holder), pretty_exceptions_short=False, rich_markup_mode=None, suggest_commands=True
    )
    return group.commands[row.name]


class _Millrace(LazyGroup):
    rows = tuple(row for rows in COMMANDS.values() for row in rows)

    def get_help(self, ctx: typer.Context) -> str:  # type: ignore[override]  # noqa: ARG002
        """Return the help, which `millrace --help` prints without this module."""
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
