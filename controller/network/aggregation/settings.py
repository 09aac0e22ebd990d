"""Settings of in-network aggregation."""

from __future__ import annotations

from typing import Annotated

import msgspec

from controller.common.errors import ControllerError
from dataplane.config import Settings

Ns = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]


Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class MoveSettings(Settings, frozen=True):
    """Conditions for moving a job to another tree, and for treating links as dead."""

    gain: Share = 0.25
    """Another tree must cost less by this share: its links' delays, each over the share of the link that is free."""
    confirm_rounds: Annotated[int, msgspec.Meta(ge=1)] = 3
    """... in this many consecutive rounds."""
    hold_down_ns: Ns = 60_000_000_000
    """A job is not asked to move again for this long."""
    dead_loss: Share = 0.9
    """A link that loses this share of its frames is dead."""
    dead_link_after_ns: Ns | None = None
    """A link that was measured once and is silent for this long is dead; only for fabrics whose flows never pause."""


class AggregationSettings(Settings, frozen=True):
    """Settings of aggregation in switches, and how long the controller waits for them."""

    mark_from_frames: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Frames in a queue from which on a switch marks packets as congested (ECN); default: a quarter of its shortest
    queue."""
    report_every: Count = 16
    """Each switch of a job reports one item in this many, a power of two, to the collector; 0: none."""
    report_slow_us: Count = 0
    """Also report items with more time than this between the first and the last contribution; 0: do not."""
    deadline_ns: Ns = 5_000_000_000
    """Timeout of switches for a job, or a change of it."""
    dead_after_ns: Ns = 10_000_000_000
    """A job ends, and its workers are notified, when one of its switches is away for this long."""

    interval_ns: Ns = 1_000_000_000
    """Interval at which the network's state is examined."""
    moving: MoveSettings = MoveSettings()
    """Moving of jobs to other trees."""

    def check(self) -> None:
        """Raise ControllerError for settings that no switch supports."""
        if self.report_every & (self.report_every - 1):
            raise ControllerError(f"aggregation.report_every: {self.report_every} is not a power of two")
