"""Place figures in a picture: on or next to their own link, clear of boxes, other figures and other links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot

Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]
"""Left, lower, right, upper."""

_SHARES = (0.5, 0.42, 0.58, 0.35, 0.65, 0.28, 0.72, 0.22, 0.78)
_CLEARANCE_IN = 0.04
_ON_A_BOX = 100.0
"""Penalty also for another figure, or the edge."""
_ON_A_LINK = 1.0
_ASIDE = 0.4
"""A figure on its own link is easier to assign than one next to it ..."""
_ALL_COVERED = 0.6
"""... unless it leaves little of the link to be seen."""


@dataclass(frozen=True, slots=True)
class Line:
    """A drawn link, from its tail to its head, in inches."""

    tail: Point
    head: Point


def place_label(own: Line, size: Point, taken: Sequence[Rectangle], lines: Sequence[Line], bounds: Point) -> Point:
    """Return the centre of a figure of a size for a link; `taken` are boxes and figures already placed.

    Always returns a place: the one that covers least; among equals, the nearest to the link's middle.
    """
    (x1, y1), (x2, y2) = own.tail, own.head
    # Two ends at one point have no direction: any length will do.
    length = hypot(x2 - x1, y2 - y1) or 1.0
    across = (y2 - y1) / length, (x1 - x2) / length
    # Beside a link means just far enough for the figure's own extent in that direction.
    aside_in = (abs(across[0]) * size[0] + abs(across[1]) * size[1]) / 2 + 3 * _CLEARANCE_IN
    extent_in = abs(across[1]) * size[0] + abs(across[0]) * size[1]
    on_link = _ALL_COVERED if length < 2.5 * extent_in else 0.0
    best: tuple[float, Point] | None = None
    for offset_in in (0.0, aside_in, -aside_in):
        for share in _SHARES:
            position = (
                x1 + share * (x2 - x1) + offset_in * across[0],
                y1 + share * (y2 - y1) + offset_in * across[1],
            )
            cost = _cost(_around(position, size), own, taken, lines, bounds) + (_ASIDE if offset_in else on_link)
            if best is None or cost < best[0]:
                best = cost, position
    assert best is not None
    return best[1]


def rectangle_at(centre: Point, size: Point) -> Rectangle:
    """Return the rectangle of a size around a centre."""
    return centre[0] - size[0] / 2, centre[1] - size[1] / 2, centre[0] + size[0] / 2, centre[1] + size[1] / 2


def overlap(a: Rectangle, b: Rectangle) -> bool:
    """Return whether two rectangles share an area."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def crosses(line: Line, box: Rectangle) -> bool:
    """Return whether a line passes through a rectangle (Liang-Barsky clipping)."""
    (x1, y1), (x2, y2) = line.tail, line.head
    enter, leave = 0.0, 1.0
    for step, low, high in ((x2 - x1, box[0] - x1, box[2] - x1), (y2 - y1, box[1] - y1, box[3] - y1)):
        if step == 0:
            if low > 0 or high < 0:
                return False
            continue
        first, last = sorted((low / step, high / step))
        enter, leave = max(enter, first), min(leave, last)
    return enter < leave


def _around(centre: Point, size: Point) -> Rectangle:
    return rectangle_at(centre, (size[0] + 2 * _CLEARANCE_IN, size[1] + 2 * _CLEARANCE_IN))


def _cost(box: Rectangle, own: Line, taken: Sequence[Rectangle], lines: Sequence[Line], bounds: Point) -> float:
    outside = box[0] < 0 or box[1] < 0 or box[2] > bounds[0] or box[3] > bounds[1]
    covered = sum(overlap(box, other) for other in taken)
    crossed = sum(line != own and crosses(line, box) for line in lines)
    return _ON_A_BOX * (covered + outside) + _ON_A_LINK * crossed
