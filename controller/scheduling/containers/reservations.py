"""Link load reserved for bound pods: the predicted bandwidth to their peers, so that it is not promised twice.

It is recomputed from the bound pods, so a pod's share is released with the pod. Traffic that a pair of hosts is
measured to send is already part of the measured link load and is not added again; a pair whose flows telemetry does
not see is added in full.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from controller.cluster.cost_map import Basis, CostMap, Load
from controller.scheduling.pods import Peer


@dataclass(frozen=True, slots=True)
class Reservation:
    """A bound pod's need towards a peer with a known host; `between` names both ends.

    If both ends need the same path to each other, it counts once, with the larger need.
    """

    host: str
    peer: Peer
    between: frozenset[str]


def reserved(held: Iterable[Reservation], costs: CostMap) -> tuple[Load, ...]:
    """Return the load that needs add to the measured load, in both directions; hosts missing from the map add none."""
    largest: dict[tuple[frozenset[str], frozenset[str]], Reservation] = {}
    for reservation in held:
        hosts = frozenset((reservation.host, reservation.peer.host))
        previous = largest.get((reservation.between, hosts))
        # Pods on the same host need no bandwidth between them.
        if len(hosts) == 2 and (previous is None or previous.peer.min_bps < reservation.peer.min_bps):
            largest[reservation.between, hosts] = reservation
    needed: defaultdict[tuple[str, str], int] = defaultdict(int)
    for reservation in largest.values():
        if reservation.host in costs.model.host_number and reservation.peer.host in costs.model.host_number:
            needed[reservation.host, reservation.peer.host] += reservation.peer.min_bps
            needed[reservation.peer.host, reservation.host] += reservation.peer.min_bps
    loads = (
        Load(src, dst, rate_bps - min(rate_bps, _already(costs, src, dst))) for (src, dst), rate_bps in needed.items()
    )
    return tuple(sorted((load for load in loads if load.rate_bps), key=lambda load: (load.src, load.dst)))


def _already(costs: CostMap, src: str, dst: str) -> int:
    """Return the rate of a pair that is already part of its links' measured load."""
    sent_bps = costs.sent_bps(src, dst)
    return sent_bps if sent_bps and costs.cost(src, dst).available_basis is Basis.MEASURED else 0


def with_reservations(costs: CostMap, held: Iterable[Reservation]) -> CostMap:
    """Return the cost map as others see it, with reservations."""
    loads = reserved(held, costs)
    return costs.with_reservations(loads) if loads else costs
