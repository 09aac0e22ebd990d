"""Places of a plan's operators in its picture: rows and columns of boxes, and lanes of edges that pass other rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.acceleration.plans.values import Edge


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows and columns of operators, both from 0, columns also between two.

    The result is on top, each operator a row below all of its readers. No two boxes of a row are less than a column
    apart.
    """

    rows: tuple[int, ...]
    columns: tuple[float, ...]


def layout_of(count: int, edges: Sequence[Edge]) -> Layout:
    """Return the places of `count` operators, each after all that it reads."""
    rows = _rows(count, edges)
    columns = _columns(rows, edges)
    return Layout(tuple(rows), tuple(columns))


def lanes_of(layout: Layout, edges: Sequence[Edge], pitch: float, apart: float) -> dict[int, float]:
    """Return where the edges that pass other rows go up, by their position: distances from the first column's centre.

    That is right of all boxes in the rows that an edge passes, half the distance of columns (`pitch`) from their
    centres or more, and at least `apart` from other edges that go up there.
    """
    lanes: dict[int, float] = {}
    for at, edge in enumerate(edges):
        top, bottom = layout.rows[edge.dst], layout.rows[edge.src]
        if bottom - top == 1:
            continue
        places = zip(layout.rows, layout.columns, strict=True)
        lane = max(column for row, column in places if top < row < bottom) * pitch + pitch / 2
        neighbours = [
            other
            for index, other in lanes.items()
            if layout.rows[edges[index].dst] <= bottom and top <= layout.rows[edges[index].src]
        ]
        for other in sorted(neighbours):
            if other - apart < lane < other + apart:
                lane = other + apart
        lanes[at] = lane
    return lanes


def _rows(count: int, edges: Sequence[Edge]) -> list[int]:
    rows = [0] * count
    # Readers come later than what they read.
    for edge in sorted(edges, key=lambda edge: -edge.dst):
        rows[edge.src] = max(rows[edge.src], rows[edge.dst] + 1)
    return rows


def _columns(rows: Sequence[int], edges: Sequence[Edge]) -> list[float]:
    """Return columns: each operator below its reader; leaves from the left, others in the middle of what they read."""
    count = len(rows)
    sources: list[list[int]] = [[] for _ in range(count)]
    for edge in edges:
        sources[edge.dst].append(edge.src)
    columns, free = [0.0] * count, 0
    # The first reader of a shared result gets it in its own columns.
    claimed: set[int] = set()
    for top in sorted(range(count), key=lambda at: (rows[at], -at)):
        if top in claimed:
            continue
        claimed.add(top)
        waiting: list[tuple[int, list[int] | None]] = [(top, None)]
        while waiting:
            at, below = waiting.pop()
            if below is None:
                below = [source for source in sources[at] if source not in claimed and rows[source] == rows[at] + 1]
                claimed.update(below)
                waiting.append((at, below))
                waiting += [(source, None) for source in reversed(below)]
            elif below:
                columns[at] = sum(columns[source] for source in below) / len(below)
            else:
                columns[at], free = free, free + 1
    return columns
