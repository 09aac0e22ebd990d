"""Immediate evacuation of dead links, by backup paths computed before anything breaks.

The decider weighs and confirms; a dead link leaves no time for that. For every path in use, the path that shares the
fewest cables with it is kept ready. All flows of a link that dies move in the same round, each to its backup if that is
alive, else to the shortest live path.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from itertools import islice, pairwise

from controller.network.algorithms.disjoint import disjoint_backup
from controller.network.algorithms.link_table import LinkTable
from controller.network.algorithms.search import PathSearch
from controller.network.paths.deciding.graph import Path
from dataplane.topology.values import LinkKey

MAX_KEPT = 65_536
"""Number of backups kept; beyond that the oldest are evicted."""


MAX_PREPARED = 256
"""Backups computed per call, some 0.3 ms each in a fabric of 1,000 switches; the next round continues."""


class Backups:
    """The disjoint backup of every path in use, by configured delay."""

    def __init__(self, table: LinkTable) -> None:
        self._table, self._search = table, PathSearch(table)
        self._costs = table.configured_costs()
        self._kept: dict[Path, Path | None] = {}
        self._avoided: tuple[Set[LinkKey], Set[LinkKey]] = frozenset(), frozenset()
        self._detours: dict[Path, tuple[Path, str] | None] = {}
        """The detours around the links that were avoided last: many flows share a path, and ask each round."""

    def prepare(self, paths: Iterable[Path]) -> None:
        """Compute the backups of paths that have none yet, a bounded number so that a round is not delayed."""
        for path in islice((path for path in paths if path not in self._kept), MAX_PREPARED):
            while len(self._kept) >= MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[path] = self._backup(path)

    def has(self, path: Path) -> bool:
        """Return whether a path's backup is ready."""
        return path in self._kept

    def backup(self, path: Path) -> Path | None:
        """Return a path's backup, None if there is no other path; quick after `prepare`."""
        self.prepare((path,))
        return self._kept[path]

    def around(self, path: Path, dead: Set[LinkKey], drained: Set[LinkKey] = frozenset()) -> tuple[Path, str] | None:
        """Return the detour of a flow from a path with dead or drained links, and its kind; None if there is none.

        It has a drained link only if a dead one leaves no other path, or if it has fewer of them than the path.
        """
        if self._avoided != (dead, drained):
            self._avoided, self._detours = (dead, drained), {}
        if path not in self._detours:
            self._detours[path] = self._around(path, dead, drained)
        return self._detours[path]

    def _around(self, path: Path, dead: Set[LinkKey], drained: Set[LinkKey]) -> tuple[Path, str] | None:
        backup = self.backup(path)
        if backup is not None and not (dead | drained) & set(links_of(backup)):
            return backup, "its backup"
        number, costs = self._table.switch_number, self._table.costs_around(dead, drained)
        found = self._search.path(costs, number[path[0]], number[path[-1]])
        if found is None:
            return None
        detour = self._named(path[0], found.rows)
        before, after = (len(drained & set(links_of(each))) for each in (path, detour))
        if not dead & set(links_of(path)) and after >= before:
            return None
        return detour, f"the shortest path that is alive{', over drained links: there is no other' if after else ''}"

    def _backup(self, path: Path) -> Path | None:
        table = self._table
        src, dst = table.switch_number[path[0]], table.switch_number[path[-1]]
        detour = disjoint_backup(self._search, self._costs, src, dst, table.rows(path))
        return None if detour is None else self._named(path[0], detour.rows)

    def _named(self, src: str, rows: tuple[int, ...]) -> Path:
        return self._table.path(self._table.switch_number[src], rows)


def links_of(path: Path) -> tuple[LinkKey, ...]:
    """Return the directed links between a path's switches."""
    return tuple(LinkKey(*pair) for pair in pairwise(path))
