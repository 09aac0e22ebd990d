"""Random small fabrics with telemetry and routes."""

from __future__ import annotations

import random

from collectors.values import DelaySource, LinkCondition, LinkState, LinkStatus, Snapshot
from controller.cluster.cost_map import HostLinkState
from controller.network.base_paths import next_hops
from controller.network.intents import FlowSpec, Route, RouteSet, WeightedRoute
from dataplane.topology.families import from_text
from dataplane.topology.values import LinkKey, Topology

FABRICS = (
    "ring:switches=5,hosts=2",
    "leaf-spine:spines=3,leaves=3,hosts=2",
    "fat-tree:k=4",
)


def fabric(name: str) -> Topology:
    return from_text(name)


def link_state(topology: Topology, key: LinkKey, rng: random.Random) -> LinkState:
    """Return random telemetry of a link, some of it stale, some without loss."""
    rate_bps = topology.directed_links[key].rate_bps
    delay_ns = rng.randrange(1, 10_000_000)
    return LinkState(
        link=key,
        rate_bps=rate_bps,
        delay_mean_ns=delay_ns,
        delay_p50_ns=delay_ns,
        delay_p99_ns=delay_ns,
        queue_occupancy_frames=0.0,
        utilisation=0.5,
        available_bps=rng.randrange(rate_bps + 1),
        loss=rng.choice((None, 0.0, rng.random() ** 4)),
        age_ns=rng.choice((0, 5_000, 10**12)),
        samples=rng.randrange(1, 9),
        source=DelaySource.STAMPS,
    )


def snapshot(topology: Topology, rng: random.Random, dead: int = 0) -> Snapshot:
    """Return a snapshot with telemetry of most links that leave a switch; some are down."""
    leaving = [key for key in topology.directed_links if key.src in topology.switch]
    told = [key for key in leaving if rng.random() < 0.8]
    inner = [key for key in leaving if key.dst in topology.switch]
    down = {key: LinkStatus(LinkCondition.DOWN, 0) for key in rng.sample(inner, dead)}
    return Snapshot(7, {key: link_state(topology, key, rng) for key in told}, {}, {}, statuses=down)


def host_links(topology: Topology, rng: random.Random) -> list[HostLinkState]:
    """Return some hosts' measurements of their own links, some of them stale."""
    names = [node.name for node in topology.hosts if rng.random() < 0.5]
    return [
        HostLinkState(
            name,
            rng.randrange(topology.directed_links[LinkKey(name, topology.attachment[name].node)].rate_bps),
            rng.choice((0, 9_000_000_000, 10**12)),
        )
        for name in names
    ]


def route_set(topology: Topology, rng: random.Random) -> RouteSet:
    """Return explicit paths of some pairs, and weights of some groups of equally good links."""
    hops = next_hops(topology)
    weighted = [
        WeightedRoute(switch, destination, tuple((link.head.node, rng.randrange(1, 9)) for link in links))
        for destination, onward in hops.items()
        for switch, links in onward.items()
        if rng.random() < 0.4
    ]
    routes = []
    for _ in range(4):
        src, dst = (node.name for node in rng.sample(topology.hosts, 2))
        path = [topology.attachment[src].node]
        while path[-1] != topology.attachment[dst].node:
            path.append(rng.choice(hops[topology.attachment[dst].node][path[-1]]).head.node)
        routes.append(Route(FlowSpec(src, dst), tuple(path)))
        routes.append(Route(FlowSpec(src, dst, 17, 1, 2), tuple(path)))
    unique = {route.flow: route for route in routes}
    return RouteSet(1, tuple(unique.values()), tuple(weighted))
