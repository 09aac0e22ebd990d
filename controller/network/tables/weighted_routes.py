"""Weighted routes: checked, and turned into ports and weights (p4/ingress/routing.p4: the action selectors)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.common.errors import ControllerError
from controller.network.base_paths import NextHops
from controller.network.intents import WeightedRoute
from controller.network.tables.routing import MAX_GROUP_SIZE, Spread
from dataplane.topology.values import LinkKey, Topology

Spreads = Mapping[str, Mapping[str, Spread]]
"""By switch, then by destination switch."""


def spreads_of(topology: Topology, hops: NextHops, routes: Iterable[WeightedRoute]) -> dict[str, dict[str, Spread]]:
    """Return the spreads of weighted routes; every switch has a key.

    Raise ControllerError for a route that the topology or a group cannot have, for two of the same switch and
    destination, and if weighted and base routes together would loop.
    """
    by_switch: dict[str, dict[str, Spread]] = {node.name: {} for node in topology.switches}
    for route in routes:
        _check(topology, route)
        if route.destination in by_switch[route.switch]:
            raise ControllerError(f"{describe(route)}: requested twice")
        links = topology.directed_links
        ports = ((links[LinkKey(route.switch, peer)].tail.port, weight) for peer, weight in route.next_hops)
        by_switch[route.switch][route.destination] = tuple(sorted(ports))
    for destination in sorted({destination for spreads in by_switch.values() for destination in spreads}):
        order(topology, hops, by_switch, destination)
    return by_switch


def onward(topology: Topology, hops: NextHops, spreads: Spreads, switch: str, destination: str) -> tuple[str, ...]:
    """Return the switches that a switch sends to for a destination."""
    chosen = spreads[switch].get(destination)
    if chosen is None:
        return tuple(link.head.node for link in hops[destination].get(switch, ()))
    return tuple(topology.neighbours[switch][port].node for port, _ in chosen)


def order(topology: Topology, hops: NextHops, spreads: Spreads, destination: str) -> list[str]:
    """Return the switches that reach a destination, each after all that it sends to; ControllerError for a circle."""
    ways = {node.name: onward(topology, hops, spreads, node.name, destination) for node in topology.switches}
    ways[destination] = ()
    senders: dict[str, list[str]] = {name: [] for name in ways}
    waiting = {name: len(heads) for name, heads in ways.items()}
    for name, heads in ways.items():
        for head in heads:
            senders[head].append(name)
    ordered = [destination]
    for name in ordered:
        for sender in senders[name]:
            waiting[sender] -= 1
            if waiting[sender] == 0:
                ordered.append(sender)
    circling = next((name for name, heads in ways.items() if heads and waiting[name] > 0), None)
    if circling is not None:
        raise ControllerError(f"weighted routes to {destination}: packets at {circling} may loop")
    return ordered


def describe(route: WeightedRoute) -> str:
    """Return a route as errors and logs name it."""
    ways = ", ".join(f"{peer} ({weight})" for peer, weight in route.next_hops)
    return f"weighted route at {route.switch} to {route.destination} by {ways or 'nothing'}"


def _check(topology: Topology, route: WeightedRoute) -> None:
    for name in (route.switch, route.destination, *(peer for peer, _ in route.next_hops)):
        if name not in topology.switch:
            raise ControllerError(f"{describe(route)}: there is no switch {name!r}")
    if route.switch == route.destination or not route.next_hops:
        raise ControllerError(f"{describe(route)}: leads nowhere")
    if len({peer for peer, _ in route.next_hops}) != len(route.next_hops):
        raise ControllerError(f"{describe(route)}: names a neighbour twice")
    for peer, weight in route.next_hops:
        if LinkKey(route.switch, peer) not in topology.directed_links:
            raise ControllerError(f"{describe(route)}: there is no link {LinkKey(route.switch, peer)}")
        if weight < 1:
            raise ControllerError(f"{describe(route)}: weights must be at least 1")
    if sum(weight for _, weight in route.next_hops) > MAX_GROUP_SIZE:
        raise ControllerError(f"{describe(route)}: the weights add up to more than {MAX_GROUP_SIZE}")
