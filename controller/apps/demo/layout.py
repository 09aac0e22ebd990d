"""Place switches in a picture: by geography where coordinates are known, in tiers, or by path lengths.

Every switch is a box with its name in it. Boxes do not overlap, and links pass between them. Crowded areas are spread
out in a way that preserves west and north. The same topology always gives the same layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import cos, radians

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from dataplane.topology.values import Topology

Point = tuple[float, float]
Points = NDArray[np.float64]

FONT_POINTS = 8.0
_CHARACTER_EM = 0.64
"""Average width of a character of DejaVu Sans, rounded up."""
_BOX_PADDING_IN = 0.1
_GAP_IN = 0.14
"""Between two boxes, and between a box and a link that passes it."""
_LINK_IN = 0.3
"""Minimum length of a link between its boxes, beyond the gap, to leave room for its figure."""
_MAP_IN = (7.0, 5.2)
_TIER_IN = 1.45
_FLATTEST = 1 / 11
"""Tiers are at least this share of a row's width apart, or links would run almost along them."""
_WIDEST_IN = 24.0
"""Wider rows are drawn smaller."""
_SPREADS = (0.0, 0.3, 0.5, 0.7)
_ROUNDS = 400


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes of switches in a map, in inches from its lower left corner; names are written `font_points` high.

    In a layout of `tiers` links leave boxes upwards and downwards only, so that they pass no box of their row.
    """

    size: Point
    centres: Mapping[str, Point]
    boxes: Mapping[str, Point]
    font_points: float = FONT_POINTS
    tiers: bool = False

    def rectangle(self, name: str) -> tuple[float, float, float, float]:
        """Return the left, lower, right and upper edge of a switch's box."""
        (x, y), (width, height) = self.centres[name], self.boxes[name]
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2

    def ends(self, src: str, dst: str) -> tuple[Point, Point]:
        """Return the points in or on two switches' boxes between which their link runs."""
        (x1, y1), (x2, y2) = self.centres[src], self.centres[dst]
        if not self.tiers:
            return (x1, y1), (x2, y2)
        up = 0.5 if y2 > y1 else -0.5
        return (x1, y1 + up * self.boxes[src][1]), (x2, y2 - up * self.boxes[dst][1])


def layout_of(topology: Topology) -> Layout:
    """Return each switch's position: by location if all have one, by tiers in a Clos fabric, else by links."""
    graph = _graph(topology)
    boxes = {name: _box(name) for name in topology.switch}
    if all(node.place for node in topology.switches):
        return _map(graph, boxes, _geography(topology))
    tiers = _tiers(topology, graph)
    if all(abs(tiers[a] - tiers[b]) == 1 for a, b in graph.edges):
        return _in_rows(tiers, boxes)
    layout: Mapping[str, Sequence[float]] = nx.kamada_kawai_layout(graph)
    return _map(graph, boxes, np.array([layout[name] for name in topology.switch], dtype=np.float64))


def _graph(topology: Topology) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(topology.switch)
    ends = ((link.a.node, link.b.node) for link in topology.links)
    graph.add_edges_from((a, b) for a, b in ends if a in topology.switch and b in topology.switch)
    return graph


def _box(name: str) -> Point:
    return len(name) * _CHARACTER_EM * FONT_POINTS / 72 + _BOX_PADDING_IN, FONT_POINTS / 72 + _BOX_PADDING_IN


def _geography(topology: Topology) -> Points:
    """Return switches' places on a map (equirectangular, true to scale at the middle latitude)."""
    places = [node.place for node in topology.switches if node.place]
    middle = sum(location.latitude for location in places) / len(places)
    return np.array(
        [(location.longitude * cos(radians(middle)), location.latitude) for location in places], dtype=np.float64
    )


# tiers


def _tiers(topology: Topology, graph: nx.Graph) -> dict[str, int]:
    """Return each switch's distance, in links, from the nearest switch with hosts."""
    collector = topology.collector.host if topology.collector else None
    edges = {edge.node for host, edge in topology.attachment.items() if host != collector} & set(graph)
    away = nx.multi_source_dijkstra_path_length(graph, edges) if edges else {}
    return dict.fromkeys(graph, 0) | dict(away)


def _in_rows(tiers: Mapping[str, int], boxes: Mapping[str, Point]) -> Layout:
    """Return a Clos fabric's layout: a row for each tier, switches in their order, hosts' switches lowest."""
    rows = [[name for name, own in tiers.items() if own == tier] for tier in sorted(set(tiers.values()))]
    step = max(boxes[name][0] for name in tiers) + _GAP_IN
    width = max(_MAP_IN[0], step * max(map(len, rows)) + _GAP_IN)
    shrink = min(1.0, _WIDEST_IN / width)
    rise = max(_TIER_IN, _FLATTEST * shrink * width)
    height = rise * (len(rows) - 1) + 4 * _GAP_IN
    centres = {
        name: (shrink * width * (index + 0.5) / len(row), 2 * _GAP_IN + rise * tier)
        for tier, row in enumerate(rows)
        for index, name in enumerate(row)
    }
    smaller = {name: (width * shrink, height * shrink) for name, (width, height) in boxes.items()}
    return Layout((shrink * width, height), centres, smaller, FONT_POINTS * shrink, tiers=True)


# maps


def _map(graph: nx.Graph, boxes: Mapping[str, Point], wanted: Points) -> Layout:
    """Return a layout near the given points (of any scale), with crowded parts spread out."""
    names = list(boxes)
    sizes = np.array([boxes[name] for name in names], dtype=np.float64)
    links = np.array([(names.index(a), names.index(b)) for a, b in graph.edges], dtype=np.int64).reshape(-1, 2)
    # Many switches need more room for boxes and links.
    grow = max(1.0, (len(names) / 30) ** 0.5)
    size = np.array(_MAP_IN) * grow
    inner = size - sizes.max(axis=0) - 2 * _GAP_IN
    anchors = _fitted(wanted, inner)
    for share in _SPREADS:
        anchors = _fitted(_spread(wanted, share), inner)
        if _crowded(anchors, sizes, links) <= len(names) / 10:
            break
    points = _separated(anchors, sizes, links)
    points = _fitted(points, inner) + (size - inner) / 2
    return Layout(
        (float(size[0]), float(size[1])),
        {name: (float(x), float(y)) for name, (x, y) in zip(names, points, strict=True)},
        boxes,
    )


def _fitted(points: Points, size: Points) -> Points:
    """Return points moved and stretched, each axis separately, to fill a rectangle; keeps the order along each axis."""
    low, high = points.min(axis=0), points.max(axis=0)
    extent = high - low
    scaled = np.where(extent > 0, (points - low) / np.where(extent > 0, extent, 1.0), 0.5)
    return np.asarray(scaled * size, dtype=np.float64)


def _spread(points: Points, share: float) -> Points:
    """Return points between their places and their ranks along each axis: ranks are evenly apart in any crowd."""
    unit = _fitted(points, np.ones(2))
    ranks = np.empty_like(unit)
    for axis in range(2):
        values, inverse = np.unique(unit[:, axis].round(9), return_inverse=True)
        ranks[:, axis] = inverse / max(1, len(values) - 1)
    return (1 - share) * unit + share * ranks


def _crowded(points: Points, sizes: Points, links: NDArray[np.int64]) -> int:
    """Return how many pairs of boxes overlap or nearly do."""
    overlap = _overlap(points, sizes, links)
    return int((overlap.min(axis=2) > 0).sum()) // 2


def _overlap(points: Points, sizes: Points, links: NDArray[np.int64]) -> Points:
    """Return by how much each pair of boxes, with a gap between them, overlaps along each axis: (n, n, 2)."""
    needed = (sizes[:, None, :] + sizes[None, :, :]) / 2 + _GAP_IN
    for tail, head in ((0, 1), (1, 0)):
        needed[links[:, tail], links[:, head]] += _LINK_IN
    overlap: Points = needed - np.abs(points[:, None, :] - points[None, :, :])
    overlap[np.arange(len(points)), np.arange(len(points))] = -1.0
    return overlap


def _separated(anchors: Points, sizes: Points, links: NDArray[np.int64]) -> Points:
    """Return points near their anchors whose boxes overlap neither each other nor passing links."""
    # Two routers of one city are placed slightly apart, by their order, to give them a direction to move in.
    points = anchors + np.outer(np.arange(len(anchors)), (1e-4, -1e-4))
    for number in range(_ROUNDS):
        # The pull towards the anchors fades out, so that boxes come to rest.
        pull = 0.05 * (1 - number / _ROUNDS)
        points = points + pull * (anchors - points)
        points = points + 0.5 * _push_off_links(points, sizes, links)
        points = points + 0.5 * _push_off_boxes(points, sizes, links)
    for _ in range(_ROUNDS):
        push = _push_off_boxes(points, sizes, links)
        if not push.any():
            break
        points = points + push
    return points


def _push_off_boxes(points: Points, sizes: Points, links: NDArray[np.int64]) -> Points:
    """Return how boxes that overlap must move, half the overlap each, along the axis where that is shorter."""
    overlap = _overlap(points, sizes, links)
    both = overlap.min(axis=2) > 0
    away = np.sign(points[:, None, :] - points[None, :, :])
    shorter = overlap == overlap.min(axis=2, keepdims=True)
    moves = np.where(both[:, :, None] & shorter, away * (overlap / 2 + 1e-6), 0.0)
    return np.asarray(moves.sum(axis=1), dtype=np.float64)


def _push_off_links(points: Points, sizes: Points, links: NDArray[np.int64]) -> Points:
    """Return how boxes and the ends of links that pass over or near them must move to come apart."""
    moves = np.zeros_like(points)
    if not len(links):
        return moves
    tails, heads = points[links[:, 0]], points[links[:, 1]]
    along = heads - tails
    length = np.maximum((along**2).sum(axis=1), 1e-9)
    offset = points[:, None, :] - tails[None, :, :]
    share = np.clip((offset * along).sum(axis=2) / length, 0.0, 1.0)
    away = offset - share[:, :, None] * along
    normal = np.stack((-along[:, 1], along[:, 0]), axis=1) / np.sqrt(length)[:, None]
    # How far a box reaches across the link's direction.
    reach = (np.abs(normal)[None, :, :] * sizes[:, None, :]).sum(axis=2) / 2 + _GAP_IN
    side = (away * normal).sum(axis=2)
    inside = (share > 0) & (share < 1) & (np.abs(side) < reach)
    inside[links[:, 0], np.arange(len(links))] = inside[links[:, 1], np.arange(len(links))] = False
    depth = np.where(inside, reach - np.abs(side), 0.0)
    push = (np.where(side >= 0, 1.0, -1.0) * depth)[:, :, None] * normal
    moves += push.sum(axis=1) / 2
    for end, weight in ((0, 1 - share), (1, share)):
        np.add.at(moves, links[:, end], -(push * weight[:, :, None]).sum(axis=0) / 4)
    return moves
