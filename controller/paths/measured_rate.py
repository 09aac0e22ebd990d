"""What telemetry says that a flow sends, with what is uncertain of it; the rates of several 5-tuples add up."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from collectors.values import PathState
from controller.paths.decide import Assignment
from controller.paths.flow_table import rate_variance
from controller.paths.telemetry_load import DEFAULT_PACKET_BYTES


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """A rate, the bytes behind it, its variance, and what of it young flows' first packets make: one each too many."""

    rate_bps: int
    nbytes: int
    first_bps: float
    variance: float

    @classmethod
    def of(cls, state: PathState, variation: float = 1.0) -> MeasuredRate | None:
        """Return what a 5-tuple sends, None where nobody knows yet; `variation` is that of its packets' gaps."""
        if state.rate_bps is None:
            return None
        packets = max(state.measured_bytes / DEFAULT_PACKET_BYTES, 1.0)
        first_bps = state.rate_bps / packets if state.is_young else 0.0
        variance = variation * rate_variance(state.rate_bps, state.measured_bytes)
        return cls(state.rate_bps, state.measured_bytes, first_bps, variance)

    def __add__(self, other: MeasuredRate) -> MeasuredRate:
        return MeasuredRate(
            self.rate_bps + other.rate_bps,
            self.nbytes + other.nbytes,
            self.first_bps + other.first_bps,
            self.variance + other.variance,
        )

    def given_to(self, flow: Assignment) -> Assignment:
        """Return a flow with this rate."""
        return replace(
            flow,
            rate_bps=self.rate_bps,
            measured_bytes=self.nbytes,
            first_bps=round(self.first_bps),
            uncertain_bps=math.isqrt(round(self.variance)),
        )
