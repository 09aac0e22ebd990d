"""One cable, and a network node by node: readable twins of `collectors.clocks`, which tests hold that against."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from collectors.clocks.values import StampDifference
from collectors.settings import ClockSettings

_SECOND = 1_000_000_000

Edge = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Offset:
    """b's clock minus a's at `time_ns`, how it grows, and the bound of its error."""

    time_ns: int
    offset_ns: int
    drift_ppb: float
    uncertainty_ns: float


@dataclass(frozen=True, slots=True)
class _Point:
    """One observation: half the difference at a time, doubled to stay an integer; `excess_ns` bounds its error."""

    time_ns: int
    twice_offset_ns: int
    excess_ns: float


class Cable:
    """One cable between two switches, a and b; times are the collector's and must not decrease."""

    def __init__(self, delay_ns: int, settings: ClockSettings) -> None:
        self._delay_ns = delay_ns
        self._settings = settings
        self._forward: StampDifference | None = None
        self._backward: StampDifference | None = None
        self._suspect: _Point | None = None
        self.implausible = 0
        """Observations that no two clocks explain: both ways together take less than 0 ns."""
        self._reset()

    def _reset(self) -> None:
        self._base_ns = self._time_ns = 0
        self._least_excess_ns = math.inf
        self._weight = self._t = self._tt = self._x = self._tx = self._excess = self._excess2 = 0.0

    def observe(self, forward: StampDifference | None, backward: StampDifference | None) -> None:
        """Take the fastest packets a to b and b to a of an interval, None where none crossed."""
        self._forward = forward or self._forward
        self._backward = backward or self._backward
        if self._forward is None or self._backward is None:
            return
        apart_ns = self._forward.received_ns - self._backward.received_ns
        if abs(apart_ns) > self._settings.pair_within_ns:
            return
        point = self._point(self._forward, self._backward, apart_ns)
        if point is not None:
            self._take(point)

    def offset(self, now_ns: int) -> Offset | None:
        """Return the offset now; None when nothing was observed, or too long ago."""
        if not self._weight or now_ns - self._time_ns > self._settings.forget_after_ns:
            return None
        slope = self._slope()
        mean_t, mean_x = self._t / self._weight, self._x / self._weight
        since_s = (now_ns - self._time_ns) / _SECOND
        offset = mean_x + slope * (since_s - mean_t)
        doubt = self._excess / self._weight + abs(since_s - mean_t) * self._slope_doubt()
        wander = max(since_s, 0.0) * self._settings.wander_ppb
        return Offset(now_ns, self._base_ns + round(offset), slope, doubt + wander + self._settings.resolution_ns)

    def _point(self, forward: StampDifference, backward: StampDifference, apart_ns: int) -> _Point | None:
        drifted = self._slope() * apart_ns / _SECOND if self._weight else 0.0
        both_ns = forward.flight_ns + backward.flight_ns - drifted
        doubt_ns = self._settings.resolution_ns
        if both_ns < -2 * doubt_ns - self._settings.largest_drift_ppb * abs(apart_ns) / _SECOND:
            self.implausible += 1
            return None
        excess = both_ns / 2 - self._delay_ns
        if excess < -doubt_ns:
            # The cable is shorter than the topology says: nothing bounds the flights but 0.
            excess = both_ns / 2
        time_ns = (forward.received_ns + backward.received_ns) // 2
        return _Point(time_ns, forward.flight_ns - backward.flight_ns, max(excess, 0.0))

    def _take(self, point: _Point) -> None:
        expected = self.offset(point.time_ns)
        if expected is None:
            self._reset()
            self._add(point)
            return
        reach_ns = self._settings.jump_ns + 4 * (point.excess_ns + expected.uncertainty_ns)
        if abs(point.twice_offset_ns / 2 - expected.offset_ns) <= reach_ns:
            self._suspect = None
            self._add(point)
            return
        before, self._suspect = self._suspect, point
        if before is not None and abs(point.twice_offset_ns - before.twice_offset_ns) <= 2 * reach_ns:
            self._suspect = None
            self._reset()
            self._add(point)

    def _add(self, point: _Point) -> None:
        if not self._weight:
            self._base_ns, self._time_ns = point.twice_offset_ns // 2, point.time_ns
        self._move_to(max(point.time_ns, self._time_ns))
        t = (point.time_ns - self._time_ns) / _SECOND
        x = (point.twice_offset_ns - 2 * self._base_ns) / 2
        # The delay that even the fastest packets have is common to all, so it says little about their scatter.
        self._least_excess_ns = min(self._least_excess_ns, point.excess_ns)
        scatter = point.excess_ns - self._least_excess_ns + point.excess_ns / 16
        weight = 1.0 / (scatter + self._settings.resolution_ns) ** 2
        self._weight += weight
        self._t += weight * t
        self._tt += weight * t * t
        self._x += weight * x
        self._tx += weight * t * x
        self._excess += weight * point.excess_ns
        self._excess2 += weight * point.excess_ns**2

    def _move_to(self, time_ns: int) -> None:
        """Rebase times to `time_ns`, and discount older observations."""
        by = (time_ns - self._time_ns) / _SECOND
        if not by:
            return
        self._tt += by * (by * self._weight - 2 * self._t)
        self._tx -= by * self._x
        self._t -= by * self._weight
        self._time_ns = time_ns
        fade = math.exp(-by * _SECOND / self._settings.memory_ns)
        self._weight, self._t, self._tt = self._weight * fade, self._t * fade, self._tt * fade
        self._x, self._tx = self._x * fade, self._tx * fade
        self._excess, self._excess2 = self._excess * fade, self._excess2 * fade

    def _slope(self) -> float:
        """Return the line's slope in ppb; with little data, the maximum drift of clocks keeps it small."""
        return (self._tx - self._t * self._x / self._weight) / (self._spread() + self._ridge())

    def _slope_doubt(self) -> float:
        """Return the bound of the slope's error: every observation wrong by its excess, and what holds it against 0."""
        # The sum of weight * distance from the mean time * excess, at most (Cauchy and Schwarz).
        errors = math.sqrt(self._spread() * self._excess2)
        held = self._ridge() * self._settings.largest_drift_ppb
        return (errors + held) / (self._spread() + self._ridge())

    def _spread(self) -> float:
        return max(self._tt - self._t * self._t / self._weight, 0.0)

    def _ridge(self) -> float:
        return 1.0 / self._settings.largest_drift_ppb**2


@dataclass(frozen=True, slots=True)
class NodeReading:
    """A node's clock against the first of its group; `uncertainty_ns` bounds the error."""

    group: int
    offset_ns: int
    drift_ppb: float
    uncertainty_ns: float


def solve(edges: Mapping[Edge, Offset]) -> dict[int, NodeReading]:
    """Return a reading for every node with an edge; edge (a, b) has b's clock minus a's. The least id names a group."""
    readings = tree(edges)
    groups = {reading.group for reading in readings.values()}
    for group in groups:
        readings |= _refined({node: reading for node, reading in readings.items() if reading.group == group}, edges)
    return readings


def tree(edges: Mapping[Edge, Offset]) -> dict[int, NodeReading]:
    """Return every node's reading along the most certain path to the lowest node that it reaches."""
    neighbours: dict[int, list[tuple[int, Offset, int]]] = {}
    for (a, b), offset in edges.items():
        neighbours.setdefault(a, []).append((b, offset, 1))
        neighbours.setdefault(b, []).append((a, offset, -1))
    readings: dict[int, NodeReading] = {}
    for root in sorted(neighbours):
        if root not in readings:
            readings |= _tree(root, neighbours)
    return readings


def _tree(root: int, neighbours: Mapping[int, list[tuple[int, Offset, int]]]) -> dict[int, NodeReading]:
    """Return readings along the surest path to each node (Dijkstra over uncertainties)."""
    readings: dict[int, NodeReading] = {}
    queue: list[tuple[float, int, int, float]] = [(0.0, root, 0, 0.0)]
    while queue:
        doubt, node, offset_ns, drift = heapq.heappop(queue)
        if node in readings:
            continue
        readings[node] = NodeReading(root, offset_ns, drift, doubt)
        for other, step, sign in neighbours[node]:
            if other not in readings:
                reading = offset_ns + sign * step.offset_ns
                heapq.heappush(queue, (doubt + step.uncertainty_ns, other, reading, drift + sign * step.drift_ppb))
    return readings


def _refined(tree: Mapping[int, NodeReading], edges: Mapping[Edge, Offset]) -> dict[int, NodeReading]:
    """Return the least squares readings: the tree's plus numpy's solution for the residuals."""
    position = {node: index for index, node in enumerate(tree)}
    inside = {edge: offset for edge, offset in edges.items() if edge[0] in tree}
    matrix, left = np.zeros((len(inside), len(tree))), np.zeros((len(inside), 2))
    for row, ((a, b), offset) in enumerate(inside.items()):
        weight = 1 / offset.uncertainty_ns
        matrix[row, position[a]], matrix[row, position[b]] = -weight, weight
        left[row] = (
            weight * (offset.offset_ns - (tree[b].offset_ns - tree[a].offset_ns)),
            weight * (offset.drift_ppb - (tree[b].drift_ppb - tree[a].drift_ppb)),
        )
    moved = np.vstack([np.zeros(2), np.linalg.lstsq(matrix[:, 1:], left, rcond=None)[0]])
    return {
        node: NodeReading(
            reading.group,
            reading.offset_ns + round(offset_ns),
            reading.drift_ppb + drift,
            reading.uncertainty_ns + abs(offset_ns),
        )
        for (node, reading), (offset_ns, drift) in zip(tree.items(), moved.tolist(), strict=True)
    }
