"""Network between nodes, from cost maps: one, several over time, or flow by flow under demand matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from controller.cluster.cost_map import CostMap, Load
from controller.common.errors import PathError
from controller.learning.environment.values import UNREACHABLE_NS, Longs, Network
from controller.learning.errors import LearningError
from controller.scheduling.simulation.sharing import Hop, Sharing
from controller.scheduling.simulation.units import MOST_BITS, MOST_BPS, ONE
from dataplane.topology.demands import DemandMatrix

LEAST_BPS: Final = 1_000_000
"""Minimum rate of a transfer if nothing is free: others make a little room for it."""


def of_costs(hosts: Sequence[str], costs: Mapping[int, CostMap], *, least_bps: int = LEAST_BPS) -> Network:
    """Return the network between hosts (the system's nodes, in its order) by cost maps, each from its time (ns) on.

    Transfers have the delay and the free bandwidth of the narrowest link, at least `least_bps`. Raises LearningError
    for a host that a map lacks.
    """
    figures = [_figures(hosts, cost_map, least_bps) for cost_map in costs.values()]
    return _network(list(costs), figures)


def under_demands(hosts: Sequence[str], costs: CostMap, demands: Mapping[int, DemandMatrix]) -> Network:
    """Return the network between hosts while others send by matrices, each from its time (ns) on, over a map's paths.

    Flow by flow: demands, each up to its rate, and one more transfer share links fairly (max-min, spread over a pair's
    paths as new flows are); its share is the bandwidth. Delays are the map's, given what the demands get on its links.
    Raises LearningError for a host that the map lacks.
    """
    return _network(list(demands), [_loaded(hosts, costs, matrix) for matrix in demands.values()])


def _network(times_ns: Sequence[int], figures: Sequence[tuple[Longs, Longs]]) -> Network:
    if not figures:
        raise LearningError("a network needs a cost map", at="network")
    delays, rates = zip(*figures, strict=True)
    return Network(np.array(times_ns, np.int64), np.stack(delays), np.stack(rates))


def _figures(hosts: Sequence[str], costs: CostMap, least_bps: int) -> tuple[Longs, Longs]:
    """Return delays and rates of [source, destination]."""
    numbers = np.array([_number(costs, host) for host in hosts], np.int64)
    chosen = np.ix_(numbers, numbers)
    delay_ns = costs.pairs.delay_ns[chosen]
    rate_bps = np.clip(costs.pairs.available_bps[chosen], least_bps, MOST_BPS)
    return delay_ns, np.where(delay_ns == UNREACHABLE_NS, 0, rate_bps)


def _loaded(hosts: Sequence[str], costs: CostMap, matrix: DemandMatrix) -> tuple[Longs, Longs]:
    """Return delays and rates of [source, destination] while a matrix is sent."""
    for name in matrix.nodes:
        _number(costs, name)
    pairs = [(src, dst, min(rate, MOST_BPS)) for src, dst, rate in matrix.pairs() if _hops(costs, src, dst)]
    links = np.minimum(np.maximum(costs.links.available_bps, 0), MOST_BPS).tolist()
    # A demand is a flow over a link of its own, as fast as requested.
    sharing = Sharing([*links, *(rate for _, _, rate in pairs)])
    flows = [
        sharing.add([*_hops(costs, src, dst), Hop(len(links) + number)], MOST_BITS, 0)
        for number, (src, dst, _) in enumerate(pairs)
    ]
    sharing.settle(0)
    loads = [Load(src, dst, sharing.rate_bps(flow)) for flow, (src, dst, _) in zip(flows, pairs, strict=True)]
    delay_ns, _ = _figures(hosts, costs.with_loads(loads), LEAST_BPS)
    rate_bps = np.zeros_like(delay_ns)
    for row, src in enumerate(hosts):
        for column, dst in enumerate(hosts):
            rate_bps[row, column] = _fair_bps(sharing, _hops(costs, src, dst)) if src != dst else MOST_BPS
    return delay_ns, rate_bps


def _fair_bps(sharing: Sharing, hops: Sequence[Hop]) -> int:
    """Return the bandwidth of one more transfer, 0 without a path."""
    if not hops:
        return 0
    flow = sharing.add(hops, MOST_BITS, 0)
    sharing.settle(0)
    rate_bps = sharing.rate_bps(flow)
    sharing.remove(flow)
    sharing.settle(0)
    return rate_bps


def _hops(costs: CostMap, src: str, dst: str) -> list[Hop]:
    """Return the links between two hosts with the share of each, none without a path."""
    start, end = costs.model.number(src), costs.model.number(dst)
    is_near = costs.model.host_switch[start] == costs.model.host_switch[end]
    inner = {row: max(round(share * ONE), 1) for row, share in costs.routing.shares(start, end).items()}
    if not inner and not is_near:
        return []
    ends = (costs.model.up.start + start, costs.model.down.start + end)
    return [Hop(ends[0]), *(Hop(int(row), share) for row, share in inner.items()), Hop(ends[1])]


def _number(costs: CostMap, host: str) -> int:
    try:
        return costs.model.number(host)
    except PathError as error:
        raise LearningError(str(error), at="network") from error
