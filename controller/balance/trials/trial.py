"""One unit, its levers moved by the interval table, under a load that steps, climbs, bursts or is noisy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from controller.balance.control.controller import Controller, ControlSettings, Scheme, least_stable
from controller.balance.control.pid import PidSettings
from controller.balance.control.response import Figures, figures_of
from controller.balance.control.stability import Margin, margin_of
from controller.balance.errors import PlantError
from controller.balance.plants import Member, Plant, Trajectory, loads, run
from controller.balance.plants.linear import linearised
from controller.balance.rules import IntervalRule, Limits
from controller.balance.values import Form, Gains, LeverKind, Precision, UnitState

Floats = npt.NDArray[np.float64]
USUAL: Final = Gains(1.0, 0.05, 0.5)
"""kp: the table reads the error itself; ki and kd as large as settles with a few samples of delay."""
_QUIET: Final = 20
"""Samples before the load begins."""
_RISE: Final = 60
"""Duration of a ramp in samples."""
_BURST_EVERY: Final = 40
_BURST_LENGTH: Final = 15
_NOISE: Final = 0.1
"""Standard deviation of a noisy load, as a share of it."""
_REPORT_NOISE: Final = 0.02
"""Minimum noise of the reports of a noisy load."""
_NOISY_SHARE: Final = 0.8
"""Share of the bus taken by a noisy load: if it took all, waiting work would hide the noise."""
_THRESHOLD: Final = 0.05
"""Without one, an integral creeps inside the table's dead band, and the levers oscillate by a sub-unit now and then."""
_SEED: Final = 1


class LoadKind(StrEnum):
    """Shape of the load."""

    STEP = "step"
    RAMP = "ramp"
    BURST = "burst"
    NOISY = "noisy"


@dataclass(frozen=True, slots=True)
class Ground:
    """Environment of trials: the unit's model, its initial levers, and those that the table moves.

    The load goes from 10 % to 100 % of what the bus carries at the start, a noisy one to 80 %. A sample is a second.
    Raises PlantError for too few samples for the load to begin and to settle.
    """

    plant: Plant = field(default_factory=lambda: Plant(delay_s=2.0))
    unit: UnitState = field(default_factory=lambda: UnitState(Precision.INT8, 1000.0, 100))
    levers: tuple[LeverKind, ...] = (LeverKind.SUB_UNITS,)
    samples: int = 400

    def __post_init__(self) -> None:
        least = _QUIET + 2 * _RISE
        if self.samples < least:
            raise PlantError(f"a trial of {self.samples} samples: at least {least} needed")

    def load(self, kind: LoadKind) -> Floats:
        """Return the load for each sample, tera-operations per second."""
        most = self.plant.bus_can_tops(self.unit.precision)
        low = 0.1 * most
        match kind:
            case LoadKind.STEP:
                return loads.step(self.samples, low, most, _QUIET)
            case LoadKind.RAMP:
                return loads.ramp(self.samples, low, most, _QUIET, _QUIET + _RISE)
            case LoadKind.BURST:
                return loads.burst(self.samples, low, most, _BURST_EVERY, _BURST_LENGTH)
            case LoadKind.NOISY:
                rng = np.random.default_rng(_SEED)
                return loads.noisy(loads.step(self.samples, low, _NOISY_SHARE * most, _QUIET), _NOISE, rng)

    def margin(self, settings: ControlSettings) -> Margin:
        """Return the margin of a controller's least stable gains with bus and cores in balance, fully loaded."""
        most = self.plant.bus_can_tops(self.unit.precision)
        unit_tops = self.plant.cores_can_tops(replace(self.unit, sub_units=1))
        balanced = replace(self.unit, sub_units=max(round(most / unit_tops), 1))
        plant = linearised(self.plant, balanced, 2.0 * most, IntervalRule(levers=self.levers))
        return margin_of(least_stable(settings, plant), plant)


@dataclass(frozen=True, slots=True)
class Trial:
    """A controller's result for a load: its response from the beginning of the load, and the number of lever moves.

    `margin` is that of its least stable gains on the unit's model near the balance. `late_moves` are those of the last
    quarter, when a steady load has long been present.
    """

    load: LoadKind
    controller: str
    trajectory: Trajectory
    figures: Figures
    moves: int
    late_moves: int
    margin: Margin


def usual_controllers(gains: Gains = USUAL) -> dict[str, ControlSettings]:
    """Return a controller of each form with the same gains, and the PID whose gains are adapted around them."""
    laws = {form: PidSettings(form=form, kp=gains.kp, ki=gains.ki, kd=gains.kd, threshold=_THRESHOLD) for form in Form}
    controllers = {str(form): ControlSettings(pid=law) for form, law in laws.items()}
    return {**controllers, "PID fuzzy": ControlSettings(pid=laws[Form.PID], scheme=Scheme.FUZZY)}


def trials(
    controllers: dict[str, ControlSettings], ground: Ground, kinds: Sequence[LoadKind] = tuple(LoadKind)
) -> Iterator[Trial]:
    """Yield the result of each controller for each load, with the same noise for all."""
    for kind in kinds:
        for name, settings in controllers.items():
            yield _trial(kind, name, settings, ground)


def _trial(kind: LoadKind, name: str, settings: ControlSettings, ground: Ground) -> Trial:
    plant = ground.plant
    if kind is LoadKind.NOISY:
        plant = msgspec.structs.replace(plant, noise=max(plant.noise, _REPORT_NOISE))
    member = Member(
        name,
        plant,
        ground.unit,
        ground.load(kind),
        IntervalRule(levers=ground.levers),
        Controller(settings),
        Limits(),
        ground.levers,
    )
    (trajectory,) = run([member], rng=np.random.default_rng(_SEED))
    came = _QUIET if kind is not LoadKind.BURST else _BURST_EVERY - _BURST_LENGTH
    first = came + math.ceil(ground.plant.delay_s)  # it cannot be observed before that
    figures = figures_of(trajectory.time_s[first:].tolist(), trajectory.error[first:].tolist())
    late = ground.samples - ground.samples // 4
    return Trial(
        kind,
        name,
        trajectory,
        figures,
        int(trajectory.moves.sum()),
        int(trajectory.moves[late:].sum()),
        ground.margin(settings),
    )
