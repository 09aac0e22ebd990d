"""Paths by number, with the rows of their links: looked up once for the many flows that share them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.common.errors import PathError
from controller.network.algorithms.link_table import Flags, Ids, LinkTable, Longs

Path = tuple[str, ...]

NOWHERE: Final = -1
"""Stands for a missing path, and for a switch that the network lacks."""


@dataclass(frozen=True, slots=True, eq=False)
class PathRows:
    """Paths side by side: their first and last switches, and the positions of their links' rows in `pool`.

    `linked` says that neighbouring switches are linked; a path for which that is false has no links here.
    """

    first: Longs
    last: Longs
    start: Longs
    hops: Longs
    linked: Flags
    pool: Ids

    def links(self, paths: Longs) -> tuple[Ids, Longs]:
        """Return the rows of the links of these paths, path after path, and how many each has."""
        hops = self.hops[paths]
        ends = np.cumsum(hops)
        ahead = np.repeat(self.start[paths] - (ends - hops), hops)
        return self.pool[ahead + np.arange(len(ahead))], hops


class PathBook:
    """Numbers paths in the order of their first lookup; it only grows."""

    def __init__(self, table: LinkTable) -> None:
        self._table = table
        self.paths: list[Path] = []
        self._numbers: dict[Path, int] = {}
        self._new: list[tuple[int, int, int, bool]] = []
        self._new_links: list[int] = []
        none: Longs = np.zeros(0, np.int64)
        self._rows = PathRows(none, none, none, none, np.zeros(0, np.bool_), np.zeros(0, np.uint32))
        self._routes: tuple[tuple[Path, ...], Longs] = (), none

    def __len__(self) -> int:
        return len(self.paths)

    def number(self, path: Path) -> int:
        """Return a path's number."""
        number = self._numbers.get(path)
        if number is None:
            number = self._numbers[path] = len(self.paths)
            self.paths.append(path)
            self._note(path)
        return number

    def numbers(self, routes: tuple[Path, ...]) -> Longs:
        """Return the numbers of routes; the last call's result is cached by identity."""
        if routes is not self._routes[0]:
            self._routes = routes, np.array([self.number(path) for path in routes], np.int64)
        return self._routes[1]

    @property
    def rows(self) -> PathRows:
        """All paths side by side."""
        if self._new:
            old = self._rows
            first, last, hops, linked = (np.array(column) for column in zip(*self._new, strict=True))
            start = len(old.pool) + np.cumsum(hops) - hops
            self._rows = PathRows(
                np.concatenate((old.first, first)),
                np.concatenate((old.last, last)),
                np.concatenate((old.start, start)),
                np.concatenate((old.hops, hops)),
                np.concatenate((old.linked, linked)),
                np.concatenate((old.pool, np.array(self._new_links, np.uint32))),
            )
            self._new, self._new_links = [], []
        return self._rows

    def ranks(self, numbers: Longs) -> Longs:
        """Return the rank of each of these paths in the order of its switches' names."""
        some, places = np.unique(numbers, return_inverse=True)
        order = sorted(range(len(some)), key=[self.paths[number] for number in some.tolist()].__getitem__)
        ranks: Longs = np.zeros(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        return ranks[places]

    def overlay(self, paths: Mapping[int, Path], count: int) -> Longs:
        """Return a column of this length: the numbers of these paths at their positions, NOWHERE elsewhere."""
        column: Longs = np.full(count, NOWHERE, np.int64)
        for index, path in paths.items():
            column[index] = self.number(path)
        return column

    def _note(self, path: Path) -> None:
        ends = [self._table.switch_number.get(name, NOWHERE) for name in (*path[:1], *path[-1:])] or [NOWHERE] * 2
        try:
            links = self._table.rows(path).tolist()
        except PathError:
            self._new.append((*ends, 0, False))  # type: ignore[arg-type]  # two ends
            return
        self._new.append((*ends, len(links), True))  # type: ignore[arg-type]  # two ends
        self._new_links += links
