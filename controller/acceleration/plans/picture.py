"""Picture of a plan: operators from tables to the result, coloured by device, with the data moved between them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.path import Path as Line
from matplotlib.textpath import text_to_path

from controller.acceleration.errors import AccelerationError
from controller.acceleration.plans.layout import Layout, lanes_of, layout_of
from controller.acceleration.plans.text import limits_of, plain
from controller.acceleration.plans.values import Explained, ExplainedOperator
from controller.acceleration.values import CPU
from controller.common.figures import check_ending, save

_BOX_WIDTHS_IN: Final = (2.3, 4.0)
"""A box is as wide as the longest line of all; longer ones are wrapped."""
_GAPS_IN: Final = (0.45, 0.65)
"""Space between boxes, across and down: the latter holds the label of an edge."""
_PADDING_IN: Final = 0.12
_MARGIN_IN: Final = 0.35
_LEAST_IN: Final = 7.0
_LANE_IN: Final = 0.2
_LEADING: Final = 1.45
"""Height of a line relative to its size of type."""
_FILLS: Final = ("#dbe9f6", "#d8efd3", "#fdeed8", "#efe3f3", "#fbe0e0", "#d9f0ee")
_UNKNOWN: Final = "#e6e6e6"
_GREY: Final = "#555555"
_POINTS_PER_IN: Final = 72

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Style:
    """Size of type in points, and weight."""

    size: float
    weight: str = "normal"

    @property
    def height_in(self) -> float:
        """Height of a line."""
        return self.size * _LEADING / _POINTS_PER_IN

    def width_in(self, text: str) -> float:
        """Return the width of a text."""
        properties = FontProperties(size=self.size, weight=self.weight)
        width, _, _ = text_to_path.get_text_width_height_descent(text, properties, ismath=False)
        return float(width) / _POINTS_PER_IN


_TITLE: Final = Style(12, "bold")
_SMALL: Final = Style(8)
_NAME: Final = Style(9.5, "bold")
_DETAIL: Final = Style(7.5)
_LABEL: Final = Style(7)

Lines = list[tuple[str, Style]]


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Inches: of boxes, of the distance from one to the next, of the first one's centre; and lanes by edge."""

    box: Point
    pitch: Point
    first: Point
    lanes: Mapping[int, float]

    def centre(self, column: float, row: int) -> Point:
        return self.first[0] + column * self.pitch[0], self.first[1] + row * self.pitch[1]


def draw(explained: Explained, path: Path) -> None:
    """Write a plan to a .png or .svg file; raise AccelerationError for another suffix or a failed write."""
    check_ending(path, AccelerationError)
    # Names are not formulas.
    with mpl.rc_context({"text.parse_math": False}):
        save(figure_of(explained), path, AccelerationError)


def figure_of(explained: Explained) -> Figure:
    """Return a plan's picture, as large as its texts and operators need."""
    layout = layout_of(len(explained.operators), explained.edges)
    boxes = [_lines(operator) for operator in explained.operators]
    tallest_in = max(sum(style.height_in for _, style in _wrapped(lines)) for lines in boxes)
    box = (_box_width_in(boxes), tallest_in + 2 * _PADDING_IN)
    pitch = (box[0] + _GAPS_IN[0], box[1] + _GAPS_IN[1])
    labels = [_LABEL.width_in(_label(explained, at)) for at in range(len(explained.edges))]
    lanes = lanes_of(layout, explained.edges, pitch[0], max(labels, default=0.0) + _LANE_IN)
    right_in = max(
        max(layout.columns) * pitch[0] + box[0] / 2, *(x + labels[at] + _LANE_IN for at, x in lanes.items()), 0.0
    )
    across_in = 2 * _MARGIN_IN + box[0] / 2 + right_in
    width_in = max(across_in, _LEAST_IN)
    heading = list(_heading(explained, width_in - 2 * _MARGIN_IN))
    legend = _legend(explained.labels, width_in - 2 * _MARGIN_IN)
    top_in = _MARGIN_IN + sum(style.height_in for _, style in heading) + len(legend) * _SMALL.height_in + _PADDING_IN
    left_in = (width_in - across_in) / 2 + _MARGIN_IN
    sizes = _Sizes(box, pitch, (left_in + box[0] / 2, top_in + box[1] / 2), lanes)
    height_in = top_in + max(layout.rows) * pitch[1] + box[1] + _MARGIN_IN
    canvas = Figure(figsize=(width_in, height_in))
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width_in), ylim=(height_in, 0))
    axes.axis("off")
    fills = {label: _FILLS[at % len(_FILLS)] for at, label in enumerate(explained.labels)}
    _draw_head(axes, heading, legend, fills)
    _draw_edges(axes, explained, layout, sizes)
    for at, (operator, lines) in enumerate(zip(explained.operators, boxes, strict=True)):
        fill = fills[operator.device] if operator.decision.times else _UNKNOWN
        _draw_box(axes, _wrapped(lines), sizes.centre(layout.columns[at], layout.rows[at]), box, fill)
    return canvas


def _lines(operator: ExplainedOperator) -> Lines:
    """Return the lines of a box: name and device, the time of each choice, and the class."""
    shown = sorted(operator.decision.times.items(), key=lambda some: (some[0] != CPU, some[0] != operator.device))
    times = [(f"{device} {plain(times.total_s)} s", _DETAIL) for device, times in shown]
    return [
        (f"{operator.decision.work.name} on {operator.device}", _NAME),
        *(times or [("time unknown", _DETAIL)]),
        (_last(operator), _DETAIL),
    ]


def _last(operator: ExplainedOperator) -> str:
    if operator.tied:
        return f"{operator.decision.work.growth}; {operator.tied} without the tie band"
    if operator.device != operator.decision.device:
        return f"{operator.decision.work.growth}; by itself on {operator.decision.device}"
    ratio = operator.decision.ratio
    return f"{operator.decision.work.growth}" + ("" if ratio is None else f"; ratio {plain(ratio)}")


def _box_width_in(boxes: Sequence[Lines]) -> float:
    least_in, most_in = _BOX_WIDTHS_IN
    longest_in = max(style.width_in(text) for lines in boxes for text, style in lines)
    return min(max(longest_in + 2 * _PADDING_IN, least_in), most_in)


def _wrapped(lines: Lines) -> Lines:
    width_in = _BOX_WIDTHS_IN[1] - 2 * _PADDING_IN
    return [(part, style) for text, style in lines for part in wrapped(text, style, width_in)]


def wrapped(text: str, style: Style, width_in: float) -> Iterator[str]:
    """Yield a text in lines of at most this width: broken after spaces, else after -, _, / and ., else anywhere."""
    while style.width_in(text) > width_in:
        fits = max(bisect_right(range(1, len(text)), width_in, key=lambda count: style.width_in(text[:count])), 1)
        at = text.rfind(" ", 1, fits + 1) + 1 or max(text.rfind(mark, 1, fits) for mark in "-_/.") + 1 or fits
        yield text[:at].rstrip()
        text = text[at:].lstrip()
    yield text


def _heading(explained: Explained, width_in: float) -> Iterator[tuple[str, Style]]:
    machines = explained.machines
    placed = f"{plain(explained.placed_s)} s as placed, {plain(explained.one_by_one_s)} s each by itself"
    rate = f"{plain(machines.network.rate_gbit_per_s)} Gbit/s ({machines.transfer})"
    for text, style in (
        (explained.name, _TITLE),
        (f"{placed}, {plain(explained.cpu_s)} s all on the CPU", _SMALL),
        (f"{machines.count} machines, {rate}, {limits_of(explained)}", _SMALL),
    ):
        yield from ((line, style) for line in wrapped(text, style, width_in))


def _legend(labels: Sequence[str], width_in: float) -> list[list[tuple[float, str]]]:
    """Return the labels of devices in rows, each with its distance from the left."""
    rows: list[list[tuple[float, str]]] = [[]]
    left_in = 0.0
    for label in labels:
        needed_in = 0.3 + _SMALL.width_in(label)
        if rows[-1] and left_in + needed_in > width_in:
            rows.append([])
            left_in = 0.0
        rows[-1].append((left_in, label))
        left_in += needed_in + 0.25
    return rows


def _draw_head(
    axes: Axes, heading: Lines, legend: Sequence[Sequence[tuple[float, str]]], fills: Mapping[str, str]
) -> None:
    y = _MARGIN_IN
    for text, style in heading:
        y += style.height_in
        colour = "black" if style is _TITLE else "#444444"
        _write(axes, (_MARGIN_IN, y - style.height_in / 2), text, style, ha="left", color=colour)
    for row in legend:
        y += _SMALL.height_in
        for left_in, label in row:
            x = _MARGIN_IN + left_in
            corner = (x, y - _SMALL.height_in / 2 - 0.045)
            axes.add_patch(Rectangle(corner, 0.2, 0.09, facecolor=fills[label], edgecolor=_GREY))
            _write(axes, (x + 0.27, y - _SMALL.height_in / 2), label, _SMALL, ha="left")


def _draw_box(axes: Axes, lines: Lines, centre: Point, box: Point, fill: str) -> None:
    corner = (centre[0] - box[0] / 2, centre[1] - box[1] / 2)
    style = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch(corner, *box, boxstyle=style, facecolor=fill, edgecolor=_GREY, zorder=3))
    y = centre[1] - sum(style.height_in for _, style in lines) / 2
    for text, type_style in lines:
        y += type_style.height_in
        _write(axes, (centre[0], y - type_style.height_in / 2), text, type_style, zorder=4)


def _draw_edges(axes: Axes, explained: Explained, layout: Layout, sizes: _Sizes) -> None:
    devices = [operator.device for operator in explained.operators]
    for at, edge in enumerate(explained.edges):
        src, dst = (sizes.centre(layout.columns[end], layout.rows[end]) for end in (edge.src, edge.dst))
        start, end = (src[0], src[1] - sizes.box[1] / 2), (dst[0], dst[1] + sizes.box[1] / 2)
        points = [start, end]
        middle, side = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2), "center"
        if (lane := sizes.lanes.get(at)) is not None:
            points, middle = _around(start, end, sizes, lane)
            side = "left"
        is_moved = devices[edge.src] != devices[edge.dst]
        colour, width = ("#b5402b", 2.0) if is_moved else (_GREY, 1.1)
        axes.add_patch(
            FancyArrowPatch(path=Line(points), arrowstyle="-|>", mutation_scale=11, color=colour, linewidth=width)
        )
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.9}
        _write(axes, middle, _label(explained, at), _LABEL, ha=side, color=colour, zorder=5, bbox=behind)


def _around(start: Point, end: Point, sizes: _Sizes, lane: float) -> tuple[list[Point], Point]:
    """Return the way of an edge past other rows, beside all of their boxes, and where its label begins."""
    x = sizes.first[0] + lane
    # Beside the arrows and labels in the middle of boxes, and in the outer quarters of the gaps between rows.
    aside_in, near_in = sizes.box[0] * 0.3, _GAPS_IN[1] * 0.2
    bottom, top = start[1] - near_in, end[1] + near_in
    points = [
        (start[0] + aside_in, start[1]),
        (start[0] + aside_in, bottom),
        (x, bottom),
        (x, top),
        (end[0] + aside_in, top),
        (end[0] + aside_in, end[1]),
    ]
    return points, (x + 0.05, (bottom + top) / 2)


def _write(axes: Axes, at: Point, text: str, style: Style, *, ha: str = "center", **more: Any) -> None:  # noqa: ANN401
    axes.text(*at, text, fontsize=style.size, fontweight=style.weight, ha=ha, va="center", **more)


def _label(explained: Explained, at: int) -> str:
    edge = explained.edges[at]
    is_moved = explained.operators[edge.src].device != explained.operators[edge.dst].device
    return _size(edge.gb) + (" over the bus" if is_moved else "")


def _size(gb: float) -> str:
    for unit, size in (("GB", 1.0), ("MB", 1e-3), ("kB", 1e-6)):
        if gb >= size:
            return f"{plain(gb / size)} {unit}"
    return f"{plain(gb * 1e9)} bytes"
