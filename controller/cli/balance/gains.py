"""`millrace balance gains`: which gains a controller starts with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from controller.cli.output import Format, FormatOption, show

if TYPE_CHECKING:
    from controller.balance.values import Gains


def gains(
    kp: Annotated[float, typer.Option(help="Output per error, near the balance.")] = 1.0,
    ki: Annotated[float, typer.Option(help="Output per error and sample.")] = 0.05,
    kd: Annotated[float, typer.Option(help="Output per change of the error from sample to sample.")] = 0.1,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the gains of the expert rule, by how large the error is and how quickly it changes."""
    from controller.balance.control.expert import around  # noqa: PLC0415
    from controller.balance.values import Gains  # noqa: PLC0415

    rule = around(Gains(kp, ki, kd))
    ranges = (
        (f"|e| >= {rule.far:g}", "any"),
        (f"{rule.near:g} <= |e| < {rule.far:g}", "any"),
        (f"|e| < {rule.near:g}", f"|ec| >= {rule.moving:g}"),
        (f"|e| < {rule.near:g}", f"|ec| < {rule.moving:g}"),
    )
    rows = [(*where, *_cells(rule.of_row(row))) for row, where in enumerate(ranges)]
    show(("error", "change", "kp", "ki", "kd"), rows, form)


def _cells(gains: Gains) -> tuple[float, float, float]:
    return gains.kp, gains.ki, gains.kd
