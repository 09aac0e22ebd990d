"""Offsets of cables to clocks of nodes: one reading per node that fits all cables best.

Around a ring the cables' offsets should add up to nothing; what they add up to instead is spread over them by least
squares, weights 1 / uncertainty**2. That lessens the errors of cables whose two directions differ.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from collectors.clocks.cable import Offset

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A node's clock against the first of its group; `uncertainty_ns` bounds the error."""

    group: int
    offset_ns: int
    drift_ppb: float
    uncertainty_ns: float


def solve(edges: Mapping[Edge, Offset]) -> dict[int, NodeReading]:
    """Return a reading for every node with an edge; edge (a, b) has b's clock minus a's. The least id names a group."""
    neighbours: dict[int, list[tuple[int, Offset, int]]] = {}
    for (a, b), offset in edges.items():
        neighbours.setdefault(a, []).append((b, offset, 1))
        neighbours.setdefault(b, []).append((a, offset, -1))
    found: dict[int, NodeReading] = {}
    for root in sorted(neighbours):
        if root not in found:
            group = _tree(root, neighbours)
            inside = {edge: offset for edge, offset in edges.items() if edge[0] in group}
            found |= _refined(group, inside) if len(inside) >= len(group) else group
    return found


def _tree(root: int, neighbours: Mapping[int, list[tuple[int, Offset, int]]]) -> dict[int, NodeReading]:
    """Return readings along the surest path to each node (Dijkstra over uncertainties)."""
    found: dict[int, NodeReading] = {}
    queue: list[tuple[float, int, int, float]] = [(0.0, root, 0, 0.0)]
    while queue:
        doubt, node, offset_ns, drift = heapq.heappop(queue)
        if node in found:
            continue
        found[node] = NodeReading(root, offset_ns, drift, doubt)
        for other, step, sign in neighbours[node]:
            if other not in found:
                reading = offset_ns + sign * step.offset_ns
                heapq.heappush(queue, (doubt + step.uncertainty_ns, other, reading, drift + sign * step.drift_ppb))
    return found


def _refined(tree: Mapping[int, NodeReading], edges: Mapping[Edge, Offset]) -> dict[int, NodeReading]:
    """Return the least squares readings; the tree's stand for what is whole, so that floats only hold what is small."""
    nodes = list(tree)
    place = {node: index for index, node in enumerate(nodes)}
    tails = np.array([place[a] for a, _ in edges])
    heads = np.array([place[b] for _, b in edges])
    doubts = np.array([offset.uncertainty_ns for offset in edges.values()])
    weights = (doubts.min() / doubts) ** 2
    left = np.array(
        [
            (
                offset.offset_ns - (tree[b].offset_ns - tree[a].offset_ns),
                offset.drift_ppb - tree[b].drift_ppb + tree[a].drift_ppb,
            )
            for (a, b), offset in edges.items()
        ]
    )
    matrix = np.zeros((len(nodes), len(nodes)))
    for ends in ((tails, tails), (heads, heads)):
        np.add.at(matrix, ends, weights)
    for ends in ((tails, heads), (heads, tails)):
        np.add.at(matrix, ends, -weights)
    right = np.zeros((len(nodes), 2))
    np.add.at(right, heads, weights[:, None] * left)
    np.add.at(right, tails, -weights[:, None] * left)
    moved = np.zeros((len(nodes), 2))
    # The first node is the root: its clock is what the others are read against.
    moved[1:] = np.linalg.solve(matrix[1:, 1:], right[1:])
    return {
        node: NodeReading(
            reading.group,
            reading.offset_ns + round(offset_ns),
            reading.drift_ppb + drift,
            reading.uncertainty_ns + abs(offset_ns),
        )
        for (node, reading), (offset_ns, drift) in zip(tree.items(), moved.tolist(), strict=True)
    }
