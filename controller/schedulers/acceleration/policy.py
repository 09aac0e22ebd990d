"""The policy of tasks by which their operators choose devices: what they take on each centre's units, by the model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from controller.api.resources.operator_devices import MOST_LETTERS, MOST_OPERATORS, OperatorDevice, text_of
from controller.api.resources.operator_graphs import graph_of_operators
from controller.api.resources.task import OperatorCount
from controller.cluster.estimates import Basis, Estimate
from controller.cluster.operators import Operator, OperatorError
from controller.schedulers.acceleration.calibration import Calibration, Side, load
from controller.schedulers.acceleration.errors import AccelerationError
from controller.schedulers.acceleration.model import Works, times
from controller.schedulers.acceleration.network.grounds import ground_by_rate
from controller.schedulers.acceleration.network.hardware import load_hardware
from controller.schedulers.acceleration.plans import Explained, explain, plan_of
from controller.schedulers.acceleration.values import Machines, Network, TransferModel, Work
from controller.schedulers.probe.dispatch.filters import offer_of
from controller.schedulers.probe.dispatch.policies import Question
from controller.schedulers.probe.dispatch.scores import by_least
from controller.schedulers.probe.dispatch.values import Longs
from dataplane.config import Strict
from dataplane.topology.units import parse_rate_bps
from dataplane.topology.values import DeviceKind

_ALONE: Final = Machines(Network(math.inf), 1)
_KEPT: Final = 4096
"""Answers that are kept: of so many kinds of tasks, unit types and numbers of units."""
_SHOWN: Final = 8
"""Operators named in a reason; the others are counted."""


@dataclass(frozen=True, slots=True)
class _Placed:
    """What operators take on units, each on its device; None, with the problem, where that cannot be said."""

    explained: Explained | None
    problem: str = ""

    @property
    def seconds(self) -> float:
        return 0.0 if self.explained is None else self.explained.placed_s


class MeasuredTimes:
    """CPU times of a task's operators, as a trace measured them where it was submitted; else those of a calibration."""

    def __init__(self, counts: Sequence[OperatorCount], otherwise: Calibration | None = None) -> None:
        self.graph = graph_of_operators("task", counts)
        self._otherwise = otherwise
        works = plan_of(self.graph, 1, _OneSecond()).works
        self._growth = {work.name: work.growth for work in works}
        self._t = _measured(works, {one.name: one.seconds for one in counts})

    def t_of(self, operator: Operator, /) -> Estimate:
        """Return t, CPU seconds for 100 MB of what an operator reads; unknown with the reason."""
        if (found := self._t.get(operator.name)) is not None:
            return Estimate.exactly(found, Basis.HISTORY, "as measured where the task was submitted")
        if self._otherwise is not None:
            return self._otherwise.t_of(operator, Side.BOTH, self._growth[operator.name])
        return Estimate.unknown(f"{operator.name}: nobody has measured what {operator.kind} takes")


def _measured(works: tuple[Work, ...], seconds: Mapping[str, float | None]) -> dict[str, float]:
    """Return t such that the operator's class gives the measured seconds back, of works of a second on one machine."""
    unit_s = times(Works.of(works), _ALONE).compute_s.tolist()
    found = ((work.name, seconds[work.name], unit) for work, unit in zip(works, unit_s, strict=True))
    return {name: measured / unit for name, measured, unit in found if measured is not None and unit > 0}


class _OneSecond:
    """Each operator takes a second for 100 MB."""

    def t_of(self, operator: Operator, /) -> Estimate:  # noqa: ARG002 - the same for all
        return Estimate.exactly(1.0, Basis.MODELLED)


class OperatorDevices:
    """Prefers units on which the task's operators take the least time, each on the device that the model chooses.

    A unit counts as one of the machines that share the job. What of a unit's devices no operator would use is better
    left to others: of units that take as long, those without it come first. Operators whose time nobody knows stay on
    the CPU and count on no unit; a task that says nothing of its operators is left alone.
    """

    class Settings(Strict, frozen=True):
        """The file of the units' hardware, the rate between two units of a centre, and the file of a calibration.

        Without the last, operators that a task's trace has not timed are not known.
        """

        hardware: str
        rate: str = "10 Gbit/s"
        calibration: str = ""

    def __init__(self, settings: Settings) -> None:
        self._hardware = load_hardware(Path(settings.hardware))
        self._rate_bps = parse_rate_bps(settings.rate)
        self._calibration = load(Path(settings.calibration)) if settings.calibration else None
        self._placed = lru_cache(_KEPT)(self._place)

    def points(self, asked: Question, rows: Longs) -> Longs:
        """Return the most points for the least time, half of them for twice as much, one less for an idle device."""
        known = msgspec.json.encode(asked.task.operators)
        found = [self._of(asked, row, known) for row in rows.tolist()]
        points = by_least(np.array([one.seconds for one in found], np.float64))
        idle = [self._has_idle(asked, row, one) for row, one in zip(rows.tolist(), found, strict=True)]
        spared: Longs = np.maximum(points - np.array(idle, np.int64), 0)
        return spared

    def reason(self, asked: Question, row: int) -> str:
        """Return the device of each operator, and what that takes against the CPU alone."""
        placed = self._of(asked, row, msgspec.json.encode(asked.task.operators))
        if placed.explained is None:
            return placed.problem
        explained = placed.explained
        named = [f"{one.decision.work.name} on the {one.device}" for one in explained.operators[:_SHOWN]]
        more = len(explained.operators) - len(named)
        unknown = sum(not one.decision.times for one in explained.operators)
        return (
            f"{', '.join(named)}{f' and {more} more' if more > 0 else ''}: {explained.placed_s:.4g} s by the model,"
            f" {explained.cpu_s:.4g} s on CPUs alone"
            f"{f'; the time of {unknown} is not known, they stay on the cpu' if unknown else ''}"
        )

    def operator_devices(self, asked: Question, row: int) -> tuple[OperatorDevice, ...]:
        """Return the kind of device of each operator on an option's units; nothing where nothing can be said."""
        placed = self._of(asked, row, msgspec.json.encode(asked.task.operators))
        kinds = {one.label: one.kind for one in self._hardware.accelerators}
        found = tuple(
            OperatorDevice(operator=one.decision.work.name, device=kinds.get(one.device, DeviceKind.CPU))
            for one in (placed.explained.operators if placed.explained else ())
        )
        return found if len(text_of(found)) <= MOST_LETTERS else ()

    def _of(self, asked: Question, row: int, operators: bytes) -> _Placed:
        if not asked.task.operators:
            return _Placed(None, "nothing is known of what it computes")
        if len(asked.task.operators) > MOST_OPERATORS:
            return _Placed(None, f"{len(asked.task.operators)} operators, no more than {MOST_OPERATORS} are placed")
        return self._placed(operators, offer_of(asked, row).devices, int(asked.options.units[row]))

    def _has_idle(self, asked: Question, row: int, placed: _Placed) -> bool:
        """Return whether a unit has a device, of those that the hardware file knows, that no operator has taken."""
        if placed.explained is None:
            return False
        kinds = offer_of(asked, row).devices
        taken = {one.device for one in placed.explained.operators}
        return any(one.label not in taken for one in self._hardware.accelerators if one.kind in kinds)

    def _place(self, operators: bytes, devices: frozenset[DeviceKind], units: int) -> _Placed:
        """Return where operators go on so many units with these devices; whoever submits a task says what he likes."""
        counts = msgspec.json.decode(operators, type=tuple[OperatorCount, ...])
        hardware = replace(
            self._hardware, machines=max(units, 1), transfer=self._hardware.transfer or TransferModel.PER_PATH
        )
        try:
            ground = ground_by_rate(hardware, self._rate_bps)
            known = MeasuredTimes(counts, self._calibration)
            plan = plan_of(known.graph, ground.machines.count, known)
            there = [one for one in ground.accelerators if one.kind in devices]
            return _Placed(explain(plan, ground.machines, there, preset=ground.preset))
        except (AccelerationError, OperatorError, ArithmeticError, ValueError, LookupError) as error:
            return _Placed(None, f"nothing can be said of its operators: {' '.join(str(error).split())}")
