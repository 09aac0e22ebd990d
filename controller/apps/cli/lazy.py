"""A group of commands whose modules are imported when one of them is called, or asked for its own help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.models import TyperInfo

from controller.apps.cli.table import Row


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
    """Commands by name; each is imported when it is looked up first."""

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
    found = getattr(import_module(module), name)
    holder = typer.Typer()
    if isinstance(found, typer.Typer):
        holder.add_typer(found)
    else:
        holder.command(row.name)(found)
    group = typer.main.get_group_from_info(
        TyperInfo(holder), pretty_exceptions_short=False, rich_markup_mode=None, suggest_commands=True
    )
    return group.commands[row.name]
