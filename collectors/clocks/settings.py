"""Settings of the estimation of clocks."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from collectors.settings import Positive
from dataplane.config import Strict


class ClockSettings(Strict, frozen=True):
    """How offsets and drifts of clocks that nobody synchronises are estimated from packets' stamps."""

    interval_ns: Positive = 100_000_000
    """Time between two estimates; of each interval a link's fastest packet counts, in each direction."""

    memory_ns: Positive = 10_000_000_000
    """Older observations weigh less: after this time 1/e."""

    pair_within_ns: Positive = 1_000_000_000
    """Packets of the two directions make one observation when no more time than this lies between them."""

    forget_after_ns: Positive = 60_000_000_000
    """A link without observations for so long ties no clocks together any more."""

    resolution_ns: Positive = 1_000
    """The stamps' resolution: no estimate is called better than this."""

    largest_drift_ppb: Positive = 200_000
    """No two clocks drift apart faster, in parts per 10**9 (an ordinary crystal: 20,000 to 100,000)."""

    wander_ppb: Annotated[int, Meta(ge=0)] = 1_000
    """How far a drift may be wrong: uncertainty grows by this while a link is not observed."""

    jump_ns: Positive = 1_000_000
    """Two observations in a row that are further off than this, and agree, are a clock that was set or began anew."""

    largest_uncertainty_ns: Positive = 1_000_000
    """A link whose correction may be wrong by more is not corrected: its delay comes from hop latency."""
