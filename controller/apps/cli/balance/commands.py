"""The commands of `millrace balance`."""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.amounts import in_seconds
from controller.apps.cli.balance.driving import drive, levers
from controller.apps.cli.balance.example import example
from controller.apps.cli.balance.gains import gains
from controller.apps.cli.balance.setting import report, set_pool
from controller.apps.cli.balance.status import status
from controller.apps.cli.balance.trying import try_controllers
from controller.apps.cli.balance.tune import tune
from controller.apps.cli.balance.whatif import whatif
from controller.apps.cli.common import SettingsFile, log_to_stderr, ready
from controller.apps.cli.output import Cells, Format, FormatOption, show, utc

if TYPE_CHECKING:
    from controller.balance.rules.learned import Learned
    from controller.balance.serving.history import ChangeRow, ReportRow
    from controller.balance.values import LeverKind


def history(  # noqa: PLR0917 - a command line's options
    pool: Annotated[str, typer.Argument(help="The pool's name.")],
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The service's history; else that of `millrace up` in its default folder."),
    ] = None,
    holder: Annotated[str | None, typer.Option(help="Of this holder alone.")] = None,
    last_s: Annotated[float, typer.Option("--last", "--last-s", parser=in_seconds(1), help="How far back.")] = 3600.0,
    moves: Annotated[bool, typer.Option("--moves", help="What moved, instead of reports.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="At most so many rows, the newest.")] = 10_000,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw error, output and levers (.png or .svg).")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show error, output and levers of a pool's holders over time, or what moved; times are UTC."""
    from controller.balance.serving.history import ChangeRow, ReportRow, read_history  # noqa: PLC0415

    since_ns = time.time_ns() - round(last_s * 1e9)
    with read_history(file or _default_file()) as kept:
        kept.check(pool, holder)
        found = kept.changes(pool, holder, since_ns, limit) if moves else kept.reports(pool, holder, since_ns, limit)
        if picture is not None:
            from controller.balance.serving.picture import draw_history  # noqa: PLC0415

            draw_history(pool, kept.reports(pool, holder, since_ns, limit), picture)
            typer.echo(f"wrote {picture}", err=True)
            return
    kind = ChangeRow if moves else ReportRow
    columns = ["time" if field.name == "time_ns" else field.name for field in fields(kind)]
    show(columns, (_cells(row) for row in found), form)


def _cells(row: ReportRow | ChangeRow) -> Cells:
    values = [getattr(row, field.name) for field in fields(row)]
    return [utc(row.time_ns), *values[1:]]


def _default_file() -> Path:
    from controller.apps.up.state import default_state  # noqa: PLC0415

    return default_state() / "balance.sqlite"


_COLUMNS = ("interval", "precision_steps", "frequency_mhz", "sub_units")


def learn(  # noqa: PLR0917 - a command line's options
    history: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="CSV with time_s, bus, load, precision, frequency_mhz, sub_units, and unit if several."
        ),
    ],
    unit: Annotated[str, typer.Option(help="Of which unit, where the file has several.")] = "",
    lever: Annotated[
        list[str] | None, typer.Option(metavar="LEVER", help="A lever that the table is to move; may be repeated.")
    ] = None,
    share: Annotated[float, typer.Option(min=0.01, max=1.0, help="Of an error, a step corrects so much.")] = 0.5,
    write: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table as settings, YAML.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show what each lever's moves did to the error in a unit's history, and the interval table that follows."""
    from controller.balance.rules.history import read_history  # noqa: PLC0415
    from controller.balance.rules.learned import Learning  # noqa: PLC0415
    from controller.balance.rules.learned import learn as learned_from  # noqa: PLC0415
    from controller.balance.rules.limits import ORDER  # noqa: PLC0415

    levers = tuple(_lever(one) for one in lever) if lever else ORDER
    learned = learned_from(read_history(history, unit), Learning(levers=levers, share=share))
    _say(learned, form)
    rows: list[Cells] = [
        (row.interval, row.precision_steps, row.frequency_mhz, row.sub_units) for row in learned.table().rows
    ]
    show(_COLUMNS, rows, form)
    if write is not None:
        _write(write, learned)
        typer.echo(f"wrote {write}", err=True)


def _lever(name: str) -> LeverKind:
    from controller.balance.values import LeverKind  # noqa: PLC0415

    if name not in set(LeverKind):
        raise typer.BadParameter(f"--lever {name}: it is {', '.join(LeverKind)}")
    return LeverKind(name)


def _say(learned: Learned, form: Format) -> None:
    """Print what is known about the levers, next to the table."""
    aside = form is not Format.TABLE
    for kind, effect in learned.effects.items():
        typer.echo(f"{kind}: {effect}", err=aside)
    for kind, reason in learned.unknown.items():
        typer.echo(f"{kind}: unknown, {reason}", err=aside)
    at = learned.typical
    typer.echo(
        f"for {at.sub_units} sub-units at {at.frequency_mhz:g} MHz and {at.precision}; reports come "
        f"{learned.delay} samples late; {learned.windows} windows",
        err=aside,
    )


def _write(path: Path, learned: Learned) -> None:
    import msgspec  # noqa: PLC0415
    import yaml  # noqa: PLC0415

    from controller.balance.errors import RuleError  # noqa: PLC0415

    settings = {"table": msgspec.to_builtins(learned.table()), "levers": [str(kind) for kind in learned.effects]}
    try:
        path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise RuleError(f"{path}: {error.strerror or error}") from error


def serve(settings: SettingsFile) -> None:
    """Run the management service: units of pools move from holders that free them to those that ask."""
    from controller.balance import process  # noqa: PLC0415

    log_to_stderr("balance")
    process.run(process.load_settings(settings), ready("balance"))


balance = typer.Typer(
    name="balance",
    help="Transfer and compute load of units kept even by feedback: gains, rules, levers, the pool's service.",
    no_args_is_help=True,
)


balance.command()(drive)
balance.command()(example)
balance.command()(gains)
balance.command()(learn)
balance.command()(levers)
balance.command()(serve)
balance.command("try")(try_controllers)
balance.command()(tune)
balance.command()(whatif)
balance.command()(status)
balance.command("set")(set_pool)
balance.command()(report)
balance.command()(history)
