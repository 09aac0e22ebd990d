"""Explicit paths of flows, which override the routes (p4/ingress/routing.p4: `ipv4_flow_paths`, `ipv6_flow_paths`)."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from itertools import pairwise
from typing import TypeAlias

from finsy import P4TableEntry, P4TableMatch

from controller.common.errors import ControllerError
from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.tables.entities import Entities, Entity, EntityKey, key_of, same
from controller.network.tables.routing import FAMILIES, Family, forward, host_addresses
from dataplane.topology.values import LinkKey, Topology

FLOW_TABLES = frozenset(family.flow_paths for family in FAMILIES)

_FIELDS = (("src_port", 4, 0xFFFF), ("dst_port", 2, 0xFFFF), ("protocol", 1, 0xFF))
"""Fields that a flow may name besides its hosts, with their weights in the priority: combinations have unique sums."""


RouteEntries: TypeAlias = tuple[tuple[str, EntityKey, Entity], ...]
"""A route's entries, each with its switch and key."""


def flow_path_entities(
    topology: Topology, routes: RouteSet, made: MutableMapping[Route, RouteEntries] | None = None
) -> dict[str, Entities]:
    """Return each switch's flow entries for a whole set of routes; every switch has a key.

    Routes in `made` reuse the entries there, those of others are added to it. Raise ControllerError for a route that
    the topology lacks, and for a flow that is routed twice.
    """
    entities: dict[str, dict[EntityKey, Entity]] = {node.name: {} for node in topology.switches}
    made, seen = {} if made is None else made, set[FlowSpec]()
    for route in routes.routes:
        if route.flow in seen:
            raise ControllerError(f"{describe(route)}: the flow is routed twice in version {routes.version}")
        seen.add(route.flow)
        if route not in made:
            check(topology, route)
            made[route] = tuple(_entries_of(topology, route))
        for switch, key, entity in made[route]:
            if not same(entities[switch].setdefault(key, entity), entity):
                raise ControllerError(f"{key}: requested twice with different content")
    return dict(entities)


def _entries_of(topology: Topology, route: Route) -> Iterator[tuple[str, EntityKey, Entity]]:
    for switch, port in hops_of(topology, route):
        for entity in _entries(topology, route.flow, switch, port):
            yield switch, key_of(entity), entity


def check(topology: Topology, route: Route) -> None:
    """Raise ControllerError unless the route is a simple path of links between its hosts' switches."""
    for host in (route.flow.src_host, route.flow.dst_host):
        if host not in topology.attachment:
            raise ControllerError(f"{describe(route)}: there is no host {host!r}")
    ends = tuple(topology.attachment[host].node for host in (route.flow.src_host, route.flow.dst_host))
    if not route.switches or (route.switches[0], route.switches[-1]) != ends:
        raise ControllerError(f"{describe(route)}: the path must run from {ends[0]} to {ends[1]}, the hosts' switches")
    if len(set(route.switches)) != len(route.switches):
        raise ControllerError(f"{describe(route)}: the path crosses a switch twice")
    for pair in pairwise(route.switches):
        if LinkKey(*pair) not in topology.directed_links:
            raise ControllerError(f"{describe(route)}: there is no link {LinkKey(*pair)}")


def hops_of(topology: Topology, route: Route) -> Iterator[tuple[str, int]]:
    """Yield (switch, port to leave by) along a checked route."""
    for tail, head in pairwise(route.switches):
        yield tail, topology.directed_links[LinkKey(tail, head)].tail.port
    yield route.switches[-1], topology.attachment[route.flow.dst_host].port


def describe(route: Route) -> str:
    """Return a route as errors and logs name it."""
    return f"route {route.flow.src_host}->{route.flow.dst_host} via {'-'.join(route.switches) or 'nothing'}"


def specificity(flow: FlowSpec) -> int:
    """Return a flow's priority in the tables, from 1: the more specific of a packet's flows wins."""
    return 1 + sum(weight for name, weight, _ in _FIELDS if getattr(flow, name) is not None)


def _entries(topology: Topology, flow: FlowSpec, switch: str, port: int) -> Iterator[Entity]:
    sources, destinations = host_addresses(topology, flow.src_host), host_addresses(topology, flow.dst_host)
    for family in FAMILIES:
        if family in sources and family in destinations:
            match, priority = _match(flow, family, sources[family], destinations[family])
            action = forward(topology, switch, port)
            yield P4TableEntry(family.flow_paths, match=match, action=action, priority=priority)


def _match(flow: FlowSpec, family: Family, src: int, dst: int) -> tuple[P4TableMatch, int]:
    """Return the match, and a priority that lets the more specific flow win."""
    whole = (1 << family.bits) - 1
    match = P4TableMatch(src_addr=(src, whole), dst_addr=(dst, whole))
    for name, _, mask in _FIELDS:
        value = getattr(flow, name)
        if value is not None:
            match[name] = (value, mask)
    return match, specificity(flow)
