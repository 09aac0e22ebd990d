"""Detection of popular names: a count-min sketch, and a Bloom filter of those reported to the controller.

Three rows of cells, each with an interval number (15 bits), a saturating count (16 bits) and a bit of the Bloom filter.
A cell of another interval is empty: the controller counts the intervals, and clears nothing. A count is never too low;
a name is reported once per interval, unless all its three cells are shared with names that were reported before.
Interval numbers wrap around after 2^15: a cell that was not used since then continues its count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from dataplane.store.names import HotName, Segment

ROW_CELLS: Final = 1 << 14
MULTIPLIERS: Final = (0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35)
_MOST: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class Count:
    """A cell: number of requests in an interval, and whether the controller was told."""

    interval: int = 0
    requests: int = 0
    reported: bool = False


def places(segment: Segment) -> tuple[int, ...]:
    """Return a name's cell in each row: the name is a hash, segments are spread by a per-row multiplier."""
    return tuple(
        ((segment.name >> 32 * row) + segment.number * multiplier) % 2**32 * ROW_CELLS >> 32
        for row, multiplier in enumerate(MULTIPLIERS)
    )


class Sketch:
    """Counts of one switch."""

    def __init__(self) -> None:
        self._rows: list[dict[int, Count]] = [{} for _ in MULTIPLIERS]

    def ask(self, segment: Segment, *, interval: int, threshold: int) -> HotName | None:
        """Count an INTEREST for a name that has no cell; return the report to the controller, if any."""
        at = places(segment)
        cells = [self._count(row, column, interval) for row, column in zip(self._rows, at, strict=True)]
        requests = min(cell.requests for cell in cells)
        if requests < threshold or all(cell.reported for cell in cells):
            return None
        for row, column in zip(self._rows, at, strict=True):
            row[column] = replace(row[column], reported=True)
        return HotName(segment, requests, interval=interval)

    def _count(self, row: dict[int, Count], column: int, interval: int) -> Count:
        cell = row.get(column, Count())
        if cell.interval != interval:
            cell = Count(interval)
        row[column] = replace(cell, requests=min(cell.requests + 1, _MOST))
        return row[column]
