"""The expert rule: start gains by the size of the error and the rate of its change.

With e the error and ec its change per sample, e1 > e2 > 0 and d1 > 0:

| range | gains | why |
| --- | --- | --- |
| |e| >= e1 | kp1, ki1, kd1 | far away: act strongly, integrate nothing |
| e2 <= |e| < e1 | kp2, ki2, kd2 | on the way: less strongly, to avoid overshoot |
| |e| < e2, |ec| >= d1 | kp3, ki3, kd3 | near but moving: damp it |
| |e| < e2, |ec| < d1 | kp3, ki3, kd4 | near and quiet: integrate the rest |

with kp1 about kp3, both above kp2; kd1, kd2 and kd4 about the same, below kd3; 0 = ki1 < ki2 < ki3.
"""

from __future__ import annotations

import math
from typing import Final

from controller.balance.errors import GainsError
from controller.balance.values import Gains
from dataplane.config import Strict

ABOUT: Final = 0.2
"""Largest relative difference of gains that should be about the same, as a share of the larger one."""


class ExpertRule(Strict, frozen=True):
    """Gains for each range of error and change; raises GainsError if they violate the rule's relations."""

    far: float = 0.5
    """e1: the error from which it counts as far away."""
    near: float = 0.2
    """e2: the error below which it is near."""
    moving: float = 0.05
    """d1: the change per sample from which an error counts as moving."""
    kp: tuple[float, float, float] = (1.0, 0.8, 1.0)
    """kp1, kp2, kp3: output per error."""
    ki: tuple[float, float, float] = (0.0, 0.02, 0.05)
    """ki1, ki2, ki3: output per error and sample."""
    kd: tuple[float, float, float, float] = (0.1, 0.1, 0.2, 0.1)
    """kd1 to kd4: output per change of the error."""

    def __post_init__(self) -> None:
        for value in (self.far, self.near, self.moving, *self.kp, *self.ki, *self.kd):
            if not (math.isfinite(value) and value >= 0.0):
                raise GainsError(f"expert rule: {value:g} is not a finite number >= 0")
        for is_kept, relation in self._relations():
            if not is_kept:
                raise GainsError(f"expert rule: {relation}")

    def _relations(self) -> tuple[tuple[bool, str], ...]:
        kp, ki, kd = self.kp, self.ki, self.kd
        return (
            (self.far > self.near > 0.0, f"e1 > e2 > 0 required, got {self.far:g} and {self.near:g}"),
            (self.moving > 0.0, f"d1 > 0 required, got {self.moving:g}"),
            (_about(kp[0], kp[2]), f"kp1 must be about kp3, got {kp[0]:g} and {kp[2]:g}"),
            (min(kp[0], kp[2]) > kp[1], f"kp2 must be below kp1 and kp3, got {kp[1]:g}"),
            (ki[0] == 0.0, f"ki1 must be 0, got {ki[0]:g}"),
            (0.0 < ki[1] < ki[2], f"0 < ki2 < ki3 required, got {ki[1]:g} and {ki[2]:g}"),
            (_about(kd[0], kd[1], kd[3]), f"kd1, kd2, kd4 must be about equal, got {kd[0]:g}, {kd[1]:g}, {kd[3]:g}"),
            (max(kd[0], kd[1], kd[3]) < kd[2], f"kd3 must be above kd1, kd2 and kd4, got {kd[2]:g}"),
        )  # fmt: skip

    def row(self, error: float, change: float) -> int:
        """Return the number, from 0, of the rule's row for an error and its change per sample."""
        if abs(error) >= self.far:
            return 0
        if abs(error) >= self.near:
            return 1
        return 2 if abs(change) >= self.moving else 3

    def of_row(self, row: int) -> Gains:
        """Return a row's gains."""
        return Gains(self.kp[min(row, 2)], self.ki[min(row, 2)], self.kd[row])

    @property
    def largest(self) -> Gains:
        """Return the largest of each gain."""
        return Gains(max(self.kp), max(self.ki), max(self.kd))

    def gains(self, error: float, change: float) -> Gains:
        """Return the gains for an error and its change per sample."""
        return self.of_row(self.row(error, change))


def around(gains: Gains) -> ExpertRule:
    """Return the rule whose last row, near and quiet, has the given gains, with kp above 0.

    A ki or kd of 0, as in a form without the term, means the built-in rule's share of kp.
    """
    usual = ExpertRule()
    kp = gains.kp
    ki = gains.ki or usual.ki[2] / usual.kp[2] * kp
    kd = gains.kd or usual.kd[3] / usual.kp[2] * kp
    return ExpertRule(kp=(kp, 0.8 * kp, kp), ki=(0.0, 0.4 * ki, ki), kd=(kd, kd, 2.0 * kd, kd))


def _about(*values: float) -> bool:
    return max(values) - min(values) <= ABOUT * max(values)
