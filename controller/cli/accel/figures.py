"""`millrace accel figures`: the worked cases of the acceleration model, as ratios and as plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from controller.cli.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from controller.schedulers.acceleration.model.worked import Case
    from controller.schedulers.acceleration.values import TransferModel

_COLUMNS = ("figure", "network", "compressed", "class", "ratio", "operator", "t", "gives", "text", "runs on")


def figures(
    transfer: Annotated[str, typer.Option(metavar="sum|per-path", help="How transfers are counted.")] = "sum",
    finite: Annotated[
        bool, typer.Option("--finite-sum", help="The sum over the rounds that there are, not its limit.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the ratio of CPU to GPU time in the eight worked cases, of which six are figures."""
    from controller.schedulers.acceleration.model.worked import CASES  # noqa: PLC0415
    from controller.schedulers.acceleration.values import TransferModel  # noqa: PLC0415

    if transfer not in set(TransferModel):
        raise typer.BadParameter(f"--transfer {transfer}: it is {' or '.join(TransferModel)}")
    model = TransferModel(transfer)
    show(_COLUMNS, [_cells(case, model, finite) for case in CASES], form)
    if model is TransferModel.SUM and not finite:
        for case in CASES:
            if case.remark:
                typer.echo(f"{case.figure}: {case.remark}", err=form is not Format.TABLE)


def _cells(case: Case, transfer: TransferModel, finite: bool) -> Cells:
    ratio = case.ratio(transfer, finite=finite)
    return (
        case.figure or "-",
        case.network_name,
        "yes" if case.accelerator.compression else "no",
        str(case.growth),
        str(case.form(transfer, finite=finite)),
        case.operator,
        float(case.t),
        round(float(ratio), 4),
        case.stated,
        "gpu" if ratio > 1 else "cpu",
    )
