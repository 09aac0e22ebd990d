"""The task policy by which operators choose devices: by their modelled time on each centre's units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from controller.acceleration.errors import AccelerationError
from controller.acceleration.network.hardware import Hardware
from controller.acceleration.network.timing import near_order, timed
from controller.acceleration.network.trees import reduction_tree
from controller.acceleration.policies.choosing import Chooser, Placed, key_of
from controller.acceleration.values import Network, Round
from controller.apiserver.resources.operator_devices import OperatorDevice
from controller.cluster.cost_map import CostMap
from controller.scheduling.dispatch.filters import offer_of
from controller.scheduling.dispatch.policies import Question
from controller.scheduling.dispatch.scores import by_least
from controller.scheduling.dispatch.values import Longs
from dataplane.config import Strict
from dataplane.topology.units import parse_rate_bps

MOST_HOSTS: Final = 16
"""Hosts that represent a larger centre: a tree over them takes milliseconds, one over a thousand takes seconds."""
_STEPS: Final = 50
"""Steps per factor of ten into which times are quantised, 4.7 % each.

Measurements always fluctuate, and each distinct figure would need another computation.
"""


@dataclass(frozen=True, slots=True)
class Between:
    """The network of a job's machines, or why there is none. `is_from_costs` tells whether it is from a cost map."""

    network: Network | None
    is_from_costs: bool = False
    problem: str = ""


@dataclass(slots=True)
class UnitNetworks:
    """Networks between units. Units are on one host each, near ones first; with more units than hosts the rate is used.

    Results are cached until there is another cost map.
    """

    hardware: Hardware
    rate_bps: float
    _costs: CostMap | None = None
    _kept: dict[tuple[tuple[str, ...], int], Between] = field(default_factory=dict)

    def of(self, costs: CostMap | None, hosts: Sequence[str], units: int) -> Between:
        """Return the network between so many units of a centre on these hosts of the topology."""
        if costs is None or units < 2:
            return self._by_rate()
        known = tuple(name for name in hosts if name in costs.model.host_number)
        if len(known) < 2:
            return self._by_rate()
        if costs is not self._costs:
            self._costs, self._kept = costs, {}
        key = (known, units)
        if (found := self._kept.get(key)) is None:
            found = self._kept[key] = self._over(costs, known, units)
        return found

    def _by_rate(self) -> Between:
        return Between(Network(self.hardware.rate_gbit_per_s(self.rate_bps)))

    def _over(self, costs: CostMap, hosts: tuple[str, ...], units: int) -> Between:
        near = near_order(costs.model, hosts)[: min(units, MOST_HOSTS)]
        try:
            tree = reduction_tree(near, self.hardware.fan_in, self.hardware.aggregators)
            hardware = self.hardware
            found = timed(costs, tree, efficiency=hardware.network_efficiency, host_bps=hardware.host_rate_bps)
        except AccelerationError as error:
            return Between(None, is_from_costs=True, problem=str(error))
        rounds = tuple(
            Round(_coarse(one.s_per_gb), _coarse(one.delay_s), _coarse(one.grown_s_per_gb)) for one in found.rounds
        )
        rate = _coarse(found.rate_gbit_per_s)
        return Between(Network(rate, rounds if len(near) == units else None), is_from_costs=True)


def _coarse(figure: float) -> float:
    if figure <= 0 or math.isinf(figure):
        return figure
    return float(10 ** (round(math.log10(figure) * _STEPS) / _STEPS))


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

    def points(self, asked: Question, rows: Longs) -> Longs:
        """Return the most points for the least time, half of them for twice as much, minus one for an idle device.

        None for units without a network between them.
        """
        known = key_of(asked.task.operators)
        found = [self._of(asked, row, known) for row in rows.tolist()]
        points = by_least(np.array([math.inf if one is None else one.seconds for one in found], np.float64))
        idle = [self._has_idle(asked, row, one) for row, one in zip(rows.tolist(), found, strict=True)]
        spared: Longs = np.maximum(points - np.array(idle, np.int64), 0)
        return spared

    def reason(self, asked: Question, row: int) -> str:
        """Return each operator's device, the time relative to the CPU alone, and the speed of the network."""
        placed = self._of(asked, row, key_of(asked.task.operators))
        between = self._networks.of(asked.view.costs, self._hosts(asked, row), self._units(asked, row))
        if placed is None:
            return between.problem
        if placed.explained is None or not between.is_from_costs or between.network is None:
            return placed.reason
        return f"{placed.reason}; {between.network.rate_gbit_per_s:.2g} Gbit/s between its units by the cost map"

    def operator_devices(self, asked: Question, row: int) -> tuple[OperatorDevice, ...]:
        """Return the kind of device of each operator on an option's units; nothing if unknown."""
        placed = self._of(asked, row, key_of(asked.task.operators))
        return () if placed is None else placed.devices(self._chooser.kinds)

    def _of(self, asked: Question, row: int, known: bytes) -> Placed | None:
        """Return the placement of operators on an option's units; None without a path between these."""
        units = self._units(asked, row)
        between = self._networks.of(asked.view.costs, self._hosts(asked, row), units)
        if between.network is None:
            return None
        has = offer_of(asked, row).devices
        accelerators = tuple(one for one in self._chooser.hardware.accelerators if one.kind in has)
        return self._chooser.place(asked.task.operators, known, accelerators, between.network, units)

    def _hosts(self, asked: Question, row: int) -> tuple[str, ...]:
        return asked.view.centres[offer_of(asked, row).centre].hosts

    def _units(self, asked: Question, row: int) -> int:
        return int(asked.options.units[row])

    def _has_idle(self, asked: Question, row: int, placed: Placed | None) -> bool:
        """Return whether a unit has a device known to the hardware file that no operator uses."""
        if placed is None or placed.explained is None:
            return False
        has = offer_of(asked, row).devices
        return any(label not in placed.labels for label, kind in self._chooser.kinds.items() if kind in has)
