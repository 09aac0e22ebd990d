"""The flows that a decider manages, as columns, with their paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.network.algorithms.link_table import Flags, Ids, LinkTable, Longs
from controller.network.algorithms.structures import FlowColumns
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.decide import Assignment
from controller.network.paths.deciding.graph import Network, Path, Rows
from controller.network.paths.deciding.located import NO_PARTS, UNKNOWN, FlowNames, LocatedFlows, Parts
from controller.network.paths.deciding.path_book import PathBook
from controller.network.paths.telemetry_load import DEFAULT_PACKET_BYTES, TelemetryLoad
from dataplane.native import pointer_to

_FEW: Final = 64
"""Moved flows that are updated one by one; for more, all paths are laid out again."""
_WORN: Final = 2
"""Paths are compacted when the pool is this many times as large as its contents."""


class FlowTable:
    """Flows by row, in order of name; looks up the rows on given links and between given switches.

    The links of all paths are contiguous in a pool; a changed path is appended. Memory: about 80 bytes a flow on a path
    of three links, names not counted.
    """

    def __init__(self, table: LinkTable, names: Sequence[FlowSpec], source: Ids, pool: Ids, hops: Ids) -> None:
        """Take flows without rates or moves; `pool` has the links of their paths, `hops` how many each (1 or more)."""
        self.table, self.names = table, names
        self.source, self.hops = source, hops
        self.destination = table.head[pool[np.cumsum(hops, dtype=np.int64) - 1]]
        self.rate_bps: Longs = np.full(len(hops), UNKNOWN, np.int64)
        self.packet_bytes: Longs = np.full(len(hops), DEFAULT_PACKET_BYTES, np.int64)
        self.measured_bytes: Longs = np.full(len(hops), UNKNOWN, np.int64)
        self.past_bps: Longs = np.zeros(len(hops), np.int64)
        self._variance: npt.NDArray[np.float64] = np.zeros(len(hops))
        self.since_ns: Longs = np.full(len(hops), UNKNOWN, np.int64)
        self.pinned: Flags = np.zeros(len(hops), np.bool_)
        self.last_move_ns = UNKNOWN
        self._flows: FlowNames | None = None
        self._parts, self._book = NO_PARTS, PathBook(table)
        self.crossing: Longs = np.bincount(pool, minlength=len(table.links))
        self._between = _Groups(self._pairs(self.destination, source), np.arange(len(hops), dtype=np.uint32))
        self._lay_out(pool)

    def _lay_out(self, pool: Ids) -> None:
        """Take the links of all paths, in order of flow, as the whole pool."""
        self.start = _starts(self.hops).astype(np.uint32)
        self._pool, self._used = pool, len(pool)
        self._on_link = _Groups(pool, np.repeat(np.arange(len(self), dtype=np.uint32), self.hops))
        self._moved_onto: dict[int, list[int]] = {}

    @classmethod
    def of(cls, network: Network, current: Mapping[FlowSpec, Assignment]) -> FlowTable:
        """Return the table of flows with their paths, rates and last moves; each path has two switches or more."""
        located = LocatedFlows.of(network.book, current)
        order, rows = located.flows.order, located.book.rows
        paths = located.path[order]
        pool, hops = rows.links(paths)
        names = [located.flows.names[index] for index in order.tolist()]
        flows = cls(network.table, names, rows.first[paths].astype(np.uint32), pool, hops.astype(np.uint32))
        flows._take(located)
        return flows

    def __len__(self) -> int:
        return len(self.hops)

    @property
    def nbytes(self) -> int:
        """The bytes of all columns and indices."""
        columns = (self.source, self.destination, self.start, self.hops, self.rate_bps, self.since_ns, self._pool)
        return sum(column.nbytes for column in columns) + self._on_link.nbytes + self._between.nbytes

    def follow(self, network: Network, current: Mapping[FlowSpec, Assignment]) -> Ids | None:
        """Take the present paths, rates and moves of the same flows; return the rows whose path has changed.

        Return None, and take nothing, if they are not the same flows.
        """
        located = LocatedFlows.of(network.book, current)
        if located.flows is not self._flows and not self._has_same(located.flows):
            return None
        pool, hops = located.book.rows.links(located.path[located.flows.order])
        moved = self._other_links(pool, hops)
        if len(moved) > _FEW:
            self.hops, self.crossing = hops.astype(np.uint32), np.bincount(pool, minlength=len(self.table.links))
            self._lay_out(pool)
        else:
            starts = _starts(hops)
            for row in moved.tolist():
                self.put(row, tuple(pool[starts[row] : starts[row] + hops[row]].tolist()))
        self._take(located)
        return moved

    def _has_same(self, flows: FlowNames) -> bool:
        same = len(flows) == len(self.names)
        return same and all(flows.names[index] == name for index, name in zip(flows.order, self.names, strict=True))

    def _other_links(self, pool: Ids, hops: Longs) -> Ids:
        """Return the rows whose paths differ from those of these links."""
        differ = self.hops != hops
        # Compared link by link for paths of the same length; for others the values do not matter.
        links = self._in_order() if not differ.any() else self._links_of_lengths(hops)
        other = np.repeat(np.arange(len(hops)), hops)[links != pool]
        differ[other] = True
        return np.flatnonzero(differ).astype(np.uint32)

    def _links_of_lengths(self, hops: Longs) -> Ids:
        """Return the links of all paths, in order of flow, each cut or extended to a given length."""
        ahead = np.repeat(self.start - _starts(hops), hops)
        places = np.minimum(ahead + np.arange(len(ahead)), len(self._pool) - 1)
        links: Ids = self._pool[places]
        return links

    def rows(self, flow: int) -> Rows:
        """Return the rows of the links that a flow is on."""
        start = self.start[flow]
        return tuple(self._pool[start : start + self.hops[flow]].tolist())

    def path(self, flow: int) -> Path:
        """Return the switches that a flow crosses."""
        return self.table.path(int(self.source[flow]), self.rows(flow))

    def assignment(self, flow: int) -> Assignment:
        """Return a flow's path and the known figures of its packets."""
        measured = int(self.measured_bytes[flow])
        nbytes = None if measured == UNKNOWN else measured
        return Assignment(self.path(flow), packet_bytes=int(self.packet_bytes[flow]), measured_bytes=nbytes)

    def put(self, flow: int, links: Rows, since_ns: int = UNKNOWN) -> None:
        """Put a flow on another path between the same switches, at some time."""
        self.since_ns[flow] = since_ns
        self.last_move_ns = max(self.last_move_ns, since_ns)
        self.crossing[list(self.rows(flow))] -= 1
        self.crossing[list(links)] += 1
        if self._used + len(links) > len(self._pool):
            self._make_room(len(links))
        self._pool[self._used : self._used + len(links)] = links
        self.start[flow], self.hops[flow] = self._used, len(links)
        self._used += len(links)
        for link in links:
            self._moved_onto.setdefault(link, []).append(flow)

    def _make_room(self, links: int) -> None:
        if self._used > _WORN * int(self.hops.sum()):
            self._lay_out(self._in_order())
        self._pool = np.concatenate([self._pool, np.zeros(len(self._pool) + links, np.uint32)])

    def _in_order(self) -> Ids:
        """Return the links of all paths, in order of flow."""
        ahead = np.repeat(self.start - _starts(self.hops), self.hops)
        links: Ids = self._pool[ahead + np.arange(len(ahead))]
        return links

    def least(self, column: Longs) -> Longs:
        """Return, for each flow, the minimum of a link table's column on its path."""
        if not len(self):
            return np.zeros(0, np.int64)
        return np.minimum.reduceat(column[self._in_order()], _starts(self.hops))

    def on_links(self, links: Ids) -> Ids:
        """Return the rows of all flows on some links, and maybe of some that have left them; some twice."""
        moved = [flow for link in links.tolist() for flow in self._moved_onto.get(link, ())]
        return np.concatenate([self._on_link.members(links), np.array(moved, np.uint32)])

    def between(self, destinations: Ids, sources: Ids) -> Ids:
        """Return the rows of the flows between pairs of switches."""
        return self._between.members(self._pairs(destinations, sources))

    def offered_bps(self, watch: TelemetryLoad | None) -> Longs:
        """Return the load of flows of known rate on each link, including telemetry in their packets."""
        rates = (np.maximum(self.rate_bps, 0) - self.past_bps).astype(np.float64)
        loads = np.repeat(rates, self.hops)
        if watch is not None:
            bits_per_s = np.repeat(rates / np.maximum(self.packet_bytes, 1), self.hops)
            hop = np.arange(len(loads)) - np.repeat(_starts(self.hops), self.hops)
            first = watch.carried_bytes(1)
            loads += bits_per_s * (first + hop * (watch.carried_bytes(2) - first))
        offered: Longs = self._summed(loads, self._parts.rate_bps).astype(np.int64)
        return offered

    def uncertain_bps(self) -> Longs:
        """Return one standard deviation of the flows' load on each link: a rate from few packets is uncertain."""
        if not self._variance.any():
            return np.zeros(len(self.table.links), np.int64)
        summed = self._summed(np.repeat(self._variance, self.hops), self._parts.variance)
        # Repeatedly adding and subtracting floats may end just below 0.
        uncertain: Longs = np.sqrt(np.maximum(summed, 0.0)).astype(np.int64)
        return uncertain

    def _summed(self, loads: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Sum values by flow and hop per link, by the weights of parts where flows have several paths."""
        summed = np.bincount(self._in_order(), weights=loads, minlength=len(self.table.links)).astype(np.float64)
        parts = self._parts
        if not len(parts.flow):
            return summed
        starts = _starts(self.hops)
        spread = np.unique(parts.flow)
        positions = np.searchsorted(spread, parts.flow)
        whole = np.bincount(positions, weights)[positions]
        some = whole != 0
        rows, hops = self._book.rows.links(parts.path[some])
        share, flow = np.repeat(weights[some] / whole[some], hops), np.repeat(parts.flow[some], hops)
        # Equally good paths have as many links; where one has more, the last figure covers the rest.
        hop = np.minimum(np.arange(len(rows)) - np.repeat(_starts(hops), hops), self.hops[flow].astype(np.int64) - 1)
        own = np.repeat(starts[spread], self.hops[spread]) + _counting(self.hops[spread])
        links = np.concatenate((self._in_order()[own], rows))
        amounts = np.concatenate((-loads[own], share * loads[starts[flow] + hop]))
        # Flow after flow, off its path and onto those of its parts: sums of floats depend on the order.
        order = np.argsort(np.concatenate((np.repeat(spread, self.hops[spread]), flow)), kind="stable")
        np.add.at(summed, links[order], amounts[order])
        return summed

    def columns(self) -> FlowColumns:
        """Return the columns as kernels see them; valid until a flow is put on another path."""
        return FlowColumns(
            source=pointer_to(self.source),
            destination=pointer_to(self.destination),
            start=pointer_to(self.start),
            hops=pointer_to(self.hops),
            pool=pointer_to(self._pool),
            rate=pointer_to(self.rate_bps),
        )

    def _pairs(self, destinations: Ids, sources: Ids) -> npt.NDArray[np.uint64]:
        return destinations.astype(np.uint64) * np.uint64(len(self.table.switches)) + sources.astype(np.uint64)

    def _take(self, located: LocatedFlows) -> None:
        """Take rates, moves and parts of the flows, which are the same."""
        order = located.flows.order
        self._flows = located.flows
        self.since_ns[:] = located.since_ns[order]
        self.last_move_ns = int(self.since_ns.max(initial=UNKNOWN))
        self.pinned[:] = located.pinned[order]
        self.rate_bps[:], self.measured_bytes[:] = located.rate_bps[order], located.measured_bytes[order]
        packet_bytes = located.packet_bytes[order]
        self.packet_bytes[:] = np.where(packet_bytes > 0, packet_bytes, DEFAULT_PACKET_BYTES)
        self.past_bps[:] = located.past_bps[order]
        self._variance[:] = self._variances(located.uncertain_bps[order])
        self._book, self._parts = located.book, _in_rows(located.parts, order)

    def _variances(self, uncertain_bps: Longs) -> npt.NDArray[np.float64]:
        """Return the variances of rates: 0 for known ones, else those of random packets."""
        estimated = (self.measured_bytes != UNKNOWN) & (self.rate_bps != UNKNOWN)
        by_chance = np.where(estimated, rate_variances(self.rate_bps, self.measured_bytes, self.packet_bytes), 0.0)
        return np.where(uncertain_bps == UNKNOWN, by_chance, uncertain_bps.astype(np.float64) ** 2)


def _in_rows(parts: Parts, order: Longs) -> Parts:
    """Return parts by flows' rows, given the order of the flows."""
    row: Longs = np.zeros(len(order), np.int64)
    row[order] = np.arange(len(order))
    flow = row[parts.flow]
    by_row = np.argsort(flow, kind="stable")
    return Parts(flow[by_row], parts.path[by_row], parts.rate_bps[by_row], parts.variance[by_row])


def rate_variance(rate_bps: int, measured_bytes: int, packet_bytes: int = DEFAULT_PACKET_BYTES) -> float:
    """Return the variance of a rate estimated from this many bytes of random packets."""
    return float(rate_bps) * rate_bps / max(measured_bytes / packet_bytes, 1.0)


def rate_variances(
    rate_bps: Longs, measured_bytes: Longs, packet_bytes: Longs | int = DEFAULT_PACKET_BYTES
) -> npt.NDArray[np.float64]:
    """Return `rate_variance` of many rates."""
    rates = rate_bps.astype(np.float64)
    variances: npt.NDArray[np.float64] = rates * rates / np.maximum(measured_bytes / packet_bytes, 1.0)
    return variances


class _Groups:
    """Index of rows by key, which looks up many keys at once."""

    def __init__(self, keys: npt.NDArray[np.unsignedinteger], rows: Ids) -> None:
        order = np.argsort(keys, kind="stable")
        self._keys, self._rows = keys[order], rows[order]

    @property
    def nbytes(self) -> int:
        """The bytes of the index."""
        return self._keys.nbytes + self._rows.nbytes

    def members(self, keys: npt.NDArray[np.unsignedinteger]) -> Ids:
        """Return the rows of all these keys."""
        wanted = keys.astype(self._keys.dtype)
        first = np.searchsorted(self._keys, wanted, "left")
        count = np.searchsorted(self._keys, wanted, "right") - first
        rows: Ids = self._rows[np.repeat(first - _starts(count), count) + np.arange(count.sum())]
        return rows


def _counting(counts: npt.NDArray[np.integer]) -> Longs:
    """Return the numbers from 0 up to each count, group after group."""
    return np.arange(int(counts.sum())) - np.repeat(_starts(counts), counts)


def _starts(counts: npt.NDArray[np.integer]) -> Longs:
    """Return where each of a row of groups begins."""
    return np.cumsum(counts, dtype=np.int64) - counts
