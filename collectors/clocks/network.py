"""Offsets of cables to clocks of nodes: one reading per node that fits all cables best.

Around a ring the cables' offsets should add up to zero; any remainder is spread over them by least squares, weights
1 / uncertainty**2. That reduces the errors of cables whose two directions differ.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from collectors.clocks.values import NO_GROUP, Edges, Readings
from collectors.statistics.columns import Integers, Numbers, Places

_PRECISION: Final = 1e-9
"""Least squares are near enough when the residual is this part of the initial one, or of 1 ns or ppb."""


def solve(edges: Edges, nodes: int) -> Readings:
    """Return every node's reading."""
    tails, heads = np.append(edges.tails, edges.heads), np.append(edges.heads, edges.tails)
    by_head = np.argsort(heads, kind="stable")
    tails, heads = tails[by_head], heads[by_head]
    lengths = np.append(edges.uncertainty_ns, edges.uncertainty_ns)[by_head]
    roots, part = np.unique(_least_connected(tails, heads, nodes), return_inverse=True)
    doubt, before = _shortest_paths(tails, heads, lengths, roots, nodes)
    offset_ns, drift = _along(before, edges, nodes)
    # The tree's readings hold the whole part, so that floats only hold small remainders.
    left_ns = (edges.offset_ns - (offset_ns[edges.heads] - offset_ns[edges.tails])).astype(np.float64)
    left_ppb = edges.drift_ppb - (drift[edges.heads] - drift[edges.tails])
    laplacian = _Laplacian(edges, part, nodes)
    moved_ns, moved_ppb = (
        readings - readings[roots][part] for readings in (laplacian.fit(left_ns), laplacian.fit(left_ppb))
    )
    tied = np.bincount(tails, minlength=nodes) > 0
    return Readings(
        np.where(tied, roots[part], NO_GROUP),
        offset_ns + np.rint(moved_ns).astype(np.int64),
        drift + moved_ppb,
        doubt + np.abs(moved_ns),
    )


def _least_connected(tails: Places, heads: Places, nodes: int) -> Places:
    """Return the smallest node that each node is connected to; edges are in the order of their heads."""
    least: Places = np.arange(nodes)
    if not len(heads):
        return least
    reached, starts = np.unique(heads, return_index=True)
    while True:
        nearer = least.copy()
        nearer[reached] = np.minimum(least[reached], np.minimum.reduceat(least[tails], starts))
        nearer = nearer[nearer]  # the minimum of minimums: rings take few rounds as well
        if (nearer == least).all():
            return least
        least = nearer


def _shortest_paths(
    tails: Places, heads: Places, lengths: Numbers, roots: Places, nodes: int
) -> tuple[Numbers, Places]:
    """Return each node's distance to its root, and the node before it on the way; a root is its own.

    Edges are in the order of their heads, and relaxed together (Bellman and Ford), in as many rounds as the longest
    path has edges: few in a fabric. Of equally short edges the first in order counts.
    """
    distance: Numbers = np.full(nodes, np.inf)
    distance[roots] = 0.0
    before: Places = np.arange(nodes)
    if not len(heads):
        return distance, before
    reached, starts = np.unique(heads, return_index=True)
    while True:
        through = distance[tails] + lengths
        shortest = distance.copy()
        shortest[reached] = np.minimum(distance[reached], np.minimum.reduceat(through, starts))
        (better,) = np.nonzero((through == shortest[heads]) & (through < distance[heads]))
        if not len(better):
            return distance, before
        before[heads[better[::-1]]] = tails[better[::-1]]
        distance = shortest


def _along(before: Places, edges: Edges, nodes: int) -> tuple[Integers, Numbers]:
    """Return the sums along the surest paths, the tree in which each node has one before it, roots themselves."""
    pairs = np.append(edges.tails * nodes + edges.heads, edges.heads * nodes + edges.tails)
    order = np.argsort(pairs)
    (inner,) = np.nonzero(before != np.arange(nodes))
    at = order[np.searchsorted(pairs[order], before[inner] * nodes + inner)]
    offset_ns, drift = np.zeros(nodes, np.int64), np.zeros(nodes)
    offset_ns[inner] = np.append(edges.offset_ns, -edges.offset_ns)[at]
    drift[inner] = np.append(edges.drift_ppb, -edges.drift_ppb)[at]
    # Pointer doubling: each round a node knows the sum to a node twice as far up.
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
        rows, columns = np.append(edges.tails, edges.heads), np.append(edges.heads, edges.tails)
        order = np.argsort(rows, kind="stable")  # sums over adjacent memory are faster
        self._columns = columns[order]
        self._reached, self._starts = np.unique(rows[order], return_index=True)
        self._values: Numbers = np.append(self._weights, self._weights)[order]

    def fit(self, differences: Numbers) -> Numbers:
        """Return the nodes' numbers whose differences along the edges fit best; each part has a free offset."""
        weighted = self._weights * differences
        residual = self._gathered(self._heads, weighted) - self._gathered(self._tails, weighted)
        solution: Numbers = np.zeros(self._nodes)
        greatest = np.zeros(self._nodes)
        np.maximum.at(greatest, self._part, np.abs(residual))
        enough = _PRECISION * np.maximum(greatest[self._part], 1.0)
        step = scaled = residual / self._diagonal
        size = float(residual @ scaled)
        for _ in range(4 * self._nodes):
            if (np.abs(residual) <= enough).all():
                break
            pushed = self._times(step)
            length = size / float(step @ pushed)
            solution = solution + length * step
            residual = residual - length * pushed
            scaled = residual / self._diagonal
            size, before = float(residual @ scaled), size
            step = scaled + size / before * step
        return solution

    def _times(self, numbers: Numbers) -> Numbers:
        """Return the matrix times a vector."""
        product = self._diagonal * numbers
        if len(self._starts):
            product[self._reached] -= np.add.reduceat(self._values * numbers[self._columns], self._starts)
        return product

    def _gathered(self, places: Places, numbers: Numbers) -> Numbers:
        return np.bincount(places, numbers, self._nodes).astype(np.float64)
