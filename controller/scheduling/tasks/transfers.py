"""Transfer time per byte from data to centres, and between centres, by the cost map of the topology's hosts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, permutations, product
from typing import Final

from controller.cluster.cost_map import Basis, CostMap
from controller.scheduling.tasks.values import CentreState, PendingTask, Way

_BITS: Final = 8
_MOST_HOSTS: Final = 8
"""Hosts of a centre, in its order, between which the best way to another centre is sought."""
_SAMPLED: Final = 8
"""Centres whose ways to one another stand for all."""


class Ways:
    """Ways between centres, each computed when it is first asked for; the best of their hosts' counts."""

    def __init__(self, costs: CostMap | None, centres: Mapping[str, CentreState]) -> None:
        self._costs, self._centres = costs, centres
        self._known: dict[tuple[str, str], Way | None] = {}

    def __call__(self, source: str, centre: str) -> Way | None:
        """Return seconds per byte between two centres, and whether they are measured.

        None if one of them has no host in the topology: the network's state does not apply to it.
        """
        pair = (source, centre)
        if pair not in self._known:
            self._known[pair] = self._way(source, centre)
        return self._known[pair]

    @property
    def mean_s_per_byte(self) -> float:
        """Mean seconds per byte between two different centres, 0 if no way is known."""
        sampled = islice(sorted(self._centres), _SAMPLED)
        ways = [way for source, centre in permutations(sampled, 2) if (way := self(source, centre)) is not None]
        seconds = [way[0] for way in ways if math.isfinite(way[0])]
        return math.fsum(seconds) / len(seconds) if seconds else 0.0

    def _way(self, source: str, centre: str) -> Way | None:
        costs = self._costs
        pairs = product(self._hosts(source), self._hosts(centre))
        ways = [] if costs is None else [_seconds_per_byte(costs, host, to) for host, to in pairs]
        return min(ways, key=lambda way: way[0], default=None)

    def _hosts(self, centre: str) -> list[str]:
        state = self._centres.get(centre)
        if state is None or self._costs is None:
            return []
        return [host for host in state.hosts if host in self._costs.model.host_number][:_MOST_HOSTS]


def transfers(
    costs: CostMap | None, centres: Iterable[CentreState], tasks: Sequence[PendingTask]
) -> dict[tuple[str, str], tuple[float, bool]]:
    """Return seconds per byte by host and centre, and whether that is measured; infinite if unreachable.

    The best of a centre's hosts counts. Centres that are not hosts of the topology, and hosts that it does not have,
    are left out: the network's state does not apply to them.
    """
    hosts = sorted({read.host for task in tasks for read in task.reads if not read.centre})
    if costs is None or not hosts:
        return {}
    numbers = costs.model.host_number
    times = {}
    for centre in centres:
        names = [name for name in centre.hosts if name in numbers]
        for host in hosts:
            if names and host in numbers:
                times[host, centre.name] = min(
                    (_seconds_per_byte(costs, host, name) for name in names), key=lambda pair: pair[0]
                )
    return times


def _seconds_per_byte(costs: CostMap, host: str, to: str) -> tuple[float, bool]:
    if host == to:
        return 0.0, True
    cost = costs.cost(host, to)
    if not cost.is_reachable or cost.available_bps <= 0:
        return math.inf, cost.available_basis is Basis.MEASURED
    return _BITS / cost.available_bps, cost.available_basis is Basis.MEASURED
