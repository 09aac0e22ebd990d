"""Layout of a probe task's picture: uses in columns by the longest data path, in rows ordered to reduce crossings.

A link over several columns passes through spots reserved for it, so that it runs between boxes and not behind them
(Sugiyama, Tagawa and Toda, 1981: layers, dummy nodes, barycentres).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from controller.probing.values import Link, ProbeTask

_SWEEPS: Final = 6

Node = str | tuple[str, str, int]
"""A use, or the spot of a link (source, target) in a column."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Columns of uses and spots from left to right, each from top to bottom, and the path of each link."""

    columns: tuple[tuple[Node, ...], ...]
    ways: Mapping[Link, tuple[Node, ...]]

    @property
    def rows(self) -> int:
        """Number of rows of the longest column."""
        return max(len(column) for column in self.columns)


def layers_of(probe: ProbeTask) -> Layers:
    """Return the columns of a probe task's uses; deterministic."""
    column: dict[str, int] = {}
    for name in probe.order:
        column[name] = max((column[source] + 1 for source in probe.sources[name]), default=0)
    columns: list[list[Node]] = [[] for _ in range(max(column.values()) + 1)]
    for part in probe.parts:
        for name in part:
            columns[column[name]].append(name)
    ways: dict[Link, tuple[Node, ...]] = {}
    for link in probe.links:
        between: list[Node] = [(link.src, link.dst, at) for at in range(column[link.src] + 1, column[link.dst])]
        for at, spot in enumerate(between, column[link.src] + 1):
            columns[at].append(spot)
        ways[link] = (link.src, *between, link.dst)
    before, after = _neighbours(ways.values())
    for _ in range(_SWEEPS):
        for at in range(1, len(columns)):
            columns[at] = _sorted(columns[at], columns[at - 1], before)
        for at in range(len(columns) - 2, -1, -1):
            columns[at] = _sorted(columns[at], columns[at + 1], after)
    return Layers(tuple(tuple(one) for one in columns), ways)


def _neighbours(ways: Iterable[Sequence[Node]]) -> tuple[dict[Node, list[Node]], dict[Node, list[Node]]]:
    before: dict[Node, list[Node]] = {}
    after: dict[Node, list[Node]] = {}
    for way in ways:
        for first, second in pairwise(way):
            before.setdefault(second, []).append(first)
            after.setdefault(first, []).append(second)
    return before, after


def _sorted(column: list[Node], beside: list[Node], neighbours: Mapping[Node, list[Node]]) -> list[Node]:
    """Return a column sorted by the mean positions of its neighbours; nodes without neighbours keep their positions."""
    place = {node: at / max(1, len(beside) - 1) for at, node in enumerate(beside)}
    own = {node: at / max(1, len(column) - 1) for at, node in enumerate(column)}

    def mean(node: Node) -> float:
        found = [place[one] for one in neighbours.get(node, ())]
        return sum(found) / len(found) if found else own[node]

    return sorted(column, key=mean)
