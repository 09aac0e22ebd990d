"""The clocks of a fabric's switches: differences of stamps in, corrections of links and states of clocks out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collectors.clocks.cable import Cable, Offset
from collectors.clocks.network import Edge, NodeReading, solve
from collectors.clocks.values import LinkCorrection, StampDifference
from collectors.settings import ClockSettings
from collectors.values import ClockState
from dataplane.fabric.topology import LinkKey, Topology

_SECOND = 1_000_000_000

_CABLE_NS = 500_000
"""Estimates are no closer than this for each cable: they take some tenth of it, so that large fabrics cost no more."""


class ClockEstimator:
    """Memory is bounded by the topology. Clocks are only read against each other: no offset to true time is known.

    Where the topology says that clocks are synchronised, nothing is estimated.
    """

    def __init__(self, topology: Topology, settings: ClockSettings | None = None) -> None:
        self._settings = settings or ClockSettings()
        self._ids = {node.name: node.node_id for node in topology.switches}
        self._cables: dict[LinkKey, tuple[LinkKey, Edge, Cable]] = {}
        for link in () if topology.synchronised_clocks else topology.links:
            if link.a.node in self._ids and link.b.node in self._ids:
                there, back = LinkKey(link.a.node, link.b.node), LinkKey(link.b.node, link.a.node)
                ends = self._ids[there.src], self._ids[there.dst]
                self._cables[there] = back, ends, Cable(link.delay_ns, self._settings)
        self._interval_ns = max(self._settings.interval_ns, _CABLE_NS * len(self._cables))
        self._newest: dict[LinkKey, StampDifference] = {}
        self._offsets: dict[Edge, Offset] = {}
        self._readings: dict[int, NodeReading] = {}
        self._corrections: dict[LinkKey, LinkCorrection] = {}
        self._next_ns = 0

    @property
    def corrections(self) -> Mapping[LinkKey, LinkCorrection]:
        """The corrections as of the last update: of links whose clocks are tied together well enough."""
        return self._corrections

    @property
    def implausible(self) -> int:
        """Observations so far that no two clocks explain."""
        return sum(cable.implausible for _, _, cable in self._cables.values())

    def is_due(self, now_ns: int) -> bool:
        """Return whether an interval has passed since the last update."""
        return now_ns >= self._next_ns

    def update(self, now_ns: int, differences: Iterable[StampDifference]) -> Mapping[LinkKey, LinkCorrection]:
        """Take the least difference of each directed link since the last update; return the corrections from now on."""
        self._next_ns = now_ns + self._interval_ns
        fresh = {difference.link: difference for difference in differences}
        self._newest |= fresh
        self._offsets = {}
        for there, (back, ends, cable) in self._cables.items():
            forward, backward = fresh.get(there), fresh.get(back)
            if forward is not None or backward is not None:
                cable.observe(forward, backward)
            offset = cable.offset(now_ns)
            if offset is not None:
                self._offsets[ends] = offset
        self._readings = solve(self._offsets)
        self._corrections = dict(self._corrected(now_ns))
        return self._corrections

    def states(self) -> dict[int, ClockState]:
        """Return every clock that is tied to another, as of the last update."""
        return {
            node_id: ClockState(
                node_id, reading.group, reading.offset_ns, round(reading.drift_ppb), round(reading.uncertainty_ns)
            )
            for node_id, reading in self._readings.items()
        }

    def uncertainty_ns(self, link: LinkKey) -> int | None:
        """Return by how much a link's corrected delays may be wrong; None for a link that is not corrected."""
        correction = self._corrections.get(link)
        return None if correction is None else correction.uncertainty_ns

    def _corrected(self, now_ns: int) -> Iterable[tuple[LinkKey, LinkCorrection]]:
        for key, newest in self._newest.items():
            tail = self._readings.get(self._ids.get(key.src, -1))
            head = self._readings.get(self._ids.get(key.dst, -1))
            if tail is None or head is None or tail.group != head.group:
                continue
            uncertainty_ns = round(self._uncertainty(key, tail, head))
            if uncertainty_ns > self._settings.largest_uncertainty_ns:
                continue
            drift = head.drift_ppb - tail.drift_ppb
            # At the time of the newest packet, whose stamp by the tail's clock is known.
            then_ns = head.offset_ns - tail.offset_ns - round(drift * (now_ns - newest.received_ns) / _SECOND)
            yield key, LinkCorrection(newest.tail_stamp_ns, -then_ns, -round(drift), uncertainty_ns)

    def _uncertainty(self, key: LinkKey, tail: NodeReading, head: NodeReading) -> float:
        """Return the bound of a link's own observations, or that of the way between its ends where it has none."""
        around = tail.uncertainty_ns + head.uncertainty_ns
        offset_ns = head.offset_ns - tail.offset_ns
        ids = self._ids[key.src], self._ids[key.dst]
        own = self._offsets.get(ids)
        if own is not None:
            return min(own.uncertainty_ns + abs(own.offset_ns - offset_ns), around)
        own = self._offsets.get((ids[1], ids[0]))
        if own is not None:
            return min(own.uncertainty_ns + abs(own.offset_ns + offset_ns), around)
        return around
