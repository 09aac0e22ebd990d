"""`millrace balance learn`: an interval table from the recorded effects of a unit's levers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.shared.common import slow
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from controller.balance.rules.learned import Learned
    from controller.balance.values import LeverKind

_COLUMNS = ("interval", "precision_steps", "frequency_mhz", "sub_units", "concurrency", "power_w")


@slow("learning from the history")
def learn(  # noqa: PLR0917 - a command line's options
    history: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="CSV with time_s, bus, load, precision, frequency_mhz, sub_units, and unit if several."
        ),
    ],
    unit: Annotated[str, typer.Option(help="Unit to use, if the file has several.")] = "",
    lever: Annotated[
        list[str] | None, typer.Option(metavar="LEVER", help="Lever that the table may move; repeatable.")
    ] = None,
    share: Annotated[float, typer.Option(min=0.01, max=1.0, help="Share of an error that a step corrects.")] = 0.5,
    write: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table as settings, YAML.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the effect of each lever's moves on the error in a unit's history, and the resulting interval table."""
    from controller.balance.rules.history import read_history  # noqa: PLC0415
    from controller.balance.rules.learned import LEARNED, Learning  # noqa: PLC0415
    from controller.balance.rules.learned import learn as learned_from  # noqa: PLC0415

    levers = tuple(_lever(word) for word in lever) if lever else LEARNED
    learned = learned_from(read_history(history, unit), Learning(levers=levers, share=share))
    _print_learned(learned, form)
    rows: list[Cells] = [
        (row.interval, row.precision_steps, row.frequency_mhz, row.sub_units, row.concurrency, row.power_w)
        for row in learned.table().rows
    ]
    show(_COLUMNS, rows, form)
    if write is not None:
        _write(write, learned)
        typer.echo(f"wrote {write}", err=True)


def _lever(name: str) -> LeverKind:
    from controller.balance.values import LeverKind  # noqa: PLC0415

    if name not in set(LeverKind):
        raise typer.BadParameter(f"--lever {name}: expected {', '.join(LeverKind)}")
    return LeverKind(name)


def _print_learned(learned: Learned, form: Format) -> None:
    """Print what is known about the levers, next to the table."""
    aside = form is not Format.TABLE
    for kind, effect in learned.effects.items():
        typer.echo(f"{kind}: {effect}", err=aside)
    for kind, reason in learned.unknown.items():
        typer.echo(f"{kind}: unknown, {reason}", err=aside)
    at = learned.typical
    typer.echo(
        f"for {at.sub_units} sub-units at {at.frequency_mhz:g} MHz and {at.precision}; reports are "
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
