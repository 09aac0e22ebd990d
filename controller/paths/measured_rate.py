"""What telemetry says that a flow sends, with what is uncertain of it; the rates of several 5-tuples add up."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from collectors.values import PathState
from controller.paths.deciding.decide import Assignment
from controller.paths.deciding.flow_table import rate_variance
from controller.paths.telemetry_load import DEFAULT_PACKET_BYTES

_SILENT_GAPS: Final = 8
"""A flow that was silent for so many of its gaps is over: of those with packets by chance, one in 3,000 is not."""
_LEAST_SILENCE_NS: Final = 100_000_000
"""Reports may be late by so much."""


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """A rate, the bytes behind it, its variance, and what of it is over: see `Assignment`."""

    rate_bps: int
    nbytes: int
    past_bps: float
    variance: float

    @classmethod
    def of(cls, state: PathState) -> MeasuredRate | None:
        """Return what a 5-tuple sends, None where nobody knows yet."""
        if state.rate_bps is None:
            return None
        gap_ns = state.gap_mean_ns
        if gap_ns is not None and state.age_ns > max(_SILENT_GAPS * gap_ns, _LEAST_SILENCE_NS):
            return cls(state.rate_bps, state.measured_bytes, float(state.rate_bps), 0.0)
        packets = max(state.measured_bytes / DEFAULT_PACKET_BYTES, 1.0)
        past_bps = state.rate_bps / packets if state.is_young else 0.0
        variance = state.gap_variation * rate_variance(state.rate_bps, state.measured_bytes)
        return cls(state.rate_bps, state.measured_bytes, past_bps, variance)

    def __add__(self, other: MeasuredRate) -> MeasuredRate:
        return MeasuredRate(
            self.rate_bps + other.rate_bps,
            self.nbytes + other.nbytes,
            self.past_bps + other.past_bps,
            self.variance + other.variance,
        )

    def given_to(self, flow: Assignment) -> Assignment:
        """Return a flow with this rate."""
        return replace(
            flow,
            rate_bps=self.rate_bps,
            measured_bytes=self.nbytes,
            past_bps=round(self.past_bps),
            uncertain_bps=math.isqrt(round(self.variance)),
        )
