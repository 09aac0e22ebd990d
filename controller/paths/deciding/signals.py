"""What in the streams of hop records and drops says that the network has changed, so that a decision need not wait.

A frame that met a queue, a report of a congested queue, or of a frame that a full queue refused, wakes the decider, and
so do flows that outgrow a link; how often is limited, and less often while rounds that were woken find nothing to move.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from collectors.values import DropRecord, HopRecord, RecordKind
from dataplane.topology.values import Topology
from dataplane.wire.drop_reasons import DropReason

LEAST_GAP_NS: Final = 20_000_000
"""Between two rounds that were woken, where the last one moved something."""


class Signals:
    """Hears records and says when a round is due; times are the caller's, in ns."""

    def __init__(self, topology: Topology, *, queue_frames: float, interval_ns: int) -> None:
        self._inner = {
            (node.node_id, port)
            for node in topology.switches
            for port, peer in topology.neighbours[node.name].items()
            if peer.node in topology.switch
        }
        self._queue_frames, self._interval_ns = queue_frames, interval_ns
        self._gap_ns = LEAST_GAP_NS
        self._last_ns: int | None = None
        self.woken = 0

    def observe(self, records: Iterable[HopRecord], now_ns: int) -> bool:
        """Return whether a round should be made now because of these records; it is taken to be made."""
        return not self._is_too_soon(now_ns) and any(map(self._met_a_queue, records)) and self._wake(now_ns)

    def observe_drops(self, drops: Iterable[DropRecord], now_ns: int) -> bool:
        """Return whether a round should be made now because of what was dropped; it is taken to be made."""
        return not self._is_too_soon(now_ns) and any(map(self._found_no_room, drops)) and self._wake(now_ns)

    def observe_growth(self, outgrown: bool, now_ns: int) -> bool:
        """Return whether a round should be made now as flows outgrow a link; it is taken to be made."""
        return outgrown and not self._is_too_soon(now_ns) and self._wake(now_ns)

    def _is_too_soon(self, now_ns: int) -> bool:
        return self._last_ns is not None and 0 <= now_ns - self._last_ns < self._gap_ns

    def _wake(self, now_ns: int) -> bool:
        self._last_ns = now_ns
        self._gap_ns = min(2 * self._gap_ns, max(self._interval_ns, LEAST_GAP_NS))
        self.woken += 1
        return True

    def decided(self, *, moved: bool) -> None:
        """Take note of a round, woken or not: one that moved something is looked after closely."""
        if moved:
            self._gap_ns = LEAST_GAP_NS

    def _met_a_queue(self, record: HopRecord) -> bool:
        if (record.node_id, record.egress_port) not in self._inner:
            return False
        occupancy = record.queue_occupancy_frames
        return record.kind is RecordKind.QUEUE or (occupancy is not None and occupancy >= self._queue_frames)

    def _found_no_room(self, drop: DropRecord) -> bool:
        return drop.reason == DropReason.QUEUE_FULL and (drop.node_id, drop.egress_port) in self._inner
