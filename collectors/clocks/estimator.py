"""The clocks of a fabric's switches: differences of stamps in, corrections of links and states of clocks out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from collectors.clocks.cables import Cables, Offsets
from collectors.clocks.network import solve
from collectors.clocks.values import NO_GROUP, CorrectionColumns, Corrections, Edges, FlightColumns, Readings
from collectors.settings import ClockSettings
from collectors.statistics.columns import UNKNOWN, Integers, Numbers
from collectors.values import ClockState
from dataplane.clock import NS_PER_S
from dataplane.topology.values import LinkKey, Topology

_CABLE_NS: Final = 50_000
"""Least interval of estimates per cable: they take about a tenth of it, so that large fabrics cost no more."""


class ClockEstimator:
    """Memory is bounded by the topology. Clocks are only read against each other: no offset to true time is known.

    Where the topology says that clocks are synchronised, nothing is estimated. Links are numbered in the
    topology's order, nodes in the order of their ids.
    """

    def __init__(self, topology: Topology, settings: ClockSettings | None = None) -> None:
        self._settings = settings or ClockSettings()
        self._places = {key: index for index, key in enumerate(topology.directed_links)}
        self._ids = sorted(node.node_id for node in topology.switches)
        ends, cables = self._wiring(topology)
        self._tails, self._heads = np.array(ends, np.intp).reshape(-1, 2).T
        self._there, self._back, delays = np.array(cables, np.int64).reshape(-1, 3).T
        self._cables = Cables(self._there, self._back, delays, self._settings)
        self._interval_ns = max(self._settings.interval_ns, _CABLE_NS * len(cables))
        self._newest = FlightColumns.none(len(self._places))
        self._readings: Readings | None = None
        self._states: dict[int, ClockState] | None = {}
        self._corrections = Corrections(self._places, CorrectionColumns.none(len(self._places)))
        self._next_ns = 0

    def _wiring(self, topology: Topology) -> tuple[list[tuple[int, int]], list[tuple[int, int, int]]]:
        """Return both nodes of each directed link (-1: a host), and each cable's two links and delay."""
        number = {node_id: node for node, node_id in enumerate(self._ids)}
        node = {switch.name: number[switch.node_id] for switch in topology.switches}
        ends = [(node.get(key.src, -1), node.get(key.dst, -1)) for key in self._places]
        cables = [
            (index, self._places[LinkKey(key.dst, key.src)], topology.directed_links[key].delay_ns)
            for key, index in self._places.items()
            if min(ends[index]) >= 0 and index < self._places[LinkKey(key.dst, key.src)]
        ]
        return ends, [] if topology.synchronised_clocks else cables

    @property
    def corrections(self) -> Corrections:
        """The corrections as of the last update, for links whose clocks are tied together well enough."""
        return self._corrections

    @property
    def implausible(self) -> int:
        """Observations so far that no two clocks explain."""
        return self._cables.implausible

    def is_due(self, now_ns: int) -> bool:
        """Return whether an interval has passed since the last update."""
        return now_ns >= self._next_ns

    def update(self, now_ns: int, seen: FlightColumns) -> Corrections:
        """Take the least difference of each directed link since the last update; return the corrections from now on."""
        self._next_ns = now_ns + self._interval_ns
        if not len(self._there):
            return self._corrections
        self._newest = seen.over(self._newest)
        self._cables.observe(seen)
        offsets = self._cables.offsets(now_ns)
        tails, heads = (nodes[self._there[offsets.places]] for nodes in (self._tails, self._heads))
        edges = Edges(tails, heads, offsets.offset_ns, offsets.drift_ppb, offsets.uncertainty_ns)
        readings = solve(edges, len(self._ids))
        self._readings, self._states = readings, None
        self._corrections = Corrections(self._places, self._corrected(now_ns, readings, offsets))
        return self._corrections

    def states(self) -> Mapping[int, ClockState]:
        """Return every clock that is tied to another, as of the last update."""
        if self._states is None and self._readings is not None:
            self._states = self._states_of(self._readings)
        return self._states or {}

    def uncertainty_ns(self, link: LinkKey) -> int | None:
        """Return the largest error of a link's corrected delays; None for a link without correction."""
        correction = self._corrections.get(link)
        return None if correction is None else correction.uncertainty_ns

    def _states_of(self, readings: Readings) -> dict[int, ClockState]:
        (tied,) = np.nonzero(readings.group != NO_GROUP)
        groups = [self._ids[node] for node in readings.group[tied].tolist()]
        numbers = (readings.offset_ns, np.rint(readings.drift_ppb), np.rint(readings.uncertainty_ns))
        columns = (column[tied].astype(np.int64).tolist() for column in numbers)
        ids = [self._ids[node] for node in tied.tolist()]
        return {state.node_id: state for state in map(ClockState, ids, groups, *columns)}

    def _corrected(self, now_ns: int, readings: Readings, offsets: Offsets) -> CorrectionColumns:
        tails, heads = self._tails, self._heads
        tied = (tails >= 0) & (heads >= 0) & (readings.group[tails] != NO_GROUP)
        tied &= (self._newest.samples > 0) & (readings.group[tails] == readings.group[heads])
        apart_ns = readings.offset_ns[heads] - readings.offset_ns[tails]
        uncertainty_ns = self._uncertainty(readings, offsets, apart_ns)
        tied &= uncertainty_ns <= self._settings.largest_uncertainty_ns
        drift = readings.drift_ppb[heads] - readings.drift_ppb[tails]
        # At the time of the newest packet, whose stamp by the tail's clock is known.
        since_ns = now_ns - self._newest.received_ns
        then_ns = apart_ns - np.where(tied, np.rint(drift * since_ns / NS_PER_S), 0).astype(np.int64)
        return CorrectionColumns(
            self._newest.tail_stamp_ns,
            -then_ns,
            -np.rint(drift).astype(np.int64),
            np.where(tied, uncertainty_ns, UNKNOWN).astype(np.int64),
        )

    def _uncertainty(self, readings: Readings, offsets: Offsets, apart_ns: Integers) -> Numbers:
        """Return the bound of a link's own observations, or that of the path between its ends where it has none."""
        around = readings.uncertainty_ns[self._tails] + readings.uncertainty_ns[self._heads]
        own = np.full(len(around), np.inf)
        for places, sign in ((self._there[offsets.places], 1), (self._back[offsets.places], -1)):
            own[places] = offsets.uncertainty_ns + np.abs(sign * offsets.offset_ns - apart_ns[places])
        nearer: Numbers = np.rint(np.minimum(own, around))
        return nearer
