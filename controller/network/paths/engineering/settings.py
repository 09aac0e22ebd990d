"""Settings of traffic engineering."""

from __future__ import annotations

from typing import Annotated

import msgspec

from dataplane.config import Settings

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class EngineeringSettings(Settings, frozen=True):
    """Settings of traffic engineering: its interval, and limits that keep routes stable."""

    interval_ns: Positive = 10_000_000_000
    """Time between two rounds; a link that dies or returns starts one at once."""
    min_gain: Share = 0.05
    """Weights change only if that takes this share off the utilisation of the busiest link."""
    enough: Share = 0.3
    """Utilisation is not pressed below this at the cost of delay."""
    round_time_ns: Positive = 2_000_000_000
    """Total time that a round may compute; its result so far is used, and the next round continues from there."""
    smoothing: Share = 0.5
    """The part of the last round's demands in this round's: 0 takes the newest measurement alone."""
