"""Counters of a long-running fabric."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import msgspec

from dataplane.errors import FabricError
from dataplane.malformed import MALFORMED


@dataclass(slots=True)
class PaceCounters:
    """Lag of virtual time: events run more than 20 ms late, and time given up."""

    events: int = 0
    late_events: int = 0
    worst_late_ns: int = 0
    slipped_ns: int = 0
    recent_events: int = 0
    recent_late_events: int = 0
    """The same in the last ten seconds."""


@dataclass(slots=True)
class ReportCounters:
    """Reports that arrived at the collector's host: relayed, or lost because nothing listened or a buffer was full."""

    forwarded: int = 0
    refused: int = 0
    ignored: int = 0
    """Other frames and datagrams."""
    forged: int = 0
    """Reports that did not come from the switch they name."""


@dataclass(slots=True)
class TrafficCounters:
    """Packets that hosts sent, that found the uplink full, or that were skipped because the fabric was behind."""

    sent: int = 0
    refused: int = 0
    skipped: int = 0
    received: int = 0


@dataclass(slots=True)
class FabricCounters:
    """All counters of a fabric, written every second."""

    pid: int
    time_ns: int
    """Time on the machine's monotonic clock."""
    switches: int
    restarts: int = 0
    """Restarts of switches that ended unexpectedly."""
    pace: PaceCounters = field(default_factory=PaceCounters)
    reports: ReportCounters = field(default_factory=ReportCounters)
    traffic: TrafficCounters = field(default_factory=TrafficCounters)

    def encode(self) -> bytes:
        """Encode the counters as JSON."""
        return msgspec.json.encode(asdict(self))

    @staticmethod
    def decode(data: bytes) -> FabricCounters:
        """Decode the counters; raise FabricError for invalid data."""
        try:
            return msgspec.json.decode(data, type=FabricCounters)
        except MALFORMED as error:
            raise FabricError(f"not the counters of a fabric: {error}") from error
