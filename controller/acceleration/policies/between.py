"""Network between the units of a centre: the cost map's paths between its hosts, else one rate from the settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from controller.acceleration.errors import AccelerationError
from controller.acceleration.network.hardware import Hardware
from controller.acceleration.network.switches import SwitchTree, switch_tree
from controller.acceleration.network.timing import near_order, timed
from controller.acceleration.network.trees import reduction_tree
from controller.acceleration.values import Network, Round
from controller.cluster.cost_map import CostMap

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
    _trees: dict[tuple[tuple[str, ...], int], SwitchTree | str] = field(default_factory=dict)

    def of(self, costs: CostMap | None, hosts: Sequence[str], units: int) -> Between:
        """Return the network between so many units of a centre on these hosts of the topology."""
        if costs is None or units < 2:
            return self._by_rate()
        mapped = tuple(name for name in hosts if name in costs.model.host_number)
        if len(mapped) < 2:
            return self._by_rate()
        self._renew(costs)
        key = (mapped, units)
        if (between := self._kept.get(key)) is None:
            between = self._kept[key] = self._over(costs, mapped, units)
        return between

    def switch(self, costs: CostMap | None, hosts: Sequence[str], units: int) -> SwitchTree | None:
        """Return the tree of switches that could add up sums of so many units, one on each host; None without one."""
        if costs is None or self.hardware.switch is None or not 2 <= units <= min(len(hosts), MOST_HOSTS):
            return None
        mapped = tuple(name for name in hosts if name in costs.model.host_number)
        if len(mapped) < units:
            return None
        self._renew(costs)
        key = (mapped, units)
        if (tree := self._trees.get(key)) is None:
            # The workers of a centre's tasks are the first of its hosts.
            found = switch_tree(costs, mapped[:units], self.hardware.switch)
            tree = found if isinstance(found, str) else replace(found, s_per_gb=_coarse(found.s_per_gb))
            self._trees[key] = tree
        return None if isinstance(tree, str) else tree

    def _renew(self, costs: CostMap) -> None:
        if costs is not self._costs:
            self._costs, self._kept, self._trees = costs, {}, {}

    def _by_rate(self) -> Between:
        return Between(Network(self.hardware.rate_gbit_per_s(self.rate_bps)))

    def _over(self, costs: CostMap, hosts: tuple[str, ...], units: int) -> Between:
        near = near_order(costs.model, hosts)[: min(units, MOST_HOSTS)]
        try:
            tree = reduction_tree(near, self.hardware.fan_in, self.hardware.aggregators)
            hardware = self.hardware
            timed_tree = timed(costs, tree, efficiency=hardware.network_efficiency, host_bps=hardware.host_rate_bps)
        except AccelerationError as error:
            return Between(None, is_from_costs=True, problem=str(error))
        rounds = tuple(
            Round(_coarse(part.s_per_gb), _coarse(part.delay_s), _coarse(part.grown_s_per_gb))
            for part in timed_tree.rounds
        )
        rate = _coarse(timed_tree.rate_gbit_per_s)
        return Between(Network(rate, rounds if len(near) == units else None), is_from_costs=True)


def _coarse(figure: float) -> float:
    if figure <= 0 or math.isinf(figure):
        return figure
    return float(10 ** (round(math.log10(figure) * _STEPS) / _STEPS))
