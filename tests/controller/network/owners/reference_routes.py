"""Reference decisions of `RoutesOwner`: one route after the other, over all switches, without memory.

These are the twins of `RoutesOwner.restored` and `.plan`; with them the tests of this folder judge the owner.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.network.base_paths import NextHops
from controller.network.owners.base import ObservedState
from controller.network.owners.route_views import needs
from controller.network.tables.entities import Entities, EntityKey, Kind, same
from controller.network.tables.weighted_routes import Spreads, onward, order
from dataplane.topology.values import Topology

Levels = list[dict[str, frozenset[EntityKey]]]
"""Routes that each switch writes, by level."""


def peers(topology: Topology, switch: str, entities: Entities, key: EntityKey) -> set[str]:
    """Return the next hops of a route in a switch's tables."""
    entity = entities.get(key)
    needed_keys = set() if entity is None else needs(entities, entity)
    ports = {needed.number for needed in needed_keys if needed.kind is Kind.MEMBER}
    neighbours = topology.neighbours[switch]
    return {neighbours[port].node for port in ports if port in neighbours}


def circles(
    topology: Topology, wanted: Mapping[str, Entities], switch: str, key: EntityKey, held: Mapping[str, Entities]
) -> bool:
    """Return whether a desired route at one switch, with the known routes of others, leads back to it."""
    waiting, seen = peers(topology, switch, wanted[switch], key), set[str]()
    while waiting:
        name = waiting.pop()
        if name == switch:
            return True
        if name not in seen and name in wanted:
            seen.add(name)
            waiting |= peers(topology, name, held.get(name, wanted[name]), key)
    return False


def due(held: Entities, wanted: Entities) -> set[EntityKey]:
    """Return the routes that a switch lacks or holds differently, groups included."""
    keys = set()
    for key, entity in wanted.items():
        if key.kind is Kind.ENTRY:
            leans_on = {needed for needed in needs(wanted, entity) if needed.kind is Kind.GROUP and needed in wanted}
            agree = all(group in held and same(held[group], wanted[group]) for group in leans_on)
            if not (key in held and same(held[key], entity) and agree):
                keys.add(key)
    return keys


def plan(
    topology: Topology,
    hops: NextHops,
    spreads: Spreads,
    wanted: Mapping[str, Entities],
    destinations: Mapping[EntityKey, str],
    known: ObservedState,
) -> tuple[Levels, set[EntityKey]]:
    """Return the routes to write by level and switch, and those that must wait."""
    each = {name: due(known.held.get(name, {}), wanted[name]) for name in wanted}
    levels: list[dict[str, set[EntityKey]]] = []
    pending = set()
    for key in {key for keys in each.values() for key in keys}:
        depth: dict[str, int] = {}
        destination = destinations[key]
        for name in order(topology, hops, spreads, destination):
            ways = () if name == destination else onward(topology, hops, spreads, name, destination)
            ahead = [depth[peer] for peer in ways if peer in depth]
            if key not in wanted[name] and name == destination and known.held.get(name):
                depth[name] = 0  # the route to its own network, which it reaches by those to its hosts
            elif key not in wanted[name] and name == destination and name in known.live:
                depth[name] = 1
            if key not in wanted[name] or len(ahead) < len(ways):
                continue
            if key not in each[name]:
                depth[name] = max(ahead, default=0)
            elif name in known.live:
                depth[name] = max(ahead, default=0) + 1
                levels.extend({} for _ in range(depth[name] - len(levels)))
                levels[depth[name] - 1].setdefault(name, set()).add(key)
        if any(key in each[name] and name not in depth for name in known.live):
            pending.add(key)
    return [{name: frozenset(keys) for name, keys in level.items()} for level in levels if level], pending
