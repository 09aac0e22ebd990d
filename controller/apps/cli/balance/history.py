"""`millrace balance history`: recorded reports of holders, resulting outputs, and moves."""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show, utc
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from controller.balance.serving.history import ChangeRow, ReportRow


def history(  # noqa: PLR0917 - a command line's options
    pool: Annotated[str, typer.Argument(help="Name of the pool.")],
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The service's history; default: that of `millrace up` in its folder."),
    ] = None,
    holder: Annotated[str | None, typer.Option(help="Only this holder.")] = None,
    last_s: Annotated[float, typer.Option("--last", "--last-s", parser=in_seconds(1), help="Period to show.")] = 3600.0,
    moves: Annotated[bool, typer.Option("--moves", help="Show moves instead of reports.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="Maximum number of rows, the newest.")] = 10_000,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw error, output and levers (.png or .svg).")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show error, output and levers of a pool's holders over time, or moves; times are UTC."""
    from controller.balance.serving.history import ChangeRow, ReportRow, read_history  # noqa: PLC0415

    since_ns = time.time_ns() - round(last_s * NS_PER_S)
    with read_history(file or _default_file()) as kept:
        kept.check(pool, holder)
        records = kept.changes(pool, holder, since_ns, limit) if moves else kept.reports(pool, holder, since_ns, limit)
        if picture is not None:
            from controller.balance.serving.picture import draw_history  # noqa: PLC0415

            draw_history(pool, kept.reports(pool, holder, since_ns, limit), picture)
            typer.echo(f"wrote {picture}", err=True)
            return
    kind = ChangeRow if moves else ReportRow
    columns = ["time" if field.name == "time_ns" else field.name for field in fields(kind)]
    show(columns, (_cells(row) for row in records), form)


def _cells(row: ReportRow | ChangeRow) -> Cells:
    values = [getattr(row, field.name) for field in fields(row)]
    return [utc(row.time_ns), *values[1:]]


def _default_file() -> Path:
    from controller.apps.up.places import default_state  # noqa: PLC0415

    return default_state() / "balance.sqlite"
