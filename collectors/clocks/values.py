"""What crosses between the network's state, which sees stamps, and the estimator, which corrects them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.fabric.topology import LinkKey

FARTHEST_NS: Final = 3_600_000_000_000
"""A drift is not followed for longer than this."""


@dataclass(frozen=True, slots=True)
class StampDifference:
    """The least difference of stamps that a directed link showed for a while: head's ingress minus tail's egress.

    Both stamps raw, each by its own switch's clock; `received_ns` is when the packet's report came, by the collector's.
    """

    link: LinkKey
    tail_stamp_ns: int
    flight_ns: int
    received_ns: int
    samples: int


@dataclass(frozen=True, slots=True)
class LinkCorrection:
    """What is added to a directed link's difference of stamps, for a packet that left at `at_ns` by the tail's clock.

    `drift_ppb` is how it changes with the tail's stamps; `uncertainty_ns` is by how much it may be wrong.
    """

    at_ns: int
    offset_ns: int
    drift_ppb: int
    uncertainty_ns: int

    def corrected(self, flight_ns: int, tail_stamp_ns: int) -> int:
        """Return a difference of stamps as if both clocks were one."""
        since_ns = min(max(tail_stamp_ns - self.at_ns, -FARTHEST_NS), FARTHEST_NS)
        return flight_ns + self.offset_ns + self.drift_ppb * since_ns // 1_000_000_000
