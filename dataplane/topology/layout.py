"""Positions of a topology's nodes in the page's map: by place, in layers, or by path lengths; pure and deterministic.

Hosts stand around their switch, away from the middle of the map.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import networkx as nx
import numpy as np

from dataplane.topology.values import Topology

Point = tuple[float, float]

_BY_LENGTHS_UP_TO: Final = 200
"""Switches up to which positions follow path lengths: the work grows with their square, several times."""
_SWEEPS: Final = 8


@dataclass(frozen=True, slots=True)
class Placed:
    """Positions by name, y grows downward; `kind` is `place` (degrees), `layers` or `lengths`."""

    kind: str
    switches: Mapping[str, Point]
    hosts: Mapping[str, Point]
    layers: Mapping[str, int]


def placed(topology: Topology) -> Placed:
    """Return the positions of all nodes."""
    graph = _graph(topology)
    layers: Mapping[str, int] = {}
    if topology.switches and all(node.place for node in topology.switches):
        kind = "place"
        switches = {node.name: (node.place.longitude, -node.place.latitude) for node in topology.switches if node.place}
        _part(switches)
    else:
        layers = _layers(topology, graph)
        is_layered = all(abs(layers[a] - layers[b]) == 1 for a, b in graph.edges) and graph.number_of_edges() > 0
        if is_layered or len(graph) > _BY_LENGTHS_UP_TO:
            kind, switches = "layers", _in_rows(graph, layers)
        else:
            kind, layers, switches = "lengths", {}, _by_lengths(graph)
    return Placed(kind, switches, _around(topology, switches), layers)


def bounds(points: Sequence[Point]) -> tuple[float, float, float, float]:
    """Return the least rectangle around points, at least one unit wide and high."""
    if not points:
        return 0.0, 0.0, 1.0, 1.0
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    wide, high = max(0.0, 1.0 - (x1 - x0)) / 2, max(0.0, 1.0 - (y1 - y0)) / 2
    return x0 - wide, y0 - high, x1 + wide, y1 + high


def _graph(topology: Topology) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(topology.switch)
    ends = ((link.a.node, link.b.node) for link in topology.links)
    graph.add_edges_from((a, b) for a, b in ends if a in topology.switch and b in topology.switch)
    return graph


def _part(switches: dict[str, Point]) -> None:
    """Move switches at one place apart by a twentieth of a degree, in the topology's order."""
    taken: dict[Point, int] = {}
    for name, point in switches.items():
        number = taken[point] = taken.get(point, -1) + 1
        if number:
            angle = 2.399963 * number  # the golden angle: no two of them in one direction
            switches[name] = (point[0] + 0.05 * math.cos(angle), point[1] + 0.05 * math.sin(angle))


def _layers(topology: Topology, graph: nx.Graph) -> dict[str, int]:
    """Return each switch's distance, in links, from the nearest switch with hosts."""
    collector = topology.collector.host if topology.collector else None
    edges = {edge.node for host, edge in topology.attachment.items() if host != collector} & set(graph)
    away = nx.multi_source_dijkstra_path_length(graph, edges) if edges else {}
    return dict.fromkeys(graph, 0) | {name: int(length) for name, length in away.items()}


def _in_rows(graph: nx.Graph, layers: Mapping[str, int]) -> dict[str, Point]:
    """Return rows of switches, hosts' switches lowest, each near the middle of its neighbours in the row below."""
    highest = max(layers.values(), default=0)
    rows = [[name for name in graph if layers[name] == layer] for layer in range(highest + 1)]
    width = float(max(map(len, rows), default=1))
    x = {name: width * (index + 0.5) / len(row) for row in rows for index, name in enumerate(row)}
    for _ in range(_SWEEPS):
        for row in rows[1:]:
            wanted = {
                name: _mean([x[near] for near in graph[name] if layers[near] < layers[name]], x[name]) for name in row
            }
            row.sort(key=lambda name: wanted[name])  # stable: equal ones keep the topology's order
            x |= {name: width * (index + 0.5) / len(row) for index, name in enumerate(row)}
    rise = max(1.0, width / 6)
    return {name: (x[name], rise * (highest - layers[name])) for name in graph}


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _by_lengths(graph: nx.Graph) -> dict[str, Point]:
    if len(graph) < 2:
        return dict.fromkeys(graph, (0.0, 0.0))
    parts = [graph.subgraph(part) for part in nx.connected_components(graph)]
    found: dict[str, Point] = {}
    right = 0.0
    # Parts without a link between them stand side by side, the largest first.
    for part in sorted(parts, key=len, reverse=True):
        scale = math.sqrt(len(part))
        positions = nx.kamada_kawai_layout(part) if len(part) > 1 else dict.fromkeys(part, np.zeros(2))
        left = min(float(point[0]) for point in positions.values())
        moved = {name: (right + scale * (float(p[0]) - left), scale * float(p[1])) for name, p in positions.items()}
        found |= moved
        right = max(x for x, _ in moved.values()) + 1.0
    return {name: found[name] for name in graph}


def _around(topology: Topology, switches: Mapping[str, Point]) -> dict[str, Point]:
    """Return hosts' positions: a fan around their switch, opened away from the map's middle."""
    x0, y0, x1, y1 = bounds(list(switches.values()))
    middle = ((x0 + x1) / 2, (y0 + y1) / 2)
    reach = 0.35 * _spacing(switches)
    of_switch: dict[str, list[str]] = {}
    for host, edge in topology.attachment.items():
        of_switch.setdefault(edge.node, []).append(host)
    found: dict[str, Point] = {}
    for switch, hosts in of_switch.items():
        x, y = switches[switch]
        outward = math.atan2(y - middle[1], x - middle[0]) if (x, y) != middle else math.pi / 2
        step = min(0.5, 2 * math.pi / max(1, len(hosts)))
        for number, host in enumerate(hosts):
            angle = outward + step * (number - (len(hosts) - 1) / 2)
            found[host] = (x + reach * math.cos(angle), y + reach * math.sin(angle))
    return {host: found.get(host, middle) for host in topology.host}


def _spacing(switches: Mapping[str, Point]) -> float:
    """Return the median distance to the nearest other switch; 1 where there is none."""
    points = np.array(list(switches.values()), dtype=np.float64).reshape(-1, 2)
    if len(points) < 2:
        return 1.0
    sample = points[:: max(1, len(points) // 256)]
    apart = np.hypot(sample[:, None, 0] - points[None, :, 0], sample[:, None, 1] - points[None, :, 1])
    apart[apart == 0.0] = np.inf
    nearest = apart.min(axis=1)
    nearest = nearest[np.isfinite(nearest)]
    return float(np.median(nearest)) if len(nearest) else 1.0
