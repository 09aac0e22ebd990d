"""Small Clos fabrics, and flows on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from controller.network.algorithms.link_table import Longs
from controller.network.paths.balancing.forwarding import Forwarding
from controller.network.paths.balancing.group_traffic import Footprints
from controller.network.paths.balancing.rebalance import Change, Rebalancing
from controller.network.paths.balancing.values import GroupKey, LinkWeights, MeasuredFlow
from controller.network.paths.deciding.graph import Network
from controller.network.paths.settings import BalanceSettings
from dataplane.topology.families import leaf_spine
from dataplane.topology.values import LinkKey, Topology

MBPS = 1_000_000


def fabric(spines: int = 2, slow: Sequence[tuple[str, str]] = (), leaves: int = 3) -> Topology:
    """Return leaves and spines with links of 10 Mbit/s, slow ones of 5 Mbit/s."""
    made = leaf_spine(spines, leaves, 2, rate="10 Mbit/s")
    ends = {frozenset(pair) for pair in slow}
    links = tuple(
        replace(link, rate_bps=5 * MBPS) if frozenset((link.a.node, link.b.node)) in ends else link
        for link in made.links
    )
    return replace(made, links=links)


def forwarding_of(network: Network, weights: Mapping[GroupKey, LinkWeights] | None = None) -> Forwarding:
    """Return the forwarding with all links alive."""
    alive = np.ones(len(network.table.links), np.bool_)
    return Forwarding(network.topology, network.base_trees, alive, weights or {})


def row(network: Network, tail: str, head: str) -> int:
    """Return a link's row."""
    return network.table.link_number[LinkKey(tail, head)]


def make_flow(
    forwarding: Forwarding, network: Network, hashed: int, path: tuple[str, ...], rate_bps: float
) -> MeasuredFlow:
    """Return a flow between the ends of a path; with only two switches given, its hash decides the rest."""
    source, destination = (network.table.switch_number[name] for name in (path[0], path[-1]))
    rows = network.rows(path) if len(path) > 2 else forwarding.path(hashed, source, destination)
    assert rows is not None
    return MeasuredFlow(hashed, rows, source, destination, round(rate_bps), rate_bps / 8000, 1e9)


def make_flows(
    network: Network, src: str, dst: str, counts: Mapping[str, int], rate_bps: float, start: int = 0
) -> list[MeasuredFlow]:
    """Return flows with this many hashed to each spine, with hashes from `start` on."""
    forwarding, left, flows, hashed = forwarding_of(network), dict(counts), [], start
    while any(left.values()):
        hashed = (hashed + 0x9E3779B1) % (1 << 32)
        flow = make_flow(forwarding, network, hashed, (src, dst), rate_bps)
        spine = network.table.links[flow.rows[0]].dst
        if left.get(spine, 0):
            left[spine] -= 1
            flows.append(flow)
    return flows


def loads(
    network: Network, flows: Sequence[MeasuredFlow], other: Mapping[tuple[str, str], float] | None = None
) -> Longs:
    """Return the loads of links from flows and other traffic."""
    loads_bps = np.zeros(len(network.table.links), np.int64)
    for flow in flows:
        loads_bps[list(flow.rows)] += flow.rate_bps
    for (tail, head), bps in (other or {}).items():
        loads_bps[row(network, tail, head)] += round(bps)
    return loads_bps


def rebalancing(
    network: Network,
    flows: Sequence[MeasuredFlow],
    load_bps: Longs,
    crowded: Sequence[tuple[str, str]],
    weights: Mapping[GroupKey, LinkWeights] | None = None,
) -> Rebalancing:
    """Return a round without telemetry's own load, with exact rates and a headroom of a fifth."""
    return Rebalancing(
        forwarding_of(network, weights),
        Footprints(network, None),
        flows,
        load_bps=load_bps,
        limit_bps=(network.table.rate_bps * 0.8).astype(np.int64),
        crowded=tuple(row(network, *link) for link in crowded),
        hidden=1.0,
    )


def relieved(round_: Rebalancing) -> list[Change]:
    """Return the changes of a round in which every group is free."""
    return round_.relieve(lambda _: True, BalanceSettings())
