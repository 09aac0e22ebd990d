"""The network as a picture: link delays by colour, load by width; PNG and SVG from one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import networkx as nx
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from collectors.values import LinkState, Snapshot
from dataplane.fabric.topology import LinkKey, Topology

_NS_PER_MS = 1e6
_COLOURS = "viridis_r"


@dataclass(frozen=True, slots=True)
class Panel:
    """One map of the picture: a title, the state to draw, a link to mark and a path to trace."""

    title: str
    snapshot: Snapshot
    marked: LinkKey | None = None
    path: tuple[str, ...] = ()


def draw(topology: Topology, panels: Sequence[Panel], stem: Path) -> tuple[Path, Path]:
    """Write `stem`.png and `stem`.svg with one map a panel; return both paths."""
    mpl.rcParams["svg.hashsalt"] = "millrace"
    figure = Figure(figsize=(7.0 * len(panels), 6.4), layout="constrained")
    positions = positions_of(topology)
    norm = _delay_scale(topology, panels)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, panel in zip(axes, panels, strict=True):
        _draw_panel(axis, topology, panel, positions, norm)
    scale = mpl.cm.ScalarMappable(norm=norm, cmap=_COLOURS)
    bar = figure.colorbar(scale, ax=list(axes), shrink=0.75, pad=0.01, label="link delay, queue included (ms)")
    bar.ax.yaxis.set_major_formatter("{x:g}")
    bar.ax.yaxis.set_minor_formatter("{x:g}")
    bar.ax.tick_params(which="both", labelsize=7)
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    stem.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(png, dpi=130)
    figure.savefig(svg, metadata={"Date": None})
    return png, svg


def positions_of(topology: Topology) -> dict[str, tuple[float, float]]:
    """Return where each switch is drawn: its place if all have one, else a layout that is the same every time."""
    if all(node.place for node in topology.switches):
        return _apart(
            {node.name: (node.place.longitude, node.place.latitude) for node in topology.switches if node.place}
        )
    graph = nx.Graph()
    graph.add_nodes_from(topology.switch)
    graph.add_edges_from(
        (link.a.node, link.b.node)
        for link in topology.links
        if link.a.node in topology.switch and link.b.node in topology.switch
    )
    tiers = _tiers(topology, graph)
    if all(abs(tiers[a] - tiers[b]) == 1 for a, b in graph.edges):
        return _in_rows(tiers)
    layout: Mapping[str, Sequence[float]] = nx.spring_layout(graph, seed=1)
    return {name: (float(x), float(y)) for name, (x, y) in layout.items()}


def _tiers(topology: Topology, graph: nx.Graph) -> dict[str, int]:
    """Return how many links each switch is away from one that has hosts."""
    collector = topology.collector.host if topology.collector else None
    edges = {edge.node for host, edge in topology.attachment.items() if host != collector}
    return dict.fromkeys(graph, 0) | dict(nx.multi_source_dijkstra_path_length(graph, edges & set(graph)))


def _in_rows(tiers: Mapping[str, int]) -> dict[str, tuple[float, float]]:
    """Return a Clos fabric's places: a row for each tier, switches in their order, hosts' switches lowest."""
    found: dict[str, tuple[float, float]] = {}
    for tier in set(tiers.values()):
        row = [name for name, own in tiers.items() if own == tier]
        found |= {name: ((place + 0.5) / len(row), 0.4 * tier) for place, name in enumerate(row)}
    return found


def _apart(positions: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Move nodes of one place (two routers in one city) apart, so that both and their link can be seen."""
    width = max(x for x, _ in positions.values()) - min(x for x, _ in positions.values())
    step = max(0.04 * width, 1e-3)
    taken: dict[tuple[float, float], int] = {}
    found: dict[str, tuple[float, float]] = {}
    for name, (x, y) in positions.items():
        number = taken[x, y] = taken.get((x, y), -1) + 1
        found[name] = (x + number * step, y - number * step)
    return found


def _switch_links(topology: Topology, snapshot: Snapshot) -> list[LinkState]:
    return [state for key, state in snapshot.links.items() if key.src in topology.switch and key.dst in topology.switch]


def _delay_scale(topology: Topology, panels: Sequence[Panel]) -> LogNorm:
    delays_ms = [s.delay_mean_ns / _NS_PER_MS for p in panels for s in _switch_links(topology, p.snapshot)]
    low, high = max(min(delays_ms, default=0.1), 1e-3), max(delays_ms, default=1.0)
    return LogNorm(low, max(high, low * 1.5))


def _draw_panel(
    axis: Axes,
    topology: Topology,
    panel: Panel,
    positions: Mapping[str, tuple[float, float]],
    norm: LogNorm,
) -> None:
    colours = mpl.colormaps[_COLOURS]
    on_path = set(zip(panel.path, panel.path[1:], strict=False))
    for state in _switch_links(topology, panel.snapshot):
        key = state.link
        delay_ms = state.delay_mean_ns / _NS_PER_MS
        traced = (key.src, key.dst) in on_path
        _arrow(
            axis,
            positions[key.src],
            positions[key.dst],
            colour=colours(norm(delay_ms)),
            width=1.2 + 5.0 * min(state.utilisation, 1.0),
            traced=traced,
        )
        if key == panel.marked or traced:
            _label(
                axis,
                positions[key.src],
                positions[key.dst],
                f"{delay_ms:.1f} ms",
                "crimson" if key == panel.marked else "black",
            )
    for name, (x, y) in positions.items():
        axis.plot(x, y, "o", color="white", markeredgecolor="black", markersize=9, zorder=4)
        axis.annotate(name, (x, y), xytext=(0, 8), textcoords="offset points", ha="center", fontsize=9, zorder=7)
    axis.set_title(panel.title, fontsize=10)
    axis.margins(0.08, 0.12)
    axis.set_axis_off()


def _arrow(
    axis: Axes, tail: tuple[float, float], head: tuple[float, float], *, colour: object, width: float, traced: bool
) -> None:
    bend = "arc3,rad=0.08"
    if traced:
        halo = FancyArrowPatch(
            tail, head, connectionstyle=bend, arrowstyle="-", color="black", linewidth=width + 3.5, alpha=0.35
        )
        axis.add_patch(halo)
    axis.add_patch(
        FancyArrowPatch(
            tail,
            head,
            connectionstyle=bend,
            arrowstyle="-|>",
            mutation_scale=9,
            shrinkA=6,
            shrinkB=6,
            color=colour,
            linewidth=width,
            zorder=2,
        )
    )


def _label(axis: Axes, tail: tuple[float, float], head: tuple[float, float], text: str, colour: str) -> None:
    dx, dy = head[0] - tail[0], head[1] - tail[1]
    # The arrow bends to the right of its direction; the label sits on the bend.
    middle = ((tail[0] + head[0]) / 2 + 0.06 * dy, (tail[1] + head[1]) / 2 - 0.06 * dx)
    axis.annotate(
        text,
        middle,
        ha="center",
        va="center",
        fontsize=8,
        color=colour,
        zorder=6,
        bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
    )
