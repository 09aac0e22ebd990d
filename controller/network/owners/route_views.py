"""One switch's tables as routes see them: dependencies of entities, where a route leads, and differences from desired.

All of it is computed on first use, and once for the same tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from functools import cached_property
from typing import TypeAlias

from finsy import P4ActionProfileGroup, P4IndirectAction, P4TableEntry

from controller.network.tables.entities import Entities, Entity, EntityKey, Kind, references, same
from controller.network.tables.routing import FAMILIES
from dataplane.topology.values import Endpoint

_TABLES = frozenset(family.routes for family in FAMILIES)
_SELECTORS = {family.routes: family.selector for family in FAMILIES}
LAYER = _TABLES | frozenset(_SELECTORS.values())
"""The tables of routes, and the profiles of their groups and members."""

_TABLE_OF = {selector: table for table, selector in _SELECTORS.items()}

_Group: TypeAlias = tuple[str, int]
"""A table of routes, and the number of a group of its routes."""


def is_route_layer(key: EntityKey) -> bool:
    """Return whether an entity is a route, or a member or group that routes use."""
    return key.table in LAYER


def needs(entities: Entities, entity: Entity) -> set[EntityKey]:
    """Return the group and members that an entry, or the members that a group, depends on."""
    if isinstance(entity, P4TableEntry):
        selector = _SELECTORS[entity.table_id]
    elif isinstance(entity, P4ActionProfileGroup):
        selector = entity.action_profile_id
    else:
        return set()
    leans_on = references(entity)
    if leans_on is None:
        return set()
    kind, numbers = leans_on
    dependencies = {EntityKey(kind, selector, (), number) for number in numbers}
    for key in tuple(dependencies):
        if key in entities and key.kind is Kind.GROUP:
            dependencies |= needs(entities, entities[key])
    return dependencies


class RouteTables:
    """A switch's tables, held or desired; they must not change afterwards."""

    def __init__(self, entities: Entities, neighbours: Mapping[int, Endpoint]) -> None:
        """`neighbours` are the switch's ports and the nodes at them."""
        self.entities, self._neighbours = entities, neighbours
        self._needs: dict[tuple[str, int | None, int | None], frozenset[EntityKey]] = {}
        self._peers: dict[tuple[str, int | None, int | None], frozenset[str]] = {}

    def needs(self, entity: Entity) -> frozenset[EntityKey]:
        """Return the dependencies of an entry of a table of routes in these tables, as the function `needs` does."""
        name = _name_of(entity)
        if name is None:
            return frozenset(needs(self.entities, entity))
        dependencies = self._needs.get(name)
        if dependencies is None:
            dependencies = self._needs[name] = frozenset(needs(self.entities, entity))
        return dependencies

    def peers(self, key: EntityKey) -> frozenset[str]:
        """Return the nodes that a route sends packets to, none if there is no such route."""
        entity = self.entities.get(key)
        if entity is None:
            return frozenset()
        name = _name_of(entity)
        if name is None:
            return self._led_to(entity)
        nodes = self._peers.get(name)
        if nodes is None:
            nodes = self._peers[name] = self._led_to(entity)
        return nodes

    def _led_to(self, entity: Entity) -> frozenset[str]:
        ports = {needed.number for needed in self.needs(entity) if needed.kind is Kind.MEMBER}
        return frozenset(self._neighbours[port].node for port in ports if port in self._neighbours)


class RouteView:
    """Routes that a switch is known to hold, None if it was never read, and those it should hold."""

    def __init__(
        self, held: Entities | None, wanted: Entities, neighbours: Mapping[int, Endpoint], routes: Set[EntityKey]
    ) -> None:
        """`routes` are the keys of all routes to hosts."""
        self.held, self.wanted, self._routes = held, wanted, routes
        self.held_tables = RouteTables(held or {}, neighbours)
        self.wanted_tables = RouteTables(wanted, neighbours)

    def peers(self, key: EntityKey) -> frozenset[str]:
        """Return where packets go by a route, as far as is known: for a switch never read, where they should go."""
        return (self.wanted_tables if self.held is None else self.held_tables).peers(key)

    def is_due(self, key: EntityKey) -> bool:
        """Return whether a route is desired, and missing or different."""
        if not self.held:
            return key in self.wanted
        return key in self.due

    @cached_property
    def due(self) -> frozenset[EntityKey]:
        """The desired routes that are missing or different."""
        held, changed = self.held or {}, self._changed_groups
        routes = []
        for key, entity in self.wanted.items():
            if key.kind is not Kind.ENTRY:
                continue
            own = held.get(key)
            if (own is not entity and (own is None or not same(own, entity))) or _group_of(entity) in changed:
                routes.append(key)
        return frozenset(routes)

    @cached_property
    def strays(self) -> frozenset[EntityKey]:
        """The routes that lead where the desired ones do not: only they can close a loop."""
        held, other = self.held or {}, self._other_groups
        routes = []
        for key, entity in held.items():
            if entity is self.wanted.get(key) and _group_of(entity) not in other:
                continue
            if key.kind is Kind.ENTRY and key in self._routes and not self.peers(key) <= self.wanted_tables.peers(key):
                routes.append(key)
        return frozenset(routes)

    @cached_property
    def unused(self) -> tuple[EntityKey, ...]:
        """The groups and members that are unwanted and unused by any route, in order."""
        held = self.held or {}
        spare = [key for key in held if key.kind is not Kind.ENTRY and key not in self.wanted and is_route_layer(key)]
        if not spare:
            return ()
        used = {needed for key in held if is_route_layer(key) for needed in self.held_tables.needs(held[key])}
        return tuple(sorted(key for key in spare if key not in used))

    @cached_property
    def _changed_groups(self) -> frozenset[_Group]:
        """The desired groups that are missing or different: another writer may have changed them."""
        return _unlike(self.wanted, self.held or {})

    @cached_property
    def _other_groups(self) -> frozenset[_Group]:
        """The held groups that differ from the desired ones."""
        return _unlike(self.held or {}, self.wanted)


def _unlike(entities: Entities, others: Entities) -> frozenset[_Group]:
    """Return the groups of routes that the others lack, or that differ there."""
    return frozenset(
        (_TABLE_OF[key.table], key.number)
        for key, entity in entities.items()
        if key.kind is Kind.GROUP and key.table in _TABLE_OF and not (key in others and same(entity, others[key]))
    )


def _name_of(entity: Entity) -> tuple[str, int | None, int | None] | None:
    """Return the key to all that a route depends on, None if it is not a route by a member or group."""
    if isinstance(entity, P4TableEntry) and isinstance(entity.action, P4IndirectAction):
        action = entity.action
        return None if action.action_set is not None else (entity.table_id, action.member_id, action.group_id)
    return None


def _group_of(entity: Entity) -> _Group | None:
    """Return the group that a route depends on, if any."""
    # By class rather than isinstance, and without a key: this is called for each route of each switch.
    if entity.__class__ is not P4TableEntry or entity.action.__class__ is not P4IndirectAction:
        return None
    group = entity.action.group_id
    return None if group is None else (entity.table_id, group)
