"""Offsets of cables to clocks of nodes: one reading per node that fits all cables best.

Around a ring the cables' offsets should add up to zero; any remainder is spread over them by least squares, weights
1 / uncertainty**2. That reduces the errors of cables whose two directions differ.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from collectors.clocks.values import NO_GROUP, Edges, Readings
from collectors.statistics.columns import Integers, Numbers, Places

_PRECISION: Final = 1e-9
"""Least squares are near enough when what is left is this part of what was there, or of 1 ns or ppb."""


def solve(edges: Edges, nodes: int) -> Readings:
    """Return every node's reading."""
    tails, heads = np.append(edges.tails, edges.heads), np.append(edges.heads, edges.tails)
    lengths = np.append(edges.uncertainty_ns, edges.uncertainty_ns)
    graph = csr_array((lengths, (tails, heads)), shape=(nodes, nodes))
    _, label = connected_components(graph, directed=False)
    part = label.astype(np.intp)
    _, roots = np.unique(part, return_index=True)
    doubt, before, _ = dijkstra(graph, indices=roots, min_only=True, return_predecessors=True)
    before_each: Places = np.where(before < 0, np.arange(nodes), before).astype(np.intp)
    offset_ns, drift = _along(before_each, edges, nodes)
    # The tree's readings stand for what is whole, so that floats only hold what is small.
    left_ns = (edges.offset_ns - (offset_ns[edges.heads] - offset_ns[edges.tails])).astype(np.float64)
    left_ppb = edges.drift_ppb - (drift[edges.heads] - drift[edges.tails])
    laplacian = _Laplacian(edges, part, nodes)
    moved_ns, moved_ppb = (found - found[roots][part] for found in (laplacian.fit(left_ns), laplacian.fit(left_ppb)))
    tied = np.bincount(tails, minlength=nodes) > 0
    return Readings(
        np.where(tied, roots[part], NO_GROUP),
        offset_ns + np.rint(moved_ns).astype(np.int64),
        drift + moved_ppb,
        doubt + np.abs(moved_ns),
    )


def _along(before: Places, edges: Edges, nodes: int) -> tuple[Integers, Numbers]:
    """Return the sums along the surest paths, the tree in which each node has one before it, roots themselves."""
    pairs = np.append(edges.tails * nodes + edges.heads, edges.heads * nodes + edges.tails)
    order = np.argsort(pairs)
    (inner,) = np.nonzero(before != np.arange(nodes))
    at = order[np.searchsorted(pairs[order], before[inner] * nodes + inner)]
    offset_ns, drift = np.zeros(nodes, np.int64), np.zeros(nodes)
    offset_ns[inner] = np.append(edges.offset_ns, -edges.offset_ns)[at]
    drift[inner] = np.append(edges.drift_ppb, -edges.drift_ppb)[at]
    # Each node knows the sum to a node that is twice as far up every time.
    while (before != before[before]).any():
        offset_ns, drift = offset_ns + offset_ns[before], drift + drift[before]
        before = before[before]
    return offset_ns, drift


class _Laplacian:
    """The normal equations of differences between nodes, solved by conjugate gradients (Hestenes and Stiefel, 1952)."""

    def __init__(self, edges: Edges, part: Places, nodes: int) -> None:
        self._tails, self._heads, self._part, self._nodes = edges.tails, edges.heads, part, nodes
        surest = np.full(nodes, np.inf)
        np.minimum.at(surest, part[edges.tails], edges.uncertainty_ns)
        self._weights: Numbers = (surest[part[edges.tails]] / edges.uncertainty_ns) ** 2
        degrees = self._gathered(edges.tails, self._weights) + self._gathered(edges.heads, self._weights)
        # A node without an edge has nothing to fit.
        self._diagonal: Numbers = np.where(degrees > 0, degrees, 1.0)
        everywhere = np.arange(nodes)
        values = np.concatenate([self._diagonal, -self._weights, -self._weights])
        rows = np.concatenate([everywhere, self._tails, self._heads])
        columns = np.concatenate([everywhere, self._heads, self._tails])
        self._matrix = csr_array((values, (rows, columns)), shape=(nodes, nodes))

    def fit(self, differences: Numbers) -> Numbers:
        """Return numbers of nodes, any one of each part free, whose differences along the edges fit best."""
        weighted = self._weights * differences
        residual = self._gathered(self._heads, weighted) - self._gathered(self._tails, weighted)
        found: Numbers = np.zeros(self._nodes)
        greatest = np.zeros(self._nodes)
        np.maximum.at(greatest, self._part, np.abs(residual))
        enough = _PRECISION * np.maximum(greatest[self._part], 1.0)
        step = scaled = residual / self._diagonal
        size = float(residual @ scaled)
        for _ in range(4 * self._nodes):
            if (np.abs(residual) <= enough).all():
                break
            pushed = self._matrix @ step
            length = size / float(step @ pushed)
            found = found + length * step
            residual = residual - length * pushed
            scaled = residual / self._diagonal
            size, before = float(residual @ scaled), size
            step = scaled + size / before * step
        return found

    def _gathered(self, places: Places, numbers: Numbers) -> Numbers:
        return np.bincount(places, numbers, self._nodes).astype(np.float64)
