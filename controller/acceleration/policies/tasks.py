"""The task policy by which operators choose devices: by their modelled time on each centre's units."""

from __future__ import annotations

import math

import numpy as np

from controller.acceleration.policies.between import UnitNetworks
from controller.acceleration.policies.choosing import Chooser, Placed, key_of
from controller.apiserver.resources.operator_devices import OperatorDevice
from controller.scheduling.framework.policies import Longs
from controller.scheduling.tasks.scores import by_least
from controller.scheduling.tasks.values import PendingTask, TimedOptions
from dataplane.config import Strict
from dataplane.topology.units import parse_rate_bps


class OperatorDevices:
    """Prefers units that give the task's operators the least time, with the model choosing each device.

    A unit counts as one of the machines that share the job. Devices that no operator would use are better left to
    others: among equally fast units, those without idle devices come first. Operators of unknown time stay on the CPU
    and do not count; a task that does not state its operators is skipped.
    """

    class Settings(Strict, frozen=True):
        """The file of the units' hardware, the rate between two units of a centre, and the file of a calibration.

        Without the first, units with a GPU have the calibration's, or the built-in one's. The rate is used if the cost
        map does not know a centre's hosts, or it is only one. Without a calibration, operators that a task's trace has
        not timed are unknown.
        """

        hardware: str = ""
        rate: str = "10 Gbit/s"
        calibration: str = ""

    def __init__(self, settings: Settings) -> None:
        self._chooser = Chooser(settings.hardware, settings.calibration)
        self._networks = UnitNetworks(self._chooser.hardware, parse_rate_bps(settings.rate))

    def points(self, task: PendingTask, timed: TimedOptions, rows: Longs) -> Longs:
        """Return the most points for the least time, half of them for twice as much, minus one for an idle device.

        None for units without a network between them.
        """
        key = key_of(task.operators)
        placements = [self._of(task, timed, row, key) for row in rows.tolist()]
        points = by_least(
            np.array([math.inf if placed is None else placed.seconds for placed in placements], np.float64)
        )
        idle = [self._has_idle(timed, row, placed) for row, placed in zip(rows.tolist(), placements, strict=True)]
        spared: Longs = np.maximum(points - np.array(idle, np.int64), 0)
        return spared

    def reason(self, task: PendingTask, timed: TimedOptions, row: int) -> str:
        """Return each operator's device, the time relative to the CPU alone, and the speed of the network."""
        placed = self._of(task, timed, row, key_of(task.operators))
        between = self._networks.of(timed.view.costs, self._hosts(timed, row), self._units(timed, row))
        if placed is None:
            return between.problem
        if placed.explained is None or not between.is_from_costs or between.network is None:
            return placed.reason
        return f"{placed.reason}; {between.network.rate_gbit_per_s:.2g} Gbit/s between its units by the cost map"

    def operator_devices(self, task: PendingTask, timed: TimedOptions, row: int) -> tuple[OperatorDevice, ...]:
        """Return the kind of device of each operator on an option's units; nothing if unknown."""
        placed = self._of(task, timed, row, key_of(task.operators))
        return () if placed is None else placed.devices(self._chooser.kinds)

    def _of(self, task: PendingTask, timed: TimedOptions, row: int, key: bytes) -> Placed | None:
        """Return the placement of operators on an option's units; None without a path between these."""
        units = self._units(timed, row)
        between = self._networks.of(timed.view.costs, self._hosts(timed, row), units)
        if between.network is None:
            return None
        has = timed.offer(row).devices
        accelerators = tuple(
            accelerator for accelerator in self._chooser.hardware.accelerators if accelerator.kind in has
        )
        corrections = self._corrections(task, timed, row)
        switch = self._networks.switch(timed.view.costs, self._hosts(timed, row), units)
        return self._chooser.place(task.operators, key, accelerators, between.network, units, corrections, switch)

    def _corrections(self, task: PendingTask, timed: TimedOptions, row: int) -> tuple[tuple[str, float], ...]:
        """Return an option's factors of calibrated times by kind, for tasks of this type."""
        centre = timed.view.centres[timed.offer(row).centre]
        of_type = dict(centre.type_corrections).get(task.task_type, 1.0)
        by_kind = dict(centre.corrections)
        kinds = {operator.operator for operator in task.operators}
        return tuple(sorted((kind, of_type * by_kind.get(kind, 1.0)) for kind in kinds))

    def _hosts(self, timed: TimedOptions, row: int) -> tuple[str, ...]:
        return timed.view.centres[timed.offer(row).centre].hosts

    def _units(self, timed: TimedOptions, row: int) -> int:
        return int(timed.options.units[row])

    def _has_idle(self, timed: TimedOptions, row: int, placed: Placed | None) -> bool:
        """Return whether a unit has a device known to the hardware file that no operator uses."""
        if placed is None or placed.explained is None:
            return False
        has = timed.offer(row).devices
        return any(label not in placed.labels for label, kind in self._chooser.kinds.items() if kind in has)
