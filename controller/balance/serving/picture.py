"""The history of a pool as a picture: error, output and units of its holders over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure

from controller.balance.errors import HistoryError
from controller.balance.serving.history import ReportRow
from controller.balance.values import Precision
from dataplane.clock import NS_PER_S

_DPI: Final = 110
_MOST_HOLDERS: Final = 10
"""As many as there are colours."""
_DEAD_BAND: Final = 0.1
_ERROR: Final = "error e"
_OUTPUT: Final = "output u"
_PRECISION: Final = "precision"
_STEPS: Final = {precision.value: number for number, precision in enumerate(Precision)}

_Figure = Callable[[ReportRow], float | None]


def draw_history(pool: str, rows: Sequence[ReportRow], file: Path, *, dead_band: float = _DEAD_BAND) -> None:
    """Plot error, output and levers over time, a line for each holder, as .png or .svg.

    Raise HistoryError for another suffix, if there is nothing to plot, or on a failed write.
    """
    if file.suffix not in {".png", ".svg"}:
        raise HistoryError(f"{file}: a picture's name ends in .png or .svg")
    if not rows:
        raise HistoryError(f"{file}: no report of pool {pool} to draw")
    holders = sorted({row.holder for row in rows})
    shown = holders[:_MOST_HOLDERS]
    parts = _parts(rows)
    canvas = Figure(figsize=(10, 1.2 + 2.1 * len(parts)), layout="constrained")
    column = canvas.subplots(len(parts), 1, squeeze=False, sharex=True)[:, 0]
    for axes, (label, figure, is_step) in zip(column, parts, strict=True):
        for number, holder in enumerate(shown):
            _draw(axes, [row for row in rows if row.holder == holder], figure, f"C{number}", is_step=is_step)
        axes.set_ylabel(label)
        if label in {_ERROR, _OUTPUT}:
            axes.axhspan(-dead_band, dead_band, color="0.9", zorder=0)
            axes.set_ylim(-1.05, 1.05)
        if label == _PRECISION:
            axes.set_yticks(list(_STEPS.values()), list(_STEPS))
        axes.grid(alpha=0.3)
    _legend(column[0], shown, len(holders))
    locator: Any = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    column[-1].xaxis.set_major_locator(locator)
    column[-1].xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    column[-1].set_xlabel("UTC; grey: the dead band")
    canvas.suptitle(f"pool {pool}", fontsize=11)
    try:
        canvas.savefig(file, dpi=_DPI, metadata={"Date": None} if file.suffix == ".svg" else None)
    except OSError as error:
        raise HistoryError(f"{file}: {error.strerror or error}") from error


def _parts(rows: Sequence[ReportRow]) -> list[tuple[str, _Figure, bool]]:
    """Return the parts to plot, without levers that no holder reports."""
    parts: list[tuple[str, _Figure, bool]] = [
        (_ERROR, lambda row: row.error, False),
        ("sub-units", lambda row: row.units, True),
    ]
    if any(row.output is not None for row in rows):
        parts.insert(1, (_OUTPUT, lambda row: row.output, False))
    if any(row.frequency_mhz is not None for row in rows):
        parts.append(("clock, MHz", lambda row: row.frequency_mhz, True))
    if any(row.precision in _STEPS for row in rows):
        parts.append((_PRECISION, lambda row: _STEPS.get(row.precision), True))
    return parts


def _draw(axes: Axes, rows: Sequence[ReportRow], figure: _Figure, colour: str, *, is_step: bool) -> None:
    points = [(_date(row.time_ns), value) for row in rows if (value := figure(row)) is not None]
    if points:
        times, values = zip(*points, strict=True)
        axes.plot(
            times,
            values,
            color=colour,
            marker="." if len(points) < 200 else "",
            markersize=3,
            linewidth=1.2,
            drawstyle="steps-post" if is_step else "default",
        )


def _legend(axes: Axes, shown: Sequence[str], count: int) -> None:
    for number, holder in enumerate(shown):
        axes.plot([], [], color=f"C{number}", label=holder)
    more = f", {count - len(shown)} more holders are not drawn" if count > len(shown) else ""
    title = f"holders{more}" if more else None
    axes.legend(fontsize=8, ncols=min(len(shown), 5), loc="lower right", bbox_to_anchor=(1, 1), title=title)


def _date(time_ns: int) -> float:
    return float(date2num(datetime.fromtimestamp(time_ns / NS_PER_S, UTC)))  # type: ignore[no-untyped-call]
