"""A probe task as a picture: uses in columns along the data flow, links with the means that they carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Curve

from controller.common.figures import check_ending, save
from controller.probing.errors import ProbeError
from controller.probing.text import counted, heading, sizes_line
from controller.probing.values import KernelUse, Link, ProbeTask

# Layout of a probe task's picture: uses in columns by the longest data path, in rows ordered to reduce crossings.
#
# A link over several columns passes through spots reserved for it, so that it runs between boxes and not behind them
# (Sugiyama, Tagawa and Toda, 1981: layers, dummy nodes, barycentres).


_SWEEPS: Final = 6

Node = str | tuple[str, str, int]
"""A use, or the spot of a link (source, target) in a column."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Columns of uses and spots from left to right, each from top to bottom, and the path of each link."""

    columns: tuple[tuple[Node, ...], ...]
    ways: Mapping[Link, tuple[Node, ...]]

    @property
    def rows(self) -> int:
        """Number of rows of the longest column."""
        return max(len(column) for column in self.columns)


def layers_of(probe: ProbeTask) -> Layers:
    """Return the columns of a probe task's uses; deterministic."""
    column: dict[str, int] = {}
    for name in probe.order:
        column[name] = max((column[source] + 1 for source in probe.sources[name]), default=0)
    columns: list[list[Node]] = [[] for _ in range(max(column.values()) + 1)]
    for part in probe.parts:
        for name in part:
            columns[column[name]].append(name)
    ways: dict[Link, tuple[Node, ...]] = {}
    for link in probe.links:
        between: list[Node] = [(link.src, link.dst, at) for at in range(column[link.src] + 1, column[link.dst])]
        for at, spot in enumerate(between, column[link.src] + 1):
            columns[at].append(spot)
        ways[link] = (link.src, *between, link.dst)
    before, after = _neighbours(ways.values())
    for _ in range(_SWEEPS):
        for at in range(1, len(columns)):
            columns[at] = _sorted(columns[at], columns[at - 1], before)
        for at in range(len(columns) - 2, -1, -1):
            columns[at] = _sorted(columns[at], columns[at + 1], after)
    return Layers(tuple(tuple(column) for column in columns), ways)


def _neighbours(ways: Iterable[Sequence[Node]]) -> tuple[dict[Node, list[Node]], dict[Node, list[Node]]]:
    before: dict[Node, list[Node]] = {}
    after: dict[Node, list[Node]] = {}
    for way in ways:
        for first, second in pairwise(way):
            before.setdefault(second, []).append(first)
            after.setdefault(first, []).append(second)
    return before, after


def _sorted(column: list[Node], beside: list[Node], neighbours: Mapping[Node, list[Node]]) -> list[Node]:
    """Return a column sorted by the mean positions of its neighbours; nodes without neighbours keep their positions."""
    position = {node: at / max(1, len(beside) - 1) for at, node in enumerate(beside)}
    own = {node: at / max(1, len(column) - 1) for at, node in enumerate(column)}

    def mean(node: Node) -> float:
        positions = [position[neighbour] for neighbour in neighbours.get(node, ())]
        return sum(positions) / len(positions) if positions else own[node]

    return sorted(column, key=mean)


_BOX_IN: Final = (2.2, 0.84)
_PITCH_IN: Final = (3.35, 1.2)
"""Distance between the centres of neighbouring boxes, horizontal and vertical."""
_SPOT_IN: Final = 0.35
"""Vertical distance from the spot of a link to the next."""
_MARGIN_IN: Final = 0.3
_TITLE_IN: Final = 0.62
_LEAST_IN: Final = 7.0
_FILLS: Final = ("#dbe9f6", "#e5f2df", "#fdeed8", "#efe3f3", "#fbe0e0", "#e6e6e6", "#d9f0ee", "#f6f3cf")
_LETTERS: Final = 30
"""Most characters in a line of a box."""

Point = tuple[float, float]


def draw(probe: ProbeTask, path: Path) -> None:
    """Write a probe task's graph to a .png or .svg file; raise ProbeError for another name, or if writing fails."""
    check_ending(path, ProbeError)
    # Names are not formulas.
    with mpl.rc_context({"text.parse_math": False}):
        canvas = _drawn(probe)
        save(canvas, path, ProbeError)


def _drawn(probe: ProbeTask) -> Figure:
    layers = layers_of(probe)
    places, width_in, height_in = _places(layers)
    canvas = Figure(figsize=(width_in, height_in))
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width_in), ylim=(height_in, 0))
    axes.axis("off")
    axes.text(_MARGIN_IN, 0.28, probe.name, fontsize=12, fontweight="bold", va="center")
    axes.text(_MARGIN_IN, 0.5, heading(probe), fontsize=8, va="center", color="#444444")
    for way in layers.ways.values():
        _draw_link(axes, way, places)
    for name in {link.src: None for link in probe.links}:
        _draw_mean(axes, probe.use[name], places[name])
    fill = {kernel: _FILLS[at % len(_FILLS)] for at, kernel in enumerate(probe.kernels)}
    for name in probe.order:
        _draw_use(axes, probe.use[name], places[name], fill[probe.use[name].kernel])
    return canvas


def _places(layers: Layers) -> tuple[dict[Node, Point], float, float]:
    """Return the centre of each box and spot in inches from the top left, and the overall size."""
    heights = [sum(_height_in(node) for node in column) for column in layers.columns]
    tallest_in = max(heights)
    places: dict[Node, Point] = {}
    for at, column in enumerate(layers.columns):
        x = _MARGIN_IN + _BOX_IN[0] / 2 + at * _PITCH_IN[0]
        y = _TITLE_IN + (tallest_in - heights[at]) / 2
        for node in column:
            places[node] = (x, y + _height_in(node) / 2)
            y += _height_in(node)
    width_in = 2 * _MARGIN_IN + _BOX_IN[0] + (len(layers.columns) - 1) * _PITCH_IN[0]
    return places, max(width_in, _LEAST_IN), _TITLE_IN + tallest_in + _MARGIN_IN / 2


def _height_in(node: Node) -> float:
    return _PITCH_IN[1] if isinstance(node, str) else _SPOT_IN


def _draw_use(axes: Axes, use: KernelUse, centre: Point, fill: str) -> None:
    x, y = centre
    corner = (x - _BOX_IN[0] / 2, y - _BOX_IN[1] / 2)
    style = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch(corner, *_BOX_IN, boxstyle=style, facecolor=fill, edgecolor="#555555", zorder=3))
    lines = (
        (-0.22, f"{use.kernel} x {use.repetitions}", 10.0, "bold"),
        (0.03, _cut(sizes_line(use)), 7.5, "normal"),
        (0.25, _cut(f"for {counted(use.executions)} of {use.operator}" if use.operator else use.name), 7.5, "normal"),
    )
    for down_in, text, size, weight in lines:
        axes.text(x, y + down_in, text, fontsize=size, fontweight=weight, ha="center", va="center", zorder=4)


def _draw_link(axes: Axes, way: tuple[Node, ...], places: Mapping[Node, Point]) -> None:
    """Draw a link from box to box, straight through the columns between."""
    half_in = _BOX_IN[0] / 2
    (x, y), *between, end = (places[node] for node in way)
    x += half_in
    vertices, codes = [(x, y)], [Curve.MOVETO]
    for to_x, to_y in (*between, end):
        middle, reached = (x + to_x - half_in) / 2, to_x - half_in
        vertices += [(middle, y), (middle, to_y), (reached, to_y)]
        codes += [Curve.CURVE4] * 3
        if (to_x, to_y) != end:
            vertices.append((to_x + half_in, to_y))
            codes.append(Curve.LINETO)
        x, y = to_x + half_in, to_y
    curve = Curve(vertices, codes)
    arrow = FancyArrowPatch(path=curve, arrowstyle="-|>", mutation_scale=11, color="#555555", linewidth=1.1, zorder=2)
    axes.add_patch(arrow)


def _draw_mean(axes: Axes, use: KernelUse, centre: Point) -> None:
    """Label a box whose output others read with its mean."""
    if use.repetitions > 1:
        x, y = centre[0] + _BOX_IN[0] / 2 + 0.06, centre[1] - 0.11
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
        text = f"mean of {use.repetitions}"
        axes.text(x, y, text, fontsize=7, color="#333333", ha="left", va="center", zorder=4, bbox=behind)


def _cut(text: str) -> str:
    return text if len(text) <= _LETTERS else text[: _LETTERS - 3] + "..."
