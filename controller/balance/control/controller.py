"""A complete controller: its law, the source of its gains, and the plant on which they must be stable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from controller.balance.control.expert import ExpertRule, around
from controller.balance.control.fuzzy.adaptation import FuzzySettings, adapted
from controller.balance.control.linear import LinearPlant, closed_loop
from controller.balance.control.pid import Blocked, PidSettings, PidState, retuned, slope_of, step
from controller.balance.control.stability import Margin, radii_of, refuse_unstable
from controller.balance.values import Gains, Sample
from dataplane.config import Strict

_PARTS: Final = 8
"""Number of parts of each half range in the grid over all gains that adaptation may reach."""


_MOST_GROWTH: Final = 64.0
"""Maximum growth of gains to examine; a loop that is stable beyond it has enough margin."""
_SAME_GROWTH: Final = 1.05
"""Factors that differ by less are equal."""


class Scheme(StrEnum):
    """Source of the gains."""

    FIXED = "fixed"
    EXPERT = "expert"
    FUZZY = "fuzzy"


class ControlSettings(Strict, frozen=True):
    """Settings of a controller; raises GainsError if gains that it may reach are unstable on its plant."""

    pid: PidSettings = PidSettings()
    """The law, its gains and limits."""
    scheme: Scheme = Scheme.FIXED
    """fixed: the law's gains; expert: by ranges of the error and its change; fuzzy: these, adapted online."""
    expert: ExpertRule | None = None
    """The ranges and their gains; by default, a rule around the law's own gains."""
    fuzzy: FuzzySettings = FuzzySettings()
    """Settings of the adaptation of gains."""
    plant: LinearPlant | None = None
    """Model of the unit near its balance; without it stability is not checked."""

    def __post_init__(self) -> None:
        if self.scheme is not Scheme.FIXED:
            _ = self.rule  # raises for invalid values
        worst_margin(self)

    @property
    def rule(self) -> ExpertRule:
        """Return the effective expert rule."""
        return self.expert or around(Gains(self.pid.kp, self.pid.ki, self.pid.kd))


@dataclass(frozen=True, slots=True)
class ControllerState:
    """State of a controller between samples."""

    pid: PidState = field(default_factory=PidState)
    gains: Gains | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """Result for a sample: u, with the error, its change per sample and the gains behind it."""

    u: float
    error: float
    change: float
    gains: Gains
    rests: bool


@dataclass(frozen=True, slots=True)
class Controller:
    """Turns a unit's samples into outputs; stateless."""

    settings: ControlSettings
    _rule: ExpertRule = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_rule", self.settings.rule)

    def start(self) -> ControllerState:
        """Return the state before the first sample."""
        return ControllerState()

    def step(
        self, state: ControllerState, sample: Sample, blocked: Blocked = Blocked.NO
    ) -> tuple[ControllerState, Output]:
        """Return the next state and the output for a sample; `blocked`: outputs that no lever can follow.

        Raise SampleError for a sample that is not newer than the last.
        """
        settings = self.settings
        change = slope_of(settings.pid, state.pid, sample)
        gains = _gains_for(settings, self._rule, sample.error - settings.pid.target, change)
        pid, u = step(settings.pid, state.pid, sample, gains, blocked)
        return ControllerState(pid, gains), Output(u, pid.error, change, gains, pid.rests)

    def changed(self, state: ControllerState, settings: ControlSettings) -> tuple[Controller, ControllerState]:
        """Return the controller with other settings and its state, keeping the output free of steps."""
        other = Controller(settings)
        if state.pid.time_s is None:
            return other, state
        before = state.gains or self.settings.pid.gains
        after = _gains_for(settings, other._rule, state.pid.measured - settings.pid.target, state.pid.slope)
        pid = retuned(self.settings.pid, settings.pid, state.pid, before, after)
        return other, replace(state, pid=pid, gains=after)


def worst_margin(settings: ControlSettings) -> Margin | None:
    """Return the margin of the least stable gains that a controller may reach on its plant, None without a plant.

    Gains are treated as constant: how fast they change is ignored. Raise GainsError, naming the gains, if some are
    unstable.
    """
    plant = settings.plant
    if plant is None:
        return None
    return refuse_unstable(least_stable(settings, plant), plant)


def least_stable(settings: ControlSettings, plant: LinearPlant) -> Gains:
    """Return the gains, among those that a controller may reach, that become unstable first if all of them grow.

    If some are unstable already, those with the fastest growth of errors.
    """
    left = list({gains.of(settings.pid.form) for gains in reachable(settings)})
    low, high = 1.0, _MOST_GROWTH
    while len(left) > 1 and high / low > _SAME_GROWTH:
        factor = math.sqrt(low * high)
        radii = _radii(left, factor, plant)
        unstable = [gains for gains, radius in zip(left, radii, strict=True) if radius >= 1.0]
        if unstable:
            left, high = unstable, factor
        else:
            low = factor
    return left[int(np.argmax(_radii(left, high, plant)))]


def _radii(many: Sequence[Gains], factor: float, plant: LinearPlant) -> NDArray[np.float64]:
    return radii_of([closed_loop(_times(gains, factor), plant) for gains in many])


def _times(gains: Gains, factor: float) -> Gains:
    return Gains(gains.kp * factor, gains.ki * factor, gains.kd * factor)


def reachable(settings: ControlSettings) -> Iterator[Gains]:
    """Yield the gains that a controller may reach; adapted ones for a grid of errors and changes."""
    match settings.scheme:
        case Scheme.FIXED:
            yield settings.pid.gains
        case Scheme.EXPERT:
            yield from (settings.rule.of_row(row) for row in range(4))
        case Scheme.FUZZY:
            rule, fuzzy = settings.rule, settings.fuzzy
            for row in range(-_PARTS, _PARTS + 1):
                for column in range(-_PARTS, _PARTS + 1):
                    error, change = row / _PARTS * fuzzy.error_range, column / _PARTS * fuzzy.change_range
                    yield _gains_for(settings, rule, error, change)


def _gains_for(settings: ControlSettings, rule: ExpertRule, error: float, change: float) -> Gains:
    match settings.scheme:
        case Scheme.FIXED:
            return settings.pid.gains
        case Scheme.EXPERT:
            return rule.gains(error, change).of(settings.pid.form)
        case Scheme.FUZZY:
            start = rule.gains(error, change)
            return adapted(settings.fuzzy, start, rule.largest, error, change).of(settings.pid.form)
