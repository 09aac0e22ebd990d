"""A whole controller: its law, where its gains come from, and the plant on which they must be stable."""

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
"""Into so many parts each half of a range is divided where all gains that adaptation may reach are looked at."""


_MOST_GROWTH: Final = 64.0
"""Times that gains may grow; whoever is stable beyond has room enough."""
_SAME_GROWTH: Final = 1.05
"""Factors that differ by less are the same."""


class Scheme(StrEnum):
    """Where gains come from."""

    FIXED = "fixed"
    EXPERT = "expert"
    FUZZY = "fuzzy"


class ControlSettings(Strict, frozen=True):
    """One controller; raises GainsError where gains that it may come to are unstable on its plant."""

    pid: PidSettings = PidSettings()
    """The law, its gains and limits."""
    scheme: Scheme = Scheme.FIXED
    """fixed: the law's gains; expert: by ranges of the error and its change; fuzzy: these, adapted on line."""
    expert: ExpertRule | None = None
    """The ranges and their gains; without it, a rule around the law's own gains."""
    fuzzy: FuzzySettings = FuzzySettings()
    """How gains are adapted."""
    plant: LinearPlant | None = None
    """What the unit answers like near its balance; without it nobody looks whether gains are stable."""

    def __post_init__(self) -> None:
        if self.scheme is not Scheme.FIXED:
            _ = self.rule  # for what it refuses
        worst_margin(self)

    @property
    def rule(self) -> ExpertRule:
        """Return the expert rule that counts."""
        return self.expert or around(Gains(self.pid.kp, self.pid.ki, self.pid.kd))


@dataclass(frozen=True, slots=True)
class ControllerState:
    """What a controller remembers between samples."""

    pid: PidState = field(default_factory=PidState)
    gains: Gains | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """What a controller says of a sample: u, and the error, its change per sample and the gains that it is made of."""

    u: float
    error: float
    change: float
    gains: Gains
    rests: bool


@dataclass(frozen=True, slots=True)
class Controller:
    """Turns a unit's samples into outputs; holds no state of its own."""

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
        """Return the next state and what it says of a sample; `blocked`: outputs that no lever can follow any more.

        Raises SampleError for a sample that is not newer than the last.
        """
        settings = self.settings
        change = slope_of(settings.pid, state.pid, sample)
        gains = _gains_for(settings, self._rule, sample.error - settings.pid.target, change)
        pid, u = step(settings.pid, state.pid, sample, gains, blocked)
        return ControllerState(pid, gains), Output(u, pid.error, change, gains, pid.rests)

    def changed(self, state: ControllerState, settings: ControlSettings) -> tuple[Controller, ControllerState]:
        """Return the controller of other settings and its state, such that the output goes on without a step."""
        other = Controller(settings)
        if state.pid.time_s is None:
            return other, state
        before = state.gains or self.settings.pid.gains
        after = _gains_for(settings, other._rule, state.pid.measured - settings.pid.target, state.pid.slope)
        pid = retuned(self.settings.pid, settings.pid, state.pid, before, after)
        return other, replace(state, pid=pid, gains=after)


def worst_margin(settings: ControlSettings) -> Margin | None:
    """Return the margin of the least stable gains that a controller may come to on its plant, None without a plant.

    Gains are looked at as if they stayed: how quickly they follow one another is not. Raises GainsError where some are
    unstable, naming them.
    """
    plant = settings.plant
    if plant is None:
        return None
    return refuse_unstable(least_stable(settings, plant), plant)


def least_stable(settings: ControlSettings, plant: LinearPlant) -> Gains:
    """Return the gains, of those that a controller may come to, that are unstable first if all of them grow.

    Where some are unstable already, those with which errors grow most.
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
    """Yield the gains that a controller may come to; adapted ones for a grid of errors and changes."""
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
