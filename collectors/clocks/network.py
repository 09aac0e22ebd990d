"""Offsets of cables to clocks of nodes: one reading per node that fits all cables best.

Around a ring the cables' offsets should add up to nothing; what they add up to instead is spread over them by least
squares, weights 1 / uncertainty**2. That lessens the errors of cables whose two directions differ.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collectors.clocks.cable import Offset

Edge = tuple[int, int]
Numbers = NDArray[np.float64]
Indices = NDArray[np.intp]


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
    place = {node: index for index, node in enumerate(tree)}
    tails = np.array([place[a] for a, _ in edges])
    heads = np.array([place[b] for _, b in edges])
    doubts = np.array([offset.uncertainty_ns for offset in edges.values()])
    left = [
        (
            offset.offset_ns - (tree[b].offset_ns - tree[a].offset_ns),
            offset.drift_ppb - (tree[b].drift_ppb - tree[a].drift_ppb),
        )
        for (a, b), offset in edges.items()
    ]
    laplacian = _Laplacian(tails, heads, (doubts.min() / doubts) ** 2, len(place))
    moved = [laplacian.fit(column) for column in np.array(left).T]
    return {
        node: NodeReading(
            reading.group,
            reading.offset_ns + round(offset_ns),
            reading.drift_ppb + drift,
            reading.uncertainty_ns + abs(offset_ns),
        )
        for (node, reading), offset_ns, drift in zip(tree.items(), *(column.tolist() for column in moved), strict=True)
    }


class _Laplacian:
    """The normal equations of differences between nodes, solved by conjugate gradients (Hestenes and Stiefel, 1952)."""

    def __init__(self, tails: Indices, heads: Indices, weights: Numbers, nodes: int) -> None:
        self._tails, self._heads, self._weights, self._nodes = tails, heads, weights, nodes
        self._diagonal = self._gathered(tails, weights) + self._gathered(heads, weights)

    def fit(self, differences: Numbers) -> Numbers:
        """Return numbers of nodes, 0 for the first, whose differences along the edges fit best."""
        weighted = self._weights * differences
        residual = self._gathered(self._heads, weighted) - self._gathered(self._tails, weighted)
        found: Numbers = np.zeros(self._nodes)
        enough = 1e-9 * float(np.abs(residual).max())
        step = scaled = residual / self._diagonal
        size = float(residual @ scaled)
        for _ in range(4 * self._nodes):
            if float(np.abs(residual).max()) <= enough:
                break
            pushed = self._times(step)
            length = size / float(step @ pushed)
            found = found + length * step
            residual = residual - length * pushed
            scaled = residual / self._diagonal
            size, before = float(residual @ scaled), size
            step = scaled + size / before * step
        found -= found[0]
        return found

    def _times(self, numbers: Numbers) -> Numbers:
        flow = self._weights * (numbers[self._heads] - numbers[self._tails])
        return self._gathered(self._heads, flow) - self._gathered(self._tails, flow)

    def _gathered(self, places: Indices, numbers: Numbers) -> Numbers:
        return np.bincount(places, numbers, self._nodes).astype(np.float64)
