"""The width of the widest path from every switch to every switch, kept up to date link by link."""

from __future__ import annotations

import numpy as np

from controller.network.algorithms.compiled import compiled
from controller.network.algorithms.kernels.width_trees import grow_widths, repair_widths
from controller.network.algorithms.link_table import Flags, LinkTable, Longs
from controller.network.algorithms.structures import Changes, Workspace, graph_of
from controller.network.algorithms.trees import REPAIR_SHARE
from dataplane.native import pointer_to


class WidthTrees:
    """`width[source, switch]` is as wide as the widest path over usable links, 0 where there is none.

    A switch's way to itself has no limit (2^63 - 1). Memory: 12 bytes a pair of switches.
    """

    def __init__(
        self, table: LinkTable, width_bps: Longs, usable: Flags, *, repair_share: float = REPAIR_SHARE
    ) -> None:
        self.table = table
        size = len(table.switches)
        self._most_repaired = max(1.0, repair_share * len(table.links))
        self._widths = _usable(width_bps, usable)
        self.width: Longs = np.empty((size, size), np.int64)
        self._arrives = np.empty((size, size), np.uint32)
        self._graph, self._workspace = graph_of(table), Workspace.of(table)
        self._regrow()

    def update(self, width_bps: Longs, usable: Flags) -> None:
        """Take the present width of every link."""
        before, self._widths = self._widths, _usable(width_bps, usable)
        links = np.flatnonzero(before != self._widths).astype(np.uint32)
        if len(links) > self._most_repaired:
            self._regrow()
            return
        changes = Changes(count=len(links), link=pointer_to(links), before=pointer_to(before[links]))
        compiled(repair_widths)(*self._arguments(), changes)

    def _regrow(self) -> None:
        compiled(grow_widths)(*self._arguments())

    def _arguments(self) -> tuple[object, ...]:
        return (
            self._graph,
            pointer_to(self._widths),
            self._workspace.scratch,
            0,
            len(self.table.switches),
            pointer_to(self.width.reshape(-1)),
            pointer_to(self._arrives.reshape(-1)),
        )


def _usable(width_bps: Longs, usable: Flags) -> Longs:
    return np.where(usable, np.maximum(width_bps, 0), 0)
