"""A threshold autoscaler: more units above one load, fewer below another; it sees the load, and nothing of the bus."""

from __future__ import annotations

import math

from controller.balance.values import Change, Sample, UnitState
from dataplane.config import Strict


class ThresholdRule(Strict, frozen=True):
    """Rule of typical autoscalers for machines and pods: by steps, or (`target`) proportional to the load."""

    high: float = 0.9
    """Above this load units are added."""
    low: float = 0.5
    """Below it some are freed."""
    step: int = 2
    """Units per step."""
    target: float | None = None
    """Load that is aimed at, n' = ceil(n P_d / target), where the load is above high or below low."""

    def change(self, u: float, sample: Sample, state: UnitState) -> Change:
        """Return what the load asks for; the output of a controller is not looked at."""
        if self.low <= sample.load <= self.high:
            return Change()
        if self.target is not None:
            return Change(sub_units=math.ceil(state.sub_units * sample.load / self.target) - state.sub_units)
        return Change(sub_units=self.step if sample.load > self.high else -self.step)
