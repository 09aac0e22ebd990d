"""The flows that a decider looks after, as columns, with the paths that they are on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.algorithms.link_table import Flags, Ids, LinkTable, Longs
from controller.algorithms.structures import FlowColumns
from controller.intents import FlowSpec
from controller.paths.deciding.decide import Assignment, Part, flow_order
from controller.paths.deciding.graph import Network, Path, Rows
from controller.paths.telemetry_load import DEFAULT_PACKET_BYTES, TelemetryLoad
from dataplane.native import pointer_to

UNKNOWN: Final = -1
"""Stands for a rate that nobody knows and for the time of a move that never was."""

_WORN: Final = 2
"""Paths are put in order again when the pool is this many times as large as what stands in it."""


class FlowTable:
    """Flows by row, in order of name; knows which rows are on given links and between given switches.

    The links of all paths stand one after the other in a pool; a changed path goes to its end. Memory: about 80 bytes a
    flow on a path of three links, names not counted.
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
        self._parts: dict[int, tuple[tuple[Rows, Part], ...]] = {}
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
        names = sorted(current, key=flow_order)
        rows = [network.rows(current[name].path) for name in names]
        hops = np.array([len(path) for path in rows], np.uint32)
        pool = np.array([link for path in rows for link in path], np.uint32)
        source = network.table.tail[[path[0] for path in rows]] if rows else np.zeros(0, np.uint32)
        flows = cls(network.table, names, source, pool, hops)
        flows._note(current)
        flows._take_parts(network, current)
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

        None, and nothing is taken, if they are not the same flows.
        """
        if len(current) != len(self.names) or any(name not in current for name in self.names):
            return None
        moved = [row for row, name in enumerate(self.names) if network.rows(current[name].path) != self.rows(row)]
        for row in moved:
            self.put(row, network.rows(current[self.names[row]].path))
        self._note(current)
        self._take_parts(network, current)
        return np.array(moved, np.uint32)

    def rows(self, flow: int) -> Rows:
        """Return the rows of the links that a flow is on."""
        start = self.start[flow]
        return tuple(self._pool[start : start + self.hops[flow]].tolist())

    def path(self, flow: int) -> Path:
        """Return the switches that a flow crosses."""
        return self.table.path(int(self.source[flow]), self.rows(flow))

    def assignment(self, flow: int) -> Assignment:
        """Return a flow's path and what is known of its packets."""
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
        """Return, for each flow, the least that a column of the link table has on its path."""
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
        """Return what flows of known rate send over each link, with what telemetry adds to their packets."""
        rates = (np.maximum(self.rate_bps, 0) - self.past_bps).astype(np.float64)
        loads = np.repeat(rates, self.hops)
        if watch is not None:
            bits_per_s = np.repeat(rates / np.maximum(self.packet_bytes, 1), self.hops)
            hop = np.arange(len(loads)) - np.repeat(_starts(self.hops), self.hops)
            first = watch.carried_bytes(1)
            loads += bits_per_s * (first + hop * (watch.carried_bytes(2) - first))
        found: Longs = self._summed(loads, attrgetter("rate_bps")).astype(np.int64)
        return found

    def uncertain_bps(self) -> Longs:
        """Return one standard deviation of what flows send over each link: of few packets a rate is uncertain."""
        if not self._variance.any():
            return np.zeros(len(self.table.links), np.int64)
        summed = self._summed(np.repeat(self._variance, self.hops), attrgetter("variance"))
        found: Longs = np.sqrt(np.maximum(summed, 0.0)).astype(np.int64)
        return found

    def _summed(self, loads: npt.NDArray[np.float64], of: Callable[[Part], float]) -> npt.NDArray[np.float64]:
        """Add up by link what is there by flow and hop, `of` each part of flows with several paths where that is."""
        summed = np.bincount(self._in_order(), weights=loads, minlength=len(self.table.links)).astype(np.float64)
        starts = _starts(self.hops if self._parts else self.hops[:0])
        for flow, parts in self._parts.items():
            own = loads[starts[flow] : starts[flow] + self.hops[flow]]
            summed[list(self.rows(flow))] -= own
            whole = sum(of(part) for _, part in parts)
            for rows, part in parts if whole else ():
                # Equally good paths have as many links; where one has more, the last figure stands for the rest.
                each = own[np.minimum(np.arange(len(rows)), len(own) - 1)]
                summed[list(rows)] += of(part) / whole * each
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

    def _take_parts(self, network: Network, current: Mapping[FlowSpec, Assignment]) -> None:
        self._parts = {
            row: tuple((network.rows(part.path), part) for part in parts)
            for row, parts in enumerate(current[name].parts for name in self.names)
            if parts
        }

    def _note(self, current: Mapping[FlowSpec, Assignment]) -> None:
        ordered = [current[name] for name in self.names]
        self.since_ns[:] = [UNKNOWN if found.since_ns is None else found.since_ns for found in ordered]
        self.last_move_ns = int(self.since_ns.max(initial=UNKNOWN))
        self.pinned[:] = [found.pinned for found in ordered]
        self.rate_bps[:] = [UNKNOWN if found.rate_bps is None else found.rate_bps for found in ordered]
        measured = (found.measured_bytes for found in ordered)
        self.measured_bytes[:] = [UNKNOWN if nbytes is None else nbytes for nbytes in measured]
        self.packet_bytes[:] = [found.packet_bytes or DEFAULT_PACKET_BYTES for found in ordered]
        self.past_bps[:] = [found.past_bps for found in ordered]
        self._variance[:] = [_variance(found) for found in ordered]


def _variance(found: Assignment) -> float:
    """Return the variance of a flow's rate: 0 for one that is known, else as of packets that come by chance."""
    if found.uncertain_bps is not None:
        return float(found.uncertain_bps) ** 2
    if found.measured_bytes is None or found.rate_bps is None:
        return 0.0
    return rate_variance(found.rate_bps, found.measured_bytes, found.packet_bytes or DEFAULT_PACKET_BYTES)


def rate_variance(rate_bps: int, measured_bytes: int, packet_bytes: int = DEFAULT_PACKET_BYTES) -> float:
    """Return the variance of a rate that was estimated from so many bytes of packets that come by chance."""
    return float(rate_bps) ** 2 / max(measured_bytes / packet_bytes, 1.0)


class _Groups:
    """Rows by key: those of many keys are found together."""

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


def _starts(counts: npt.NDArray[np.integer]) -> Longs:
    """Return where each of a row of groups begins."""
    return np.cumsum(counts, dtype=np.int64) - counts
