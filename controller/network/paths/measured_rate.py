"""Rates of flows as telemetry measures them, with their uncertainty; the rates of several 5-tuples add up.

`MeasuredRate` is for one flow and serves as the reference, `MeasuredRates` has many side by side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from collectors.state.path_states import PathColumns
from collectors.values import PathState
from controller.network.algorithms.link_table import Longs
from controller.network.paths.deciding.decide import Assignment
from controller.network.paths.deciding.flow_table import rate_variance, rate_variances
from controller.network.paths.deciding.located import UNKNOWN
from controller.network.paths.telemetry_load import DEFAULT_PACKET_BYTES

_SILENT_GAPS: Final = 8
"""A flow that was silent for this many of its gaps is over: of those with random packets, one in 3,000 is not."""
_LEAST_SILENCE_NS: Final = 100_000_000
"""Silence shorter than this never ends a flow: reports may be this late."""


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """A rate, the bytes behind it, its variance, and what of it is over: see `Assignment`."""

    rate_bps: int
    nbytes: int
    past_bps: float
    variance: float

    @classmethod
    def of(cls, state: PathState) -> MeasuredRate | None:
        """Return the rate of a 5-tuple, None if not known yet."""
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
            uncertain_bps=int(math.sqrt(round(self.variance))),
        )


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRates:
    """Columns of many `MeasuredRate`; where `rate_bps` is UNKNOWN the rest is meaningless."""

    rate_bps: Longs
    nbytes: Longs
    past_bps: npt.NDArray[np.float64]
    variance: npt.NDArray[np.float64]

    @classmethod
    def of(cls, paths: PathColumns) -> MeasuredRates:
        """Return what 5-tuples send."""
        rate_bps, nbytes = paths.integers("rate_bps"), paths.integers("measured_bytes")
        gap_ns, age_ns = paths.integers("gap_mean_ns"), paths.integers("age_ns")
        is_over = (gap_ns != UNKNOWN) & (age_ns > np.maximum(_SILENT_GAPS * gap_ns, _LEAST_SILENCE_NS))
        packets = np.maximum(nbytes / DEFAULT_PACKET_BYTES, 1.0)
        past_bps = np.where(paths.flags("is_young"), rate_bps / packets, 0.0)
        return cls(
            rate_bps,
            nbytes,
            np.where(is_over, rate_bps.astype(np.float64), past_bps),
            np.where(is_over, 0.0, paths.floats("gap_variation") * rate_variances(rate_bps, nbytes)),
        )

    def summed(self, group: Longs, count: int) -> MeasuredRates:
        """Return the sums of groups; those of a group with an unknown rate are unknown, or without any."""
        known = self.rate_bps != UNKNOWN
        rates_bps, nbytes = np.zeros(count, np.int64), np.zeros(count, np.int64)
        # One after the other, so that sums of floats are those of the reference.
        np.add.at(rates_bps, group[known], self.rate_bps[known])
        np.add.at(nbytes, group[known], self.nbytes[known])
        past_bps = np.bincount(group[known], self.past_bps[known], count).astype(np.float64)
        variance = np.bincount(group[known], self.variance[known], count).astype(np.float64)
        rates_bps[group[~known]] = UNKNOWN
        return MeasuredRates(rates_bps, nbytes, past_bps, variance)

    def rows(self, chosen: Longs | npt.NDArray[np.bool_]) -> MeasuredRates:
        """Return some of them."""
        return MeasuredRates(self.rate_bps[chosen], self.nbytes[chosen], self.past_bps[chosen], self.variance[chosen])

    @property
    def uncertain_bps(self) -> Longs:
        """One standard deviation of each."""
        deviation: Longs = np.sqrt(np.rint(self.variance)).astype(np.int64)
        return deviation
