"""Place figures in a picture: beside their own arrow, clear of boxes, other figures and all arrows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import cos, hypot, radians, sin

Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]
"""Left, lower, right, upper."""

_SHARES = (0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74, 0.18, 0.82)
_TURNS = (0, 40, -40, 65, -65)
"""Degrees off the perpendicular in which room is sought."""
_STEP_IN = 0.05
_FARTHEST_IN = 1.6
_CLEARANCE_IN = 0.03
_ON_A_BOX = 100.0
"""Penalty, in inches, also for another figure and the edge."""
_ON_AN_ARROW = 10.0
_OFF_THE_MIDDLE = 0.5
"""Penalty, in inches, at the end of an arrow: a figure elsewhere along it is better than one far from it."""
_LEFT = 0.04
"""Penalty, in inches, for the left-hand side, where the other direction's arrow runs."""


@dataclass(frozen=True, slots=True)
class Line:
    """A drawn arrow, from its tail to its head, in inches; `half_in` is its reach to either side."""

    tail: Point
    head: Point
    half_in: float = 0.0


@dataclass(frozen=True, slots=True)
class Placement:
    """The centre of a figure, and the point of its arrow that it belongs to."""

    centre: Point
    anchor: Point


def place_label(own: Line, size: Point, taken: Sequence[Rectangle], lines: Sequence[Line], bounds: Point) -> Placement:
    """Return a place for an arrow's figure of a size; `taken` are boxes and figures already placed, `lines` all arrows.

    Always returns a place: the one that covers least; among equals, the nearest to the arrow's middle.
    """
    best: tuple[float, Placement] | None = None
    for distance, placement in sorted(_candidates(own, size), key=lambda candidate: candidate[0]):
        if best is not None and distance >= best[0]:
            break
        tie = Line(placement.centre, placement.anchor)
        cost = distance + _cost(_around(placement.centre, size), taken, lines, bounds)
        cost += _ON_AN_ARROW * sum(crosses(tie, other) for other in taken)
        if best is None or cost < best[0]:
            best = cost, placement
    assert best is not None
    return best[1]


def rectangle_at(centre: Point, size: Point) -> Rectangle:
    """Return the rectangle of a size around a centre."""
    return centre[0] - size[0] / 2, centre[1] - size[1] / 2, centre[0] + size[0] / 2, centre[1] + size[1] / 2


def overlap(a: Rectangle, b: Rectangle) -> bool:
    """Return whether two rectangles share an area."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def crosses(line: Line, box: Rectangle) -> bool:
    """Return whether an arrow's line, with its reach around it, passes through a rectangle (Liang-Barsky clipping)."""
    (x1, y1), (x2, y2) = line.tail, line.head
    half = line.half_in
    enter, leave = 0.0, 1.0
    for step, low, high in (
        (x2 - x1, box[0] - half - x1, box[2] + half - x1),
        (y2 - y1, box[1] - half - y1, box[3] + half - y1),
    ):
        if step == 0:
            if low > 0 or high < 0:
                return False
            continue
        first, last = sorted((low / step, high / step))
        enter, leave = max(enter, first), min(leave, last)
    return enter < leave


def _candidates(own: Line, size: Point) -> Iterator[tuple[float, Placement]]:
    """Yield places beside an arrow, each with its distance from the best one in inches."""
    (x1, y1), (x2, y2) = own.tail, own.head
    # Two ends at one point have no direction: any length will do.
    length = hypot(x2 - x1, y2 - y1) or 1.0
    right = (y2 - y1) / length, (x1 - x2) / length
    # Beside an arrow means just far enough for the figure's own extent in that direction.
    least_in = (abs(right[0]) * size[0] + abs(right[1]) * size[1]) / 2 + own.half_in + 2 * _CLEARANCE_IN
    steps = range(int(_FARTHEST_IN / _STEP_IN))
    for share, side, turn, step in product(_SHARES, (1, -1), _TURNS, steps):
        anchor = x1 + share * (x2 - x1), y1 + share * (y2 - y1)
        away = side * cos(radians(turn)), side * sin(radians(turn))
        far_in = least_in / cos(radians(turn)) + step * _STEP_IN
        centre = (
            anchor[0] + far_in * (away[0] * right[0] - away[1] * right[1]),
            anchor[1] + far_in * (away[1] * right[0] + away[0] * right[1]),
        )
        distance = far_in - least_in + 2 * abs(share - 0.5) * _OFF_THE_MIDDLE + (_LEFT if side < 0 else 0.0)
        yield distance, Placement(centre, anchor)


def _around(centre: Point, size: Point) -> Rectangle:
    return rectangle_at(centre, (size[0] + 2 * _CLEARANCE_IN, size[1] + 2 * _CLEARANCE_IN))


def _cost(box: Rectangle, taken: Sequence[Rectangle], lines: Sequence[Line], bounds: Point) -> float:
    outside = box[0] < 0 or box[1] < 0 or box[2] > bounds[0] or box[3] > bounds[1]
    covered = sum(overlap(box, other) for other in taken)
    return _ON_A_BOX * (covered + outside) + _ON_AN_ARROW * sum(crosses(line, box) for line in lines)
