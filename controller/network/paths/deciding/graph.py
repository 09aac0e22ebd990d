"""The network as the decider sees it: data computed once, and the value of a path in one round.

A flow loads its own path, so a flow's rate is given back to the links of its path before they are compared: every
figure says what the path offers *this* flow. The rate is the configured one, else the flow's equal share of the load on
the emptiest link of its path, which can only be too high.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import Final

import numpy as np

from collectors.values import Snapshot
from controller.common.errors import PathError
from controller.network.algorithms.costs import FORBIDDEN, HOP_BITS, Costs, link_costs
from controller.network.algorithms.k_shortest import shortest_paths
from controller.network.algorithms.link_table import Flags, LinkTable, Longs
from controller.network.algorithms.search import PathSearch
from controller.network.algorithms.trees import DestinationTrees
from controller.network.paths.deciding.beliefs import FORESEEN_NS, Beliefs
from controller.network.paths.deciding.path_book import Path, PathBook
from controller.network.paths.settings import DecideSettings
from dataplane.topology.values import LinkKey, Topology

__all__ = ["NOBODY", "Network", "Own", "Path", "PathFigures", "Rows", "StateGraph"]

Rows = tuple[int, ...]
"""A path as the rows of its links in the network's table."""

_UNLIMITED_BPS: Final = 1 << 62
_REMEMBERED: Final = 65_536
"""Cached paths, and pairs of switches with their candidates."""
_HOPS_FIRST: Final = np.uint64(1 << 48)


@dataclass(frozen=True, slots=True)
class PathFigures:
    """Value of a path to one flow: delay between its first and last switch, and bandwidth open to the flow.

    `room_bps` is the bandwidth minus the headroom that the settings keep on every link. `crowded_link` cannot carry
    its load; that adds `foreseen_ns` to the delay. Nothing is placed on a path with a `drained_link`.
    """

    switches: Path
    delay_ns: int
    bottleneck_bps: int
    room_bps: int
    dead_link: LinkKey | None
    crowded_link: LinkKey | None = None
    foreseen_ns: int = 0
    drained_link: LinkKey | None = None

    @property
    def cost_ns(self) -> int:
        """Cost by which paths are compared: delay plus the foreseen penalty."""
        return self.delay_ns + self.foreseen_ns

    @property
    def usable(self) -> bool:
        """Return whether flows may be placed on the path: none of its links is dead or drained."""
        return self.dead_link is None and self.drained_link is None

    @property
    def hops(self) -> int:
        """Links between its switches."""
        return len(self.switches) - 1


@dataclass(frozen=True, slots=True)
class Own:
    """A flow's own part of the measurements: its rate and packets per second, on the links of these rows."""

    rate_bps: int
    rows: Rows
    packets_per_s: float = 0.0


NOBODY = Own(0, ())


class Network:
    """A topology with what can be computed once: its link table, base paths and candidate paths.

    `base_trees` are the shortest path trees by configured delay, which base routes follow.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.table = LinkTable.of(topology)
        self.search = PathSearch(self.table)
        self.base_trees = DestinationTrees(self.table, self.table.configured_costs())
        collector = topology.collector
        self._collector_switch = topology.attachment[collector.host].node if collector else None
        self.rows = lru_cache(maxsize=_REMEMBERED)(self._rows)
        self.report_rows = lru_cache(maxsize=_REMEMBERED)(self._report_rows)
        self.candidates = lru_cache(maxsize=_REMEMBERED)(self._candidates)
        self.base = lru_cache(maxsize=_REMEMBERED)(self._base)
        self._prepared: set[tuple[str, str]] = set()
        self._book = PathBook(self.table)

    @property
    def book(self) -> PathBook:
        """Numbers of paths; a full book is replaced by a new one, so look up numbers in the book that issued them."""
        if len(self._book) >= _REMEMBERED:
            self._book = PathBook(self.table)
        return self._book

    def prepare(self, ends: Iterable[tuple[str, str]], limit: int, most: int) -> None:
        """Compute the candidates of pairs of switches in advance, up to a number at a time."""
        for pair in ends:
            if most == 0 or len(self._prepared) >= _REMEMBERED:
                return
            if pair not in self._prepared:
                self._prepared.add(pair)
                self.candidates(*pair, limit)
                most -= 1

    def is_prepared(self, ends: tuple[str, str]) -> bool:
        """Return whether the candidates of a pair of switches were computed in advance, or no more can be."""
        return ends in self._prepared or len(self._prepared) >= _REMEMBERED

    def ends(self, src_host: str, dst_host: str) -> tuple[str, str]:
        """Return the switches that two hosts are attached to."""
        return self.topology.attachment[src_host].node, self.topology.attachment[dst_host].node

    def has_path(self, path: Path) -> bool:
        """Return whether neighbouring switches of a path are linked."""
        try:
            self.rows(path)
        except PathError:
            return False
        return True

    def _base(self, src: str, dst: str) -> tuple[Path, bool] | None:
        """Return the first base path between two switches and whether it is the only one; None if there is none."""
        start, end = self.table.switch_number[src], self.table.switch_number[dst]
        rows = self.base_trees.path(start, end)
        if rows is None:
            return None
        only = all(
            len(list(islice(self.base_trees.next_links(int(self.table.tail[row]), end), 2))) == 1 for row in rows
        )
        return self.table.path(start, rows), only

    def is_base(self, path: Path) -> bool:
        """Return whether a path is one of the base paths between its ends."""
        end = self.table.switch_number[path[-1]]
        return all(row in self.base_trees.next_links(int(self.table.tail[row]), end) for row in self.rows(path))

    def _report_rows(self, switch: int) -> Rows:
        """Return the links that a switch's reports cross on their (first) base path to the collector."""
        pair = (
            None if self._collector_switch is None else self.base(self.table.switches[switch], self._collector_switch)
        )
        return () if pair is None else self.rows(pair[0])

    def _rows(self, path: Path) -> Rows:
        return tuple(int(row) for row in self.table.rows(path))

    def _candidates(self, src: str, dst: str, limit: int) -> tuple[Path, ...]:
        """Return up to `limit` simple paths, shortest configured delay first (Yen), fewer hops on ties."""
        start, end = self.table.switch_number[src], self.table.switch_number[dst]
        trees = self.base_trees
        paths = shortest_paths(self.search, trees.costs, start, end, trees.distance[end])
        return tuple(self.table.path(start, path.rows) for path in islice(paths, limit))


class StateGraph:
    """Estimated state of a network in one round; `move` predicts the effect of moved flows, in this round only."""

    def __init__(self, network: Network, beliefs: Beliefs) -> None:
        self.network, self.beliefs, self.settings = network, beliefs, beliefs.settings
        self.load_bps: Longs = beliefs.load_bps.copy()
        self.table = beliefs.table
        self.relieved = np.zeros(len(self.table.links), np.bool_)
        self.costs: Costs = self.table.costs()

    @classmethod
    def of(
        cls, network: Network, snapshot: Snapshot, settings: DecideSettings, offered: tuple[Longs, Longs] | None = None
    ) -> StateGraph:
        """Return a snapshot's graph; links without believable telemetry have their configured figures."""
        beliefs = Beliefs(network.table, settings)
        beliefs.observe(snapshot.links)
        if offered is not None:
            beliefs.offer(*offered)
        return cls(network, beliefs)

    @cached_property
    def nominal_costs(self) -> Costs:
        """Costs of links without their queues; dead links remain forbidden."""
        return link_costs(self.beliefs.nominal_ns, self.table.alive)

    def delay_ns(self, row: int, own: Own) -> int:
        """Return a link's delay, queue included, except a relieved link's for its own flows."""
        if self._eased(row, own):
            return int(self.beliefs.nominal_ns[row])
        return int(self.table.delay_ns[row]) - self.foreseen_ns(row, own)

    def foreseen_ns(self, row: int, own: Own) -> int:
        """Return a link's cost, on top of its delay, for not being able to carry its load."""
        return FORESEEN_NS if self.beliefs.crowded[row] and not self._eased(row, own) else 0

    def _eased(self, row: int, own: Own) -> bool:
        return bool(self.relieved[row]) and row in own.rows

    def used_bps(self, row: int) -> int:
        """Return a link's load, predicted moves included."""
        return max(0, int(self.load_bps[row]))

    def available_bps(self, own: Own) -> Longs:
        """Return the bandwidth of each link open to a flow: its free part, and the flow's own."""
        rate_bps = self.table.rate_bps
        free = rate_bps - np.maximum(self.load_bps, 0)
        for row, own_bps in self.loads(own.rows, own).items():
            free[row] += own_bps
        return np.clip(free, 0, rate_bps)

    def loads(self, rows: Rows, own: Own) -> dict[int, int]:
        """Return a flow's load on links when it is on these: its packets, their telemetry, and reports of them."""
        watch, packets_per_s = self.settings.watch, own.packets_per_s
        if watch is None or not packets_per_s or not rows:
            return dict.fromkeys(rows, own.rate_bps)
        per_link = {
            row: own.rate_bps + round(8 * packets_per_s * watch.carried_bytes(hop)) for hop, row in enumerate(rows, 1)
        }
        switches = (int(self.table.tail[rows[0]]), *(int(self.table.head[row]) for row in rows))
        for switch, nbytes in watch.reports(switches):
            for row in self.network.report_rows(switch):
                per_link[row] = per_link.get(row, 0) + round(8 * packets_per_s * nbytes)
        return per_link

    def figures(self, path: Path, own: Own) -> PathFigures:
        """Return a path's value to a flow; a path within one switch has no delay and no limit."""
        table, rows = self.table, self.network.rows(path)
        before, after = self.loads(own.rows, own), self.loads(rows, own)
        offers = [
            (self._available_bps(row, before) - (after[row] - own.rate_bps), int(self.beliefs.headroom_bps[row]))
            for row in rows
        ]
        room_bps = min((available - kept for available, kept in offers), default=_UNLIMITED_BPS)
        return PathFigures(
            path,
            sum(self.delay_ns(row, own) for row in rows),
            max(0, min((available for available, _ in offers), default=_UNLIMITED_BPS)),
            max(0, room_bps) if self._carries_reports(rows, before, after) else 0,
            self._first(rows, self.beliefs.dead),
            next((table.links[row] for row in rows if self.foreseen_ns(row, own)), None),
            sum(self.foreseen_ns(row, own) for row in rows),
            self._first(rows, self.beliefs.drained),
        )

    def _first(self, rows: Rows, flags: Flags) -> LinkKey | None:
        return next((self.table.links[row] for row in rows if flags[row]), None)

    def _carries_reports(self, rows: Rows, before: Mapping[int, int], after: Mapping[int, int]) -> bool:
        """Return whether links off the path have room for the report traffic that a path adds."""
        more = {row: load - before.get(row, 0) for row, load in after.items() if row not in rows}
        kept = self.beliefs.headroom_bps
        return all(self._available_bps(row, {}) - kept[row] >= need for row, need in more.items() if need > 0)

    def least_delay(self, src: str, dst: str, own: Own, floor_bps: int = 0) -> Path | None:
        """Return the path of least measured delay over live links that have room and `floor_bps`; None if none.

        Fewer hops on ties.
        """
        available = self.available_bps(own)
        room = np.maximum(available - self.beliefs.headroom_bps, 0)
        return self._path(src, dst, self._costs(own), (room >= own.rate_bps) & (available >= floor_bps))

    def way_out(self, src: str, dst: str) -> Path | None:
        """Return the path of least measured delay over live links, room or not; None if there is none."""
        return self._path(src, dst, self.costs, self.table.alive)

    def widest_bps(self, src: str, dst: str, own: Own) -> int:
        """Return the greatest bottleneck of any live path, 0 if there is no path."""
        number, search = self.table.switch_number, self.network.search
        widths = search.widths(self.available_bps(own), self.table.alive, number[src])
        return min(int(widths[number[dst]]), _UNLIMITED_BPS)

    def widest(self, src: str, dst: str, own: Own) -> Path | None:
        """Return the live path of the greatest bottleneck, of several that of fewest hops, then of least delay."""
        wide = self.available_bps(own) >= self.widest_bps(src, dst, own)
        costs = self._costs(own)
        delay_ns = np.where(costs == FORBIDDEN, np.uint64(0), costs >> np.uint64(HOP_BITS))
        return self._path(src, dst, _HOPS_FIRST + delay_ns, wide & self.table.alive)

    def move(self, own: Own, new: Path) -> None:
        """Predict the effect of a flow's move on the loads of links, and which queues it lets drain."""
        rows = self.network.rows(new)
        before, after = self.loads(own.rows, own), self.loads(rows, own)
        for row, load in before.items():
            self.load_bps[row] -= load
        for row, load in after.items():
            self.load_bps[row] += load
        for row in set(own.rows) - set(rows):
            # Flows whose rates are overestimated by chance move first: the remaining load is higher by that much.
            left_bps = self.used_bps(row) + int(self.beliefs.uncertain_bps[row])
            if left_bps < self.settings.relieved_utilisation * int(self.table.rate_bps[row]):
                self.relieved[row] = True

    def _costs(self, own: Own) -> Costs:
        eased = [row for row in own.rows if self.relieved[row]]
        if not eased:
            return self.costs
        costs = self.costs.copy()
        costs[eased] = self.nominal_costs[eased]
        return costs

    def _available_bps(self, row: int, own_bps: Mapping[int, int]) -> int:
        """Return the bandwidth of a link open to a flow that now has these loads on links."""
        rate_bps = int(self.table.rate_bps[row])
        return max(0, min(rate_bps, rate_bps - self.used_bps(row) + own_bps.get(row, 0)))

    def _path(self, src: str, dst: str, costs: Costs, usable: np.ndarray) -> Path | None:
        table = self.table
        number = table.switch_number
        path = self.network.search.path(np.where(usable, costs, np.uint64(FORBIDDEN)), number[src], number[dst])
        return None if path is None else table.path(number[src], path.rows)
