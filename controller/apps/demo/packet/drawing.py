"""The packet as a picture: a stack of headers per cable, side by side, with each hop's changes; the reports.

PNG and SVG from one figure; the same journey gives the same bytes. Everything is laid out in inches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from controller.apps.demo.packet.parts import Part
from controller.common.figures import save_both

_COLUMN_IN: Final = 1.95
_BOX_IN: Final = 1.8
_LINE_IN: Final = 0.125
_PADDING_IN: Final = 0.05
_TITLE_IN: Final = 0.5
_MARGIN_IN: Final = 0.2
_HEAD_IN: Final = 0.55
_LETTERS: Final = 34
"""Characters per line of a box."""
_MOST_COLUMNS: Final = 8
_COLOURS: Final = {
    "ethernet": "#e3e3e3",
    "ip": "#c9ddf3",
    "udp": "#bfe3dd",
    "shim": "#fde2b8",
    "int": "#fbcf8a",
    "hop": "#cfe8b9",
    "group": "#e0d3f0",
    "individual": "#e0d3f0",
    "payload": "white",
}
_NEW: Final = "#c0392b"


@dataclass(frozen=True, slots=True)
class Column:
    """A stack of headers with place and time; in a report nothing is old or new."""

    title: str
    parts: tuple[Part, ...]
    note: str = ""
    is_report: bool = False
    is_first: bool = False
    """Show it in full."""

    @property
    def about(self) -> str:
        """Size, and the note if there is one."""
        size = f"{sum(part.size for part in self.parts)} bytes"
        return f"{size}, {self.note}" if self.note else size


def draw(heading: str, columns: Sequence[Column], stem: Path) -> tuple[Path, Path]:
    """Write `stem`.png and `stem`.svg; return both paths."""
    rows = list(_rows(columns))
    heights = [_TITLE_IN + max(sum(map(_height, _boxes(column))) for column in row) for row in rows]
    width = max(map(len, rows)) * _COLUMN_IN + 2 * _MARGIN_IN
    height = _HEAD_IN + sum(heights) + len(rows) * _MARGIN_IN
    figure = Figure(figsize=(width, height))
    axis = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
    axis.set_axis_off()
    axis.text(_MARGIN_IN, height - 0.2, heading, fontsize=11, va="center")
    _write(
        axis,
        _MARGIN_IN,
        height - 0.42,
        "right in a box: bytes; red: new since the previous cable; text: what is new or changed",
    )
    top = height - _HEAD_IN
    for row, row_height in zip(rows, heights, strict=True):
        for index, column in enumerate(row):
            _draw_column(axis, column, _MARGIN_IN + index * _COLUMN_IN, top)
        top -= row_height + _MARGIN_IN
    return save_both(figure, stem)


def _rows(columns: Sequence[Column]) -> Iterator[Sequence[Column]]:
    """Yield columns by row: several reports start a separate row."""
    cables = [column for column in columns if not column.is_report]
    reports = [column for column in columns if column.is_report]
    first = cables + reports if len(reports) == 1 else cables
    for group in (first, [] if len(reports) == 1 else reports):
        for begin in range(0, len(group), _MOST_COLUMNS):
            yield group[begin : begin + _MOST_COLUMNS]


def _boxes(column: Column) -> Iterator[tuple[Part, tuple[str, ...]]]:
    """Yield each part with its box's lines."""
    for part in column.parts:
        yield (
            part,
            tuple(line for text in _box_lines(part, column) for line in wrap(text, _LETTERS, subsequent_indent="  ")),
        )


def _box_lines(part: Part, column: Column) -> Iterator[str]:
    """Yield a box's lines: all fields of a new header, changes of others, and the reporter's own fields of a report."""
    if part.kind == "ethernet" and not column.is_first:
        return
    is_told = part.kind in {"group", "individual"} or (part.kind == "hop" and not part.title.startswith("hop "))
    if column.is_first or (is_told if column.is_report else part.is_new):
        yield from part.lines()
        return
    for name, value in part.fields:
        if part.was and name in part.was:
            yield f"{name} {value} (was {part.was[name]})"


def _height(box: tuple[Part, tuple[str, ...]]) -> float:
    return 2 * _PADDING_IN + (1 + len(box[1])) * _LINE_IN


def _draw_column(axis: Axes, column: Column, left: float, top: float) -> None:
    axis.text(left, top - 0.15, column.title, fontsize=8, weight="bold", va="center")
    _write(axis, left, top - 0.33, column.about)
    upper = top - _TITLE_IN
    for box in _boxes(column):
        upper = _draw_box(axis, box, left, upper, is_new=box[0].is_new and not column.is_report)


def _draw_box(axis: Axes, box: tuple[Part, tuple[str, ...]], left: float, upper: float, *, is_new: bool) -> float:
    part, lines = box
    height = _height(box)
    edge, width = (_NEW, 1.4) if is_new else ("#606060", 0.6)
    inset = 0.015
    frame = Rectangle(
        (left, upper - height + inset),
        _BOX_IN,
        height - 2 * inset,
        facecolor=_COLOURS[part.kind],
        edgecolor=edge,
        lw=width,
    )
    axis.add_patch(frame)
    y = upper - _PADDING_IN - _LINE_IN / 2
    axis.text(left + _PADDING_IN, y, part.title, fontsize=7, weight="bold", va="center")
    axis.text(left + _BOX_IN - _PADDING_IN, y, str(part.size), fontsize=6.5, ha="right", va="center")
    for line in lines:
        y -= _LINE_IN
        _write(axis, left + 2 * _PADDING_IN, y, line)
    return upper - height


def _write(axis: Axes, x: float, y: float, text: str) -> None:
    axis.text(x, y, text, fontsize=6.5, va="center")
