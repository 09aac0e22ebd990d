"""Counts and samples of a connection, for tables and plots."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final

LOGGER: Final = logging.getLogger("millrace.fabric")
MOST_SAMPLES: Final = 1 << 18
"""Maximum number of samples kept; a warning says when later ones are left out."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Snapshot of a sender: its windows (bytes), data in flight, round trip, and totals so far.

    `threshold_bytes` is None before the first loss, `rtt_ns` before the first sample. `delivered_bytes` have reached
    the other end.
    """

    time_ns: int
    window_bytes: int
    threshold_bytes: int | None
    under_way_bytes: int
    rtt_ns: int | None
    delivered_bytes: int
    retransmissions: int


@dataclass(slots=True)
class TcpStatistics:
    """Counts of one end since the connection's start.

    `recoveries` are losses noticed by acknowledgments, `timeouts` those by silence, `marks` reductions because of ECN.
    `probes` are tail loss probes, `probe_recoveries` losses that a probe repaired; `needless` is what the other end
    received twice (DSACK). `received_bytes` went to the program; `duplicate_segments` carried nothing new,
    `out_of_order` arrived before missing data.
    """

    segments_sent: int = 0
    segments_received: int = 0
    sent_bytes: int = 0
    delivered_bytes: int = 0
    received_bytes: int = 0
    retransmissions: int = 0
    recoveries: int = 0
    timeouts: int = 0
    marks: int = 0
    probes: int = 0
    probe_recoveries: int = 0
    needless: int = 0
    duplicate_acks: int = 0
    duplicate_segments: int = 0
    out_of_order: int = 0
    refused: int = 0
    """Segments that the host's own queue had no room for."""
    samples: list[Sample] = field(default_factory=list)
    is_full: bool = False
    """True if samples were left out."""

    def add(self, sample: Sample) -> None:
        """Keep a sample, if there is room."""
        if len(self.samples) < MOST_SAMPLES:
            self.samples.append(sample)
            return
        if not self.is_full:
            LOGGER.warning("a TCP connection has %d samples: later ones are left out (longer sample_ns)", MOST_SAMPLES)
        self.is_full = True
