"""The commands of `millrace accel`, one file each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.accel.explain import explain
from controller.apps.cli.accel.measure import measure
from controller.apps.cli.accel.network import network
from controller.apps.cli.accel.run import run
from controller.apps.cli.accel.worker import worker
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from controller.acceleration.model.worked import Case
    from controller.acceleration.values import TransferModel


_COLUMNS = ("figure", "network", "compressed", "class", "ratio", "operator", "t", "gives", "text", "runs on")


def figures(  # noqa: PLR0917 - a command line's options
    transfer: Annotated[str, typer.Option(metavar="sum|per-path", help="Model of transfers.")] = "sum",
    finite: Annotated[bool, typer.Option("--finite-sum", help="Sum over the actual rounds, not the limit.")] = False,
    tie_band: Annotated[
        float, typer.Option("--tie-band", min=0, help="The CPU keeps operators of a ratio up to this above 1.")
    ] = 0.0,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the six figures side by side (.png or .svg).")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Draw each figure: figure-2a.svg to figure-2f.svg.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the ratio of CPU to GPU time in the eight worked cases, and draw the six that are figures."""
    from controller.acceleration.model.worked import CASES  # noqa: PLC0415
    from controller.acceleration.values import TransferModel  # noqa: PLC0415

    if transfer not in set(TransferModel):
        raise typer.BadParameter(f"--transfer {transfer}: expected {' or '.join(TransferModel)}")
    model = TransferModel(transfer)
    is_stated = model is TransferModel.SUM and not finite
    remarks = [case.remark if is_stated else "" for case in CASES]
    rows = [_cells(case, model, finite=finite, tie_band=tie_band) for case in CASES]
    if form is Format.TABLE:
        show(_COLUMNS, rows, form)
        for case, remark in zip(CASES, remarks, strict=True):
            if remark:
                typer.echo(f"{case.figure}: {remark}")
    else:
        show((*_COLUMNS, "remark"), [(*row, remark) for row, remark in zip(rows, remarks, strict=True)], form)
    _draw(picture, folder, model, finite=finite)


def _draw(picture: Path | None, folder: Path | None, transfer: TransferModel, *, finite: bool) -> None:
    if picture is None and folder is None:
        return
    from controller.acceleration.model.picture import draw_each, draw_figures  # noqa: PLC0415

    if picture is not None:
        draw_figures(picture, transfer, finite=finite)
        typer.echo(f"wrote {picture}", err=True)
    if folder is not None:
        for path in draw_each(folder, transfer, finite=finite):
            typer.echo(f"wrote {path}", err=True)


def _cells(case: Case, transfer: TransferModel, *, finite: bool, tie_band: float) -> Cells:
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
        "gpu" if ratio > 1 + tie_band else "cpu",
    )


accel = typer.Typer(
    name="accel",
    help="Choose CPU, accelerator or switch for each operator of a distributed job.",
    no_args_is_help=True,
)


accel.command()(explain)
accel.command()(figures)
accel.command()(measure)
accel.command()(network)
accel.command()(run)
accel.command()(worker)
