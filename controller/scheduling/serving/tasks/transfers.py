"""Transfer time per byte from data to centres, by the cost map of the topology's hosts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from controller.cluster.cost_map import Basis, CostMap
from controller.scheduling.tasks.values import CentreState, PendingTask

_BITS: Final = 8


def transfers(
    costs: CostMap | None, centres: Iterable[CentreState], tasks: Sequence[PendingTask]
) -> dict[tuple[str, str], tuple[float, bool]]:
    """Return seconds per byte by host and centre, and whether that is measured; infinite if unreachable.

    The best of a centre's hosts counts. Centres that are not hosts of the topology, and hosts that it does not have,
    are left out: the network's state does not apply to them.
    """
    hosts = sorted({read.host for task in tasks for read in task.reads})
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
