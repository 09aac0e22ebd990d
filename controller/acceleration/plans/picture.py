"""Picture of a plan: operators from tables to the result, coloured by device, with the data moved between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch

from controller.acceleration.errors import AccelerationError
from controller.acceleration.plans.text import plain
from controller.acceleration.plans.values import Explained, ExplainedOperator
from controller.acceleration.values import CPU
from controller.common.figures import check_ending, save

_BOX_IN: Final = (2.3, 0.8)
_PITCH_IN: Final = (2.75, 1.45)
_MARGIN_IN: Final = 0.35
_TITLE_IN: Final = 0.95
_LEAST_IN: Final = 7.0
_FILLS: Final = ("#dbe9f6", "#d8efd3", "#fdeed8", "#efe3f3", "#fbe0e0", "#d9f0ee")
_UNKNOWN: Final = "#e6e6e6"
_LETTERS: Final = 34
_BOW_IN: Final = 0.45
"""Bend to the right of an arrow that passes other rows."""

Point = tuple[float, float]


def draw(explained: Explained, path: Path) -> None:
    """Write a plan to a .png or .svg file; raise AccelerationError for another suffix or a failed write."""
    check_ending(path, AccelerationError)
    # Names are not formulas.
    with mpl.rc_context({"text.parse_math": False}):
        canvas = _drawn(explained)
        save(canvas, path, AccelerationError)


def _drawn(explained: Explained) -> Figure:
    places, width_in, height_in = _places(explained)
    canvas = Figure(figsize=(width_in, height_in))
    axes = canvas.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width_in), ylim=(height_in, 0))
    axes.axis("off")
    axes.text(_MARGIN_IN, 0.26, explained.name, fontsize=12, fontweight="bold", va="center")
    for at, line in enumerate(_heading(explained)):
        axes.text(_MARGIN_IN, 0.48 + 0.18 * at, line, fontsize=8, va="center", color="#444444")
    fills = {label: _FILLS[at % len(_FILLS)] for at, label in enumerate(explained.labels)}
    devices = [operator.device for operator in explained.operators]
    for edge in explained.edges:
        is_moved = devices[edge.src] != devices[edge.dst]
        _draw_edge(axes, places[edge.src], places[edge.dst], edge.gb, is_moved=is_moved)
    for at, operator in enumerate(explained.operators):
        _draw_operator(axes, operator, places[at], fills)
    patches = [Patch(facecolor=fills[label], edgecolor="#555555", label=label) for label in explained.labels]
    axes.legend(handles=patches, loc="upper right", fontsize=8, ncols=len(patches), frameon=False)
    return canvas


def _heading(explained: Explained) -> tuple[str, str]:
    machines = explained.machines
    placed = f"{plain(explained.placed_s)} s as placed, {plain(explained.one_by_one_s)} s each by itself"
    rate = f"{plain(machines.network.rate_gbit_per_s)} Gbit/s ({machines.transfer})"
    return (
        f"{placed}, {plain(explained.cpu_s)} s all on the CPU",
        f"{machines.count} machines, {rate}, preset {explained.preset:g}",
    )


def _places(explained: Explained) -> tuple[list[Point], float, float]:
    """Return the centre of each box in inches: the result on top, each operator a row below all of its readers.

    Within a row each operator is below its reader: leaves take columns from the left, others the middle of theirs.
    """
    count = len(explained.operators)
    readers: list[list[int]] = [[] for _ in range(count)]
    sources: list[list[int]] = [[] for _ in range(count)]
    for edge in explained.edges:
        readers[edge.src].append(edge.dst)
        sources[edge.dst].append(edge.src)
    rows, columns = [0] * count, [0.0] * count
    for at in reversed(range(count)):
        rows[at] = max((rows[reader] + 1 for reader in readers[at]), default=0)
    free = 0
    # The first reader of a shared result gets it in its own columns.
    placed: set[int] = set()

    def settle(at: int) -> None:
        nonlocal free
        placed.add(at)
        below = [source for source in sources[at] if source not in placed and rows[source] == rows[at] + 1]
        for source in below:
            if source not in placed:
                settle(source)
        if below:
            columns[at] = sum(columns[source] for source in below) / len(below)
        else:
            columns[at] = free
            free += 1

    for at in sorted(range(count), key=lambda index: (rows[index], -index)):
        if at not in placed:
            settle(at)
    width_in = 2 * _MARGIN_IN + _BOX_IN[0] + max(columns) * _PITCH_IN[0] + 2 * _BOW_IN
    left_in = (max(width_in, _LEAST_IN) - width_in) / 2 + _MARGIN_IN + _BOX_IN[0] / 2 + _BOW_IN
    top_in = _TITLE_IN + _BOX_IN[1] / 2
    points = [
        (left_in + column * _PITCH_IN[0], top_in + row * _PITCH_IN[1])
        for column, row in zip(columns, rows, strict=True)
    ]
    height_in = _TITLE_IN + max(rows) * _PITCH_IN[1] + _BOX_IN[1] + _MARGIN_IN
    return points, max(width_in, _LEAST_IN), height_in


def _draw_operator(axes: Axes, operator: ExplainedOperator, centre: Point, fills: Mapping[str, str]) -> None:
    x, y = centre
    corner = (x - _BOX_IN[0] / 2, y - _BOX_IN[1] / 2)
    fill = fills[operator.device] if operator.decision.times else _UNKNOWN
    style = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch(corner, *_BOX_IN, boxstyle=style, facecolor=fill, edgecolor="#555555", zorder=3))
    # There is room for two choices: the CPU and the chosen one.
    shown = sorted(operator.decision.times.items(), key=lambda some: (some[0] != CPU, some[0] != operator.device))
    times = "  ".join(f"{device} {plain(times.total_s)} s" for device, times in shown)
    lines = (
        (-0.22, f"{operator.decision.work.name} on {operator.device}", 9.5, "bold"),
        (0.03, _cut(times or "time unknown"), 7.5, "normal"),
        (0.24, _cut(_third(operator)), 7.5, "normal"),
    )
    for down_in, text, size, weight in lines:
        axes.text(x, y + down_in, text, fontsize=size, fontweight=weight, ha="center", va="center", zorder=4)


def _third(operator: ExplainedOperator) -> str:
    if operator.device != operator.decision.device:
        return f"{operator.decision.work.growth}; by itself on {operator.decision.device}"
    ratio = operator.decision.ratio
    return f"{operator.decision.work.growth}" + ("" if ratio is None else f"; ratio {plain(ratio)}")


def _draw_edge(axes: Axes, src: Point, dst: Point, gb: float, *, is_moved: bool) -> None:
    """Draw data from a box up to the next row; past other rows, route it around their boxes."""
    rows = round((src[1] - dst[1]) / _PITCH_IN[1])
    if rows == 1:
        start, end, bow = (src[0], src[1] - _BOX_IN[1] / 2), (dst[0], dst[1] + _BOX_IN[1] / 2), 0.0
    else:
        half_in = _BOX_IN[0] / 2
        start, end, bow = (src[0] + half_in, src[1]), (dst[0] + half_in, dst[1]), _BOW_IN
    colour, width = ("#b5402b", 2.0) if is_moved else ("#555555", 1.1)
    length = math.dist(start, end)
    style = f"arc3,rad={2 * bow / length:.4f}"
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            connectionstyle=style,
            arrowstyle="-|>",
            mutation_scale=11,
            color=colour,
            linewidth=width,
            zorder=2,
        )
    )
    text = _size(gb) + (" over the bus" if is_moved else "")
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.9}
    middle = ((start[0] + end[0]) / 2 + bow, (start[1] + end[1]) / 2)
    axes.text(*middle, text, fontsize=7, color=colour, ha="center", va="center", zorder=5, bbox=behind)


def _size(gb: float) -> str:
    for unit, size in (("GB", 1.0), ("MB", 1e-3), ("kB", 1e-6)):
        if gb >= size:
            return f"{plain(gb / size)} {unit}"
    return f"{plain(gb * 1e9)} bytes"


def _cut(text: str) -> str:
    return text if len(text) <= _LETTERS else text[: _LETTERS - 3] + "..."
