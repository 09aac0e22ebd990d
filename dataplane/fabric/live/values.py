"""What a fabric that stays up counts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import msgspec

from dataplane.errors import FabricError
from dataplane.malformed import MALFORMED


@dataclass(slots=True)
class PaceCounters:
    """How well virtual time keeps up: events done more than 20 ms after their time, and time that was given up."""

    events: int = 0
    late_events: int = 0
    worst_late_ns: int = 0
    slipped_ns: int = 0


@dataclass(slots=True)
class ReportCounters:
    """Reports that arrived at the collector's host: handed on, or lost where nobody listened or all was full."""

    forwarded: int = 0
    refused: int = 0
    ignored: int = 0
    """Other frames and datagrams."""
    forged: int = 0
    """Reports that did not come from the switch that they name."""


@dataclass(slots=True)
class TrafficCounters:
    """Packets that hosts sent, that found their uplink full, that were left out because the fabric was behind."""

    sent: int = 0
    refused: int = 0
    skipped: int = 0
    received: int = 0


@dataclass(slots=True)
class FabricCounters:
    """Everything that a fabric counts, written every second."""

    pid: int
    time_ns: int
    """The machine's monotonic clock."""
    switches: int
    restarts: int = 0
    """Switches that ended by themselves and were started again."""
    pace: PaceCounters = field(default_factory=PaceCounters)
    reports: ReportCounters = field(default_factory=ReportCounters)
    traffic: TrafficCounters = field(default_factory=TrafficCounters)

    def encode(self) -> bytes:
        """Return them as JSON."""
        return msgspec.json.encode(asdict(self))

    @staticmethod
    def decode(data: bytes) -> FabricCounters:
        """Read them back; raise FabricError for what is none of it."""
        try:
            return msgspec.json.decode(data, type=FabricCounters)
        except MALFORMED as error:
            raise FabricError(f"these are no counters of a fabric: {error}") from error
