"""Queues watched for congestion, and their thresholds: `queue_watch` (p4/egress/queue_watch.p4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from finsy import P4TableAction, P4TableEntry, P4TableMatch

from controller.common.errors import ControllerError
from controller.network.tables.entities import Entity
from dataplane.config import Settings
from dataplane.topology.values import Topology

Frames = Annotated[int, msgspec.Meta(ge=1, le=0xFFFFFF)]
LatencyNs = Annotated[int, msgspec.Meta(ge=1, le=0xFFFFFFFE)]


class QueueWatch(Settings, frozen=True):
    """One rule: packets that meet congestion at these queues are reported. An omitted threshold does not apply."""

    switch: str | None = None
    """Name of the switch; left out, all."""
    port: Annotated[int, msgspec.Meta(ge=1, le=511)] | None = None
    """Egress port; left out, all that have a cable."""
    queue: Annotated[int, msgspec.Meta(ge=0, le=7)] = 0
    """The port's queue, by priority."""
    occupancy_frames: Frames | None = None
    """Frames found waiting from which on the queue is congested."""
    clear_occupancy_frames: Frames | None = None
    """Occupancy below which the congestion is over; default: half of the threshold."""
    latency_ns: LatencyNs | None = None
    """Time in the switch from which on the queue is congested."""
    clear_latency_ns: LatencyNs | None = None
    """Latency below which the congestion is over; default: half of the threshold."""
    quota: Annotated[int, msgspec.Meta(ge=1, le=0xFFFF)] = 100
    """Reports of one episode of congestion at one queue; the packets beyond are counted."""


def queue_watch_entities(topology: Topology, switch: str, watches: Sequence[QueueWatch]) -> Iterator[Entity]:
    """Yield a switch's watched queues; of several rules for a queue the first counts.

    Raise ControllerError for a rule without a threshold, with a lower threshold above it, or for an unknown place.
    """
    queues: set[tuple[int, int]] = set()
    for watch in watches:
        arguments = _thresholds(topology, watch)
        if watch.switch not in (None, switch):
            continue
        for port in sorted(topology.neighbours[switch]):
            if watch.port not in (None, port) or (port, watch.queue) in queues:
                continue
            queues.add((port, watch.queue))
            match = P4TableMatch(egress_port=port, queue_id=watch.queue)
            yield P4TableEntry("queue_watch", match=match, action=P4TableAction("watch_queue", **arguments))


def _thresholds(topology: Topology, watch: QueueWatch) -> dict[str, int]:
    """Return the action's arguments, 0 for an omitted threshold."""
    if watch.switch is not None and watch.switch not in topology.switch:
        raise ControllerError(f"queue watches: there is no switch {watch.switch!r} in topology {topology.name}")
    if watch.switch is not None and watch.port is not None and watch.port not in topology.neighbours[watch.switch]:
        raise ControllerError(f"queue watches: switch {watch.switch} has no cable at port {watch.port}")
    if watch.occupancy_frames is None and watch.latency_ns is None:
        raise ControllerError("queue watches: a rule needs occupancy_frames, latency or both")
    occupancy, clear_occupancy = _pair("occupancy_frames", watch.occupancy_frames, watch.clear_occupancy_frames)
    latency_ns, clear_latency_ns = _pair("latency", watch.latency_ns, watch.clear_latency_ns, " ns")
    return {
        "occupancy": occupancy,
        "latency_ns": latency_ns,
        "clear_occupancy": clear_occupancy,
        "clear_latency_ns": clear_latency_ns,
        "quota": watch.quota,
    }


def _pair(name: str, threshold: int | None, clear: int | None, unit: str = "") -> tuple[int, int]:
    if threshold is None:
        if clear is not None:
            raise ControllerError(f"queue watches: clear_{name} without {name}")
        return 0, 0
    if clear is None:
        # Hysteresis: without it, a queue near the threshold would report again and again.
        return threshold, max(1, threshold // 2)
    if clear > threshold:
        raise ControllerError(f"queue watches: clear_{name} {clear}{unit} is above {name} {threshold}{unit}")
    return threshold, clear
