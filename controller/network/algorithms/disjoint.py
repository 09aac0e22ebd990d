"""A second path that shares as little with a first one as the fabric allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.network.algorithms.costs import FORBIDDEN, Costs
from controller.network.algorithms.link_table import Ids, LinkTable
from controller.network.algorithms.search import PathSearch
from dataplane.topology.values import LinkKey

_SAFE = 1 << 63


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup path, as the rows of its links, and what it shares with the path that it backs."""

    rows: tuple[int, ...]
    shared_cables: int
    shared_switches: int

    @property
    def disjoint(self) -> bool:
        """Return whether no cable is shared, in either direction, so that any one cable may break."""
        return self.shared_cables == 0


def disjoint_backup(
    search: PathSearch, costs: Costs, src: int, dst: int, primary: Sequence[int] | Ids
) -> Backup | None:
    """Return the path that shares fewest cables with a path, then fewest switches between the ends, then costs least.

    `primary` are the rows of the links of the path from `src` to `dst`; those forbidden by `costs` (dead ones) are
    avoided altogether. None if there is no path besides the primary.
    """
    table = search.table
    rows = np.asarray(primary, np.uint32)
    cables = np.concatenate([rows, reverse_rows(table, rows)])
    inner = table.head[rows[:-1]]
    backup = search.path(_penalised(table, costs, cables, inner, len(rows)), src, dst)
    if backup is None or backup.rows == tuple(int(row) for row in rows):
        return None
    taken = np.asarray(backup.rows, np.uint32)
    shared = int(np.isin(taken, cables).sum())
    return Backup(backup.rows, shared, int(np.isin(table.head[taken[:-1]], inner).sum()))


def reverse_rows(table: LinkTable, rows: Ids) -> Ids:
    """Return the rows of the same cables in the other direction."""
    keys = (table.links[row] for row in rows)
    return np.array([table.link_number[LinkKey(key.dst, key.src)] for key in keys], np.uint32)


def _penalised(table: LinkTable, costs: Costs, cables: Ids, inner: Ids, most_cables: int) -> Costs:
    """Return costs in which one shared cable weighs more than all switches, and one shared switch more than any path.

    If that leaves no room for the costs in 64 bits, their lowest bits are dropped.
    """
    usable = costs != FORBIDDEN
    switches = len(table.switches)
    dearest = int(costs[usable].max(initial=1))
    shift = 0
    while (dearest >> shift) * switches * switches * (most_cables + 2) * 2 >= _SAFE:
        shift += 1
    per_switch = (dearest >> shift) * switches + switches
    per_cable = per_switch * switches
    penalised: Costs = np.maximum(costs >> np.uint64(shift), np.uint64(1))
    penalised[np.isin(table.head, inner)] += np.uint64(per_switch)
    penalised[cables] += np.uint64(per_cable)
    penalised[~usable] = FORBIDDEN
    return penalised
