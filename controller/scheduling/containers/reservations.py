"""What bound pods add to links: the bandwidth that they need to their peers is predicted, so that nobody gets it twice.

It is worked out anew from what is bound, and so is free again with the pod. What a pair of hosts is measured to send
already is in the measured load of the links, and is not added a second time; where telemetry does not see the flows of
a pair, its need is added whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from controller.cluster.cost_map import Basis, CostMap, Load
from controller.scheduling.framework import Peer


@dataclass(frozen=True, slots=True)
class Reservation:
    """A bound pod's need towards a peer, whose host is known; `between` names both ends.

    Two ends that need the same way of each other need it once: the larger of both.
    """

    host: str
    peer: Peer
    between: frozenset[str]


def reserved(held: Iterable[Reservation], costs: CostMap) -> tuple[Load, ...]:
    """Return the load that needs add to what is measured, in both directions; hosts that the map lacks add none."""
    largest: dict[tuple[frozenset[str], frozenset[str]], Reservation] = {}
    for one in held:
        hosts = frozenset((one.host, one.peer.host))
        known = largest.get((one.between, hosts))
        if len(hosts) == 2 and (known is None or known.peer.min_bps < one.peer.min_bps):
            largest[one.between, hosts] = one
    needed: defaultdict[tuple[str, str], int] = defaultdict(int)
    for one in largest.values():
        if one.host in costs.model.host_number and one.peer.host in costs.model.host_number:
            needed[one.host, one.peer.host] += one.peer.min_bps
            needed[one.peer.host, one.host] += one.peer.min_bps
    loads = (
        Load(src, dst, rate_bps - min(rate_bps, _already(costs, src, dst))) for (src, dst), rate_bps in needed.items()
    )
    return tuple(sorted((load for load in loads if load.rate_bps), key=lambda load: (load.src, load.dst)))


def _already(costs: CostMap, src: str, dst: str) -> int:
    """Return what a pair sends that is in the measured load of its links."""
    sent_bps = costs.sent_bps(src, dst)
    return sent_bps if sent_bps and costs.cost(src, dst).available_basis is Basis.MEASURED else 0


def with_reservations(costs: CostMap, held: Iterable[Reservation]) -> CostMap:
    """Return the cost map that others see: with what is reserved."""
    loads = reserved(held, costs)
    return costs.with_reservations(loads) if loads else costs
