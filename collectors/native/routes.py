"""Routes in native memory as columns: their switches by name and their links by number."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from collectors.native.structures import MOST_SWITCHES
from collectors.native.topology import NativeTopology
from collectors.state.accumulator import RouteColumns
from collectors.statistics.columns import UNKNOWN, Integers, Places, signed

NO_LINK: Final = -1
"""Stands for an absent link."""


class RouteTable:
    """Switches and links of the routes in native memory at one time, by number; nothing changes it."""

    def __init__(self, nodes: NDArray[np.uint32], lengths: NDArray[np.uint32]) -> None:
        self.nodes, self.lengths = nodes, lengths
        self.switches: list[tuple[str, ...]] = [()] * len(lengths)
        self.links: Integers = np.full((len(lengths), MOST_SWITCHES - 1), NO_LINK, np.int64)
        self._used: tuple[Integers, tuple[tuple[str, ...], ...]] = np.zeros(0, np.int64), ()

    def changed(self, nodes: NDArray[np.uint32], lengths: NDArray[np.uint32]) -> Places:
        """Return the numbers of the routes that are not the same here."""
        common = min(len(lengths), len(self.lengths))
        changed = np.ones(len(lengths), np.bool_)
        changed[:common] = self.lengths[:common] != lengths[:common]
        changed[:common] |= (self.nodes[:common] != nodes[:common]).any(axis=1)
        return np.flatnonzero(changed)

    def columns(self, used: Integers, figures: NDArray[np.void]) -> RouteColumns:
        """Return the routes of some numbers; if they are those of the last call, their names are the same object."""
        last = self._used
        if not np.array_equal(used, last[0]):
            last = self._used = used, tuple(self.switches[number] for number in used.tolist())
        longest = int(self.lengths[used].max(initial=1)) - 1
        cells = figures[used]
        is_known = cells["known"] != 0
        measured = is_known & (cells["samples"] != 0)
        mean, p50, p99 = (np.where(measured, signed(cells[name]), UNKNOWN) for name in ("mean", "p50", "p99"))
        return RouteColumns(
            last[1],
            self.links[used, :longest],
            mean,
            p50,
            p99,
            samples=np.where(is_known, signed(cells["samples"]), 0),
            newest_ns=np.where(is_known, signed(cells["newest_ns"]), 0),
        )


class RouteTables:
    """Makes tables of routes, reusing the unchanged parts of the last one."""

    def __init__(self, topology: NativeTopology) -> None:
        self._names = topology.switches
        self._pairs = _link_numbers(topology)
        self._last = RouteTable(np.zeros((0, MOST_SWITCHES), np.uint32), np.zeros(0, np.uint32))

    def table(self, nodes: NDArray[np.uint32], lengths: NDArray[np.uint32]) -> RouteTable:
        """Return the current routes, the previous table if nothing has changed.

        `nodes` has the numbers of each route's switches, one row each, of which the first `lengths` count.
        """
        last = self._last
        changed = last.changed(nodes, lengths)
        if not len(changed) and len(lengths) == len(last.lengths):
            return last
        new, common = RouteTable(nodes.copy(), lengths.copy()), min(len(lengths), len(last.lengths))
        new.switches[:common], new.links[:common] = last.switches[:common], last.links[:common]
        new.links[changed] = self._links(nodes[changed], lengths[changed])
        for number in changed.tolist():
            new.switches[number] = tuple(self._names[node] for node in nodes[number, : lengths[number]].tolist())
        self._last = new
        return new

    def _links(self, nodes: NDArray[np.uint32], lengths: NDArray[np.uint32]) -> Integers:
        pairs, numbers = self._pairs
        wanted = nodes[:, :-1].astype(np.int64) << 32 | nodes[:, 1:].astype(np.int64)
        if not len(pairs):
            return np.full(wanted.shape, NO_LINK)
        # Entries behind a route's end are left over from an earlier one.
        inside = np.arange(1, MOST_SWITCHES)[None, :] < lengths[:, None]
        places = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
        return np.where(inside, numbers[places], NO_LINK)


def _link_numbers(topology: NativeTopology) -> tuple[Integers, Integers]:
    """Return pairs of neighbouring switches as one number each, in order, and the numbers of the links between them."""
    numbers = topology.switch_number
    ends = [(numbers.get(key.src, -1), numbers.get(key.dst, -1)) for key in topology.link_keys]
    inner = [(src << 32 | dst, number) for number, (src, dst) in enumerate(ends) if min(src, dst) >= 0]
    pairs: Integers = np.array(sorted(inner), np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()
