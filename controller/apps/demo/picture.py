"""The network as a picture: a map for each state with queueing by colour and load by width, and a key.

PNG and SVG from one figure; the same state gives the same bytes. Everything is laid out in inches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle
from matplotlib.ticker import LogLocator, NullLocator

from collectors.values import LinkState, Snapshot
from controller.apps.demo.labels import Line, Placement, Point, place_label, rectangle_at
from controller.apps.demo.layout import Layout, layout_of
from controller.apps.demo.live import excess_ns
from dataplane.clock import NS_PER_MS
from dataplane.topology.values import LinkKey, Topology

_POINTS_PER_IN = 72
_DPI = 110

_THINNEST_IN = 0.9 / _POINTS_PER_IN
_THICKEST_IN = 6.5 / _POINTS_PER_IN
_LANE_IN = 0.018
"""Distance from the centre line between two switches to the edge of either direction's line."""
_HEAD_IN = 0.13
_WING_IN = 0.045
_SHADE_IN = 0.11
"""Extra width of a path's shade over the link."""

_SHADE = "#b8b8b8"
_MARK = "crimson"
_TITLE_IN = 0.42
_MARGIN_IN = 0.25
_KEY_IN = (6.6, 3.0)
_LEAST_EXCESS_MS = 0.01
_LEAST_SPAN = 4.0
"""Least ratio of the scale's ends, so that small differences do not look like congestion."""
_LEADER_IN = 0.12
"""A figure farther than this from its arrow is tied to it by a thin line."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One map of the picture: a title, the state to draw, a link to mark and a path to shade."""

    title: str
    snapshot: Snapshot
    marked: LinkKey | None = None
    path: tuple[str, ...] = ()


def draw(topology: Topology, panels: Sequence[Panel], stem: Path, shaded: str | None = None) -> tuple[Path, Path]:
    """Write `stem`.png and `stem`.svg with one map per panel and a key; return both paths.

    `shaded` names in the key the flow whose path is shaded, if any.
    """
    mpl.rcParams["svg.hashsalt"] = "millrace"
    layout = layout_of(topology)
    norm = _delay_scale(topology, panels)
    figure, cells = _grid(layout, len(panels))
    for axis, panel in zip(cells, panels, strict=False):
        _draw_panel(axis, topology, panel, layout, norm)
    _draw_key(cells[-1], norm, shaded)
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    stem.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png, dpi=_DPI, metadata={"Software": None})
    figure.savefig(svg, metadata={"Date": None})
    return png, svg


def _grid(layout: Layout, panels: int) -> tuple[Figure, list[Axes]]:
    """Return a figure with an axis in inches for each panel, and one for the key, in reading order."""
    columns = 1 if layout.size[0] > 1.5 * _KEY_IN[0] else 2
    map_size = max(layout.size[0], _KEY_IN[0]), layout.size[1]
    rows = -(-(panels + 1) // columns)
    # A key in a separate row needs only its own height.
    key_alone = panels % columns == 0
    heights = [map_size[1] + _TITLE_IN] * rows
    heights[-1] = _KEY_IN[1] if key_alone else max(heights[-1], _KEY_IN[1] + _TITLE_IN)
    whole = columns * (map_size[0] + _MARGIN_IN) + _MARGIN_IN, sum(heights) + (rows + 1) * _MARGIN_IN
    figure = Figure(figsize=whole)
    cells = []
    for number in range(panels + 1):
        row, column = divmod(number, columns)
        size = _KEY_IN if number == panels else layout.size
        left = _MARGIN_IN + column * (map_size[0] + _MARGIN_IN) + (map_size[0] - size[0]) / 2
        top = whole[1] - _MARGIN_IN - sum(heights[:row]) - row * _MARGIN_IN
        lower = top - size[1] - (0.0 if number == panels and key_alone else _TITLE_IN)
        bounds = (left / whole[0], lower / whole[1], size[0] / whole[0], size[1] / whole[1])
        axis = figure.add_axes(bounds, xlim=(0, size[0]), ylim=(0, size[1]))
        axis.set_axis_off()
        cells.append(axis)
    return figure, cells


def _colours() -> Colormap:
    """Return viridis without its palest end, which is invisible on white; dark is a long queue."""
    return LinearSegmentedColormap.from_list(
        "delay", mpl.colormaps["viridis_r"]([0.12 + 0.0088 * n for n in range(101)])
    )


def _switch_links(topology: Topology, snapshot: Snapshot) -> list[LinkState]:
    return [state for key, state in snapshot.links.items() if key.src in topology.switch and key.dst in topology.switch]


def _delay_scale(topology: Topology, panels: Sequence[Panel]) -> LogNorm:
    """Return the scale of delay above propagation, in ms, over all measured links of all maps."""
    states = [state for panel in panels for state in _switch_links(topology, panel.snapshot)]
    measured_ms = [_excess_ms(topology, state) for state in states if excess_ns(topology, state)]
    low, high = min(measured_ms, default=0.1), max(measured_ms, default=1.0)
    return LogNorm(low, max(high, _LEAST_SPAN * low))


def _excess_ms(topology: Topology, state: LinkState) -> float:
    return max(_LEAST_EXCESS_MS, excess_ns(topology, state) / NS_PER_MS)


# a map


def _draw_panel(axis: Axes, topology: Topology, panel: Panel, layout: Layout, norm: LogNorm) -> None:
    colours, traced = _colours(), set(pairwise(panel.path))
    states = _switch_links(topology, panel.snapshot)
    lines = arrows_of(layout, states)
    for state in states:
        line, width = lines[state.link], _width_in(state.utilisation)
        on_path = (state.link.src, state.link.dst) in traced
        if on_path:
            axis.add_patch(_shade(line, width))
        # Links without a measurement have no excess: they get the colour of the least.
        colour = colours(norm(max(norm.vmin or 0.0, _excess_ms(topology, state))))
        axis.add_patch(_arrow(line, width, colour, zorder=2.5 if on_path else 2))
        if state.link == panel.marked:
            axis.add_patch(_outline(line, width))
    for name in layout.centres:
        _draw_box(axis, layout, name, on_path=name in panel.path)
    for figure in figures_of(topology, panel, lines, layout):
        _write(axis, figure)
    axis.set_title(panel.title, fontsize=11, loc="left", pad=8)


def _draw_box(axis: Axes, layout: Layout, name: str, *, on_path: bool) -> None:
    left, lower, right, upper = layout.rectangle(name)
    fill = _SHADE if on_path else "white"
    box = Rectangle((left, lower), right - left, upper - lower, facecolor=fill, edgecolor="black", lw=0.8, zorder=4)
    axis.add_patch(box)
    # Not "center": that would put names with and without descenders at different heights.
    x, y = layout.centres[name]
    y -= 0.36 * layout.font_points / _POINTS_PER_IN
    axis.text(x, y, name, ha="center", va="baseline", fontsize=layout.font_points, zorder=5)


@dataclass(frozen=True, slots=True)
class PlacedFigure:
    """A figure of a link in a map, in inches."""

    text: str
    size: Point
    placement: Placement
    marked: bool


def figures_of(
    topology: Topology, panel: Panel, lines: Mapping[LinkKey, Line], layout: Layout
) -> tuple[PlacedFigure, ...]:
    """Return the delays above propagation of the marked link and of the shaded path, beside their arrows."""
    taken = [layout.rectangle(name) for name in layout.centres]
    traced, arrows = set(pairwise(panel.path)), list(lines.values())
    shown = [
        state
        for state in _switch_links(topology, panel.snapshot)
        if state.link == panel.marked or (state.link.src, state.link.dst) in traced
    ]
    placed = []
    for state in sorted(shown, key=lambda state: (state.link != panel.marked, state.link)):
        text = f"+{excess_ns(topology, state) / NS_PER_MS:.1f}"
        size = 0.62 * 8 * len(text) / _POINTS_PER_IN, 0.15
        placement = place_label(lines[state.link], size, taken, arrows, layout.size)
        taken.append(rectangle_at(placement.centre, size))
        # Nor should later figures cover the line that ties this one to its arrow.
        arrows.append(Line(placement.centre, placement.anchor))
        placed.append(PlacedFigure(text, size, placement, marked=state.link == panel.marked))
    return tuple(placed)


def _write(axis: Axes, figure: PlacedFigure) -> None:
    (x, y), (to_x, to_y) = figure.placement.centre, figure.placement.anchor
    colour, weight = (_MARK, "bold") if figure.marked else ("black", "normal")
    near = rectangle_at((x, y), (figure.size[0] + 2 * _LEADER_IN, figure.size[1] + 2 * _LEADER_IN))
    if not (near[0] < to_x < near[2] and near[1] < to_y < near[3]):
        axis.plot((x, to_x), (y, to_y), color=colour, lw=0.5, zorder=5)
    # The text's own background hides the line below it.
    background = {"boxstyle": "square,pad=0.12", "facecolor": "white", "edgecolor": "none"}
    axis.text(
        x, y, figure.text, ha="center", va="center", fontsize=8, color=colour, weight=weight, zorder=6, bbox=background
    )


def _width_in(utilisation: float) -> float:
    return _THINNEST_IN + (_THICKEST_IN - _THINNEST_IN) * min(utilisation, 1.0)


def arrows_of(layout: Layout, states: Sequence[LinkState]) -> dict[LinkKey, Line]:
    """Return the arrow of each directed link, as wide as its load."""
    return {state.link: _line(layout, state.link, _width_in(state.utilisation)) for state in states}


def _line(layout: Layout, key: LinkKey, width_in: float) -> Line:
    """Return a direction of a link between the boxes' edges, to the right of the middle as one looks along it."""
    (x1, y1), (x2, y2) = layout.ends(key.src, key.dst)
    length = hypot(x2 - x1, y2 - y1) or 1.0
    lane = _LANE_IN + width_in / 2
    dx, dy = (y2 - y1) / length * lane, (x1 - x2) / length * lane
    tail, head = (x1 + dx, y1 + dy), (x2 + dx, y2 + dy)
    ends = _edge(layout.rectangle(key.src), tail, head), _edge(layout.rectangle(key.dst), head, tail)
    return Line(*ends, width_in / 2 + _WING_IN)


def _edge(box: tuple[float, float, float, float], inside: Point, outside: Point) -> Point:
    """Return where a line from a point in a box to one outside leaves the box."""
    shares = []
    for axis in (0, 1):
        step = outside[axis] - inside[axis]
        if step:
            shares.append(((box[axis + 2] if step > 0 else box[axis]) - inside[axis]) / step)
    share = max(0.0, min(shares, default=0.0))
    return inside[0] + share * (outside[0] - inside[0]), inside[1] + share * (outside[1] - inside[1])


def _corners(line: Line, width_in: float, head_in: float) -> Iterator[Point]:
    """Yield the corners of an arrow along a line, or of a band where the head has no length."""
    (x1, y1), (x2, y2) = line.tail, line.head
    length = hypot(x2 - x1, y2 - y1) or 1.0
    along, across = ((x2 - x1) / length, (y2 - y1) / length), ((y2 - y1) / length, (x1 - x2) / length)
    head = min(head_in, length)
    half, wing = width_in / 2, (width_in / 2 + _WING_IN if head else width_in / 2)
    # The head's outer wing only: the inner one would reach into the other direction's lane.
    for back, aside in (
        (length, -half),
        (head, -half),
        (0.0, -half),
        (0.0, -half),
        (head, wing),
        (head, half),
        (length, half),
    ):
        yield x2 - back * along[0] + aside * across[0], y2 - back * along[1] + aside * across[1]


def _arrow(line: Line, width_in: float, colour: object, *, zorder: float) -> Polygon:
    corners = list(_corners(line, width_in, _HEAD_IN))
    return Polygon(corners, closed=True, facecolor=colour, edgecolor="none", zorder=zorder)


def _outline(line: Line, width_in: float) -> Polygon:
    corners = list(_corners(line, width_in, _HEAD_IN))
    return Polygon(corners, closed=True, facecolor="none", edgecolor=_MARK, lw=1.3, joinstyle="miter", zorder=3)


def _shade(line: Line, width_in: float) -> Polygon:
    return Polygon(
        list(_corners(line, width_in + _SHADE_IN, 0.0)), closed=True, facecolor=_SHADE, edgecolor="none", zorder=1
    )


# the key


def _draw_key(axis: Axes, norm: LogNorm, shaded: str | None) -> None:
    """Draw the key: width, colour, shade and outline."""
    sample, words, top = 0.1, 1.5, _KEY_IN[1]
    axis.text(sample, top - 0.2, "How to read the maps", fontsize=11, va="center")
    middle = _colours()(0.5)
    for index, share in enumerate((0.0, 0.5, 1.0)):
        y = top - 0.5 - 0.15 * index
        axis.add_patch(_arrow(Line((sample, y), (sample + 1.0, y)), _width_in(share), middle, zorder=2))
        axis.text(sample + 1.07, y, f"{share:.0%}", fontsize=7, va="center")
    _words(axis, words, top - 0.65, "width: load of the link in the arrow's direction, as a share of its rate")
    y = top - 1.15
    if shaded is not None:
        axis.add_patch(_shade(Line((sample, y), (sample + 1.0, y)), _width_in(0.3)))
        axis.add_patch(_arrow(Line((sample, y), (sample + 1.0, y)), _width_in(0.3), middle, zorder=2))
        _words(axis, words, y, f"grey: path of {shaded}")
        y -= 0.35
    axis.add_patch(_arrow(Line((sample, y), (sample + 1.0, y)), _width_in(0.9), _colours()(1.0), zorder=2))
    axis.add_patch(_outline(Line((sample, y), (sample + 1.0, y)), _width_in(0.9)))
    _words(axis, words, y, "red: the link that the surge fills")
    _words(
        axis,
        sample,
        top - 1.85,
        "boxes are switches; each link has an arrow for each direction, on its right-hand side",
    )
    bar = axis.inset_axes((sample, 0.45, _KEY_IN[0] - 2 * sample, 0.16), transform=axis.transData)
    scale = Colorbar(bar, mpl.cm.ScalarMappable(norm=norm, cmap=_colours()), orientation="horizontal")
    scale.ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    scale.ax.xaxis.set_major_formatter("{x:g}")
    scale.ax.xaxis.set_minor_locator(NullLocator())
    scale.ax.tick_params(labelsize=8)
    axis.text(
        sample,
        0.75,
        "colour and figures: delay above the link's own propagation: queue and transmission (ms)",
        fontsize=9,
        va="center",
    )


def _words(axis: Axes, x: float, y: float, text: str) -> None:
    axis.text(x, y, text, fontsize=9, va="center")
