"""Choose the link that the demo congests, and the flows that congest it.

The link is the busiest one that traffic can bypass. If both its ends have hosts, one stream between them overloads it.
Otherwise (in a Clos fabric, whose spines have no hosts) the hosts at its tail send elsewhere, and a dry run of the real
program finds the ports that the switches' ECMP hash maps to this link.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import networkx as nx

from controller.network.base_paths import base_paths, next_hops
from controller.network.intents import FlowSpec
from controller.network.virtual import VirtualController
from dataplane.errors import FabricError
from dataplane.fabric.hosts import Flow, flow_between
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.fabric.virtual.routes import RouteFinder
from dataplane.topology.values import LinkKey, Topology

_LEAST_SHARE = 0.1
"""Minimum surge as a share of the link's rate, however full the link is."""

_ACCESS_SHARE = 0.9
"""Maximum share of its hosts' own links, which no path avoids."""

_MOST_SENDERS = 4
_TRIES = 32


@dataclass(frozen=True, slots=True)
class Surge:
    """One stream of the surge; its number determines its ports."""

    number: int
    flow: FlowSpec
    rate_bps: float


def plan_surge(
    topology: Topology, load: Mapping[LinkKey, float], overload: float, first_number: int
) -> tuple[LinkKey, tuple[Surge, ...]]:
    """Return the link to congest and the streams, numbered from `first_number` on, that load it to `overload`.

    Raises FabricError if no link has hosts that can fill it and a way around it.
    """
    hosts = _hosts_by_switch(topology)
    usable = sorted(_with_detour(topology), key=lambda key: (load.get(key, 0.0) / _rate(topology, key), key))
    # Begin at the fullest link, which needs the smallest surge.
    for key in reversed(usable):
        if key.src in hosts and key.dst in hosts:
            flow = FlowSpec(hosts[key.src][0], hosts[key.dst][0])
            return key, (Surge(first_number, flow, _missing_bps(topology, load, key, overload)),)
    for key in reversed(usable):
        surges = _by_hash(topology, load, key, overload=overload, first_number=first_number)
        if surges:
            return key, surges
    raise FabricError(f"topology {topology.name}: no link has hosts that can fill it and a way around it")


def base_load_bps(topology: Topology, demands_bps: Mapping[tuple[str, str], float]) -> dict[LinkKey, float]:
    """Return the load that base routes put on each directed link between switches (equal-cost paths share evenly)."""
    hops = next_hops(topology)
    load: dict[LinkKey, float] = {}
    for (src, dst), rate_bps in demands_bps.items():
        paths = list(base_paths(hops, topology.attachment[src].node, topology.attachment[dst].node))
        for path in paths:
            for tail, head in pairwise(path):
                load[LinkKey(tail, head)] = load.get(LinkKey(tail, head), 0.0) + rate_bps / len(paths)
    return load


def base_paths_taken(topology: Topology, flows: Sequence[tuple[str, Flow]]) -> dict[int, tuple[str, ...]]:
    """Return the switches that a packet of each flow (host, flow) crosses by the base routes, by the flow's number.

    The program itself decides, in a fabric of its own.
    """
    fabric = VirtualFabric(topology)
    controller = VirtualController.over(fabric, watches=(), watch_ports=False)
    filled = set[str]()

    def fill(switch: str) -> None:
        # Only those that a flow crosses: filling a thousand takes a minute.
        if switch not in filled:
            filled.add(switch)
            controller.fill(switch)

    finder = RouteFinder(fabric, fill)
    return {flow.flow_id: finder.find(host, flow).switches for host, flow in flows}


def _by_hash(
    topology: Topology, load: Mapping[LinkKey, float], key: LinkKey, *, overload: float, first_number: int
) -> tuple[Surge, ...]:
    """Return streams from hosts at the link's tail, with ports that make their packets cross the link.

    Empty if they cannot fill the link.
    """
    hosts = _hosts_by_switch(topology)
    pairs = list(_pairs_over(topology, hosts, key))
    if not pairs:
        return ()
    # Equal parts, so that the path server can move some where the whole would not fit.
    rate_bps = min(
        _missing_bps(topology, load, key, overload) / len(pairs),
        *(_access_left_bps(topology, load, hosts, host) for pair in pairs for host in pair),
    )
    tries = [
        (pair, flow_between(topology, first_number + index * _TRIES + number, *pair, 1_000_000, frame_bytes=100))
        for index, pair in enumerate(pairs)
        for number in range(_TRIES)
    ]
    paths = base_paths_taken(topology, [(pair[0], flow) for pair, flow in tries])
    chosen: dict[tuple[str, str], Surge] = {}
    for pair, flow in tries:
        if (key.src, key.dst) in pairwise(paths.get(flow.flow_id, ())):
            chosen.setdefault(pair, Surge(flow.flow_id, FlowSpec(*pair), rate_bps))
    total_bps = load.get(key, 0.0) + rate_bps * len(chosen)
    return tuple(chosen.values()) if total_bps > _rate(topology, key) else ()


def _pairs_over(topology: Topology, hosts: Mapping[str, Sequence[str]], key: LinkKey) -> Iterator[tuple[str, str]]:
    """Yield pairs of hosts, each host once, from the link's tail to destinations of base routes over the link."""
    hops = next_hops(topology)
    far = [
        names
        for switch, names in sorted(hosts.items())
        if switch != key.src and any(link.key == key for link in hops[switch].get(key.src, ()))
    ]
    # One host per switch first: streams to different switches diverge after the link.
    receivers = [host for row in zip_longest(*far) for host in row if host is not None]
    yield from zip(hosts.get(key.src, ())[:_MOST_SENDERS], receivers, strict=False)


def _access_left_bps(
    topology: Topology, load: Mapping[LinkKey, float], hosts: Mapping[str, Sequence[str]], host: str
) -> float:
    """Estimate the free rate of a host's link: its switch's traffic to others is shared evenly by its hosts."""
    switch = topology.attachment[host].node
    carried = max(
        sum(rate_bps for key, rate_bps in load.items() if key.src == switch),
        sum(rate_bps for key, rate_bps in load.items() if key.dst == switch),
    )
    rate_bps = _rate(topology, LinkKey(host, switch))
    return max(_LEAST_SHARE * rate_bps, _ACCESS_SHARE * rate_bps - carried / len(hosts[switch]))


def _missing_bps(topology: Topology, load: Mapping[LinkKey, float], key: LinkKey, overload: float) -> float:
    rate_bps = _rate(topology, key)
    return max(overload * rate_bps - load.get(key, 0.0), _LEAST_SHARE * rate_bps)


def _rate(topology: Topology, key: LinkKey) -> int:
    return topology.directed_links[key].rate_bps


def _hosts_by_switch(topology: Topology) -> dict[str, list[str]]:
    """Return the hosts of each switch that has any, without the collector's."""
    collector = topology.collector.host if topology.collector else None
    hosts: dict[str, list[str]] = {}
    for host, edge in topology.attachment.items():
        if host != collector:
            hosts.setdefault(edge.node, []).append(host)
    return hosts


def _with_detour(topology: Topology) -> Iterator[LinkKey]:
    graph = nx.Graph()
    between = [key for key in topology.directed_links if key.src in topology.switch and key.dst in topology.switch]
    graph.add_edges_from((key.src, key.dst) for key in between)
    bridges = {frozenset(pair) for pair in nx.bridges(graph)}
    yield from (key for key in between if frozenset((key.src, key.dst)) not in bridges)
