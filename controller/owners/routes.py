"""Routes of all switches, and changing them: the order in which no packet turns in a circle or finds no way.

For each destination a switch changes when every switch that its new route sends to follows the new routes, and so do
all behind those. A switch that has changed then sends to switches that have changed, up to the destination; one that
has not follows the old routes until the destination or the first that has. Old and new routes have no circle, so no
mixture has, and a packet in flight meets at most one change of routes. A change of weights is a change of group: a new
group is made before the entry points to it, so each switch changes at once or not at all, and the old one goes when
nobody uses it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from finsy import P4ActionProfileGroup, P4IndirectAction, P4TableEntry

from controller.base_paths import NextHops, next_hops
from controller.errors import ControllerError
from controller.intents import WeightedRoute
from controller.owners.base import Known, Owner, Refusal, Strikes, Verdict
from controller.owners.steps import NO_STEPS, Phase, Step, UpdatePlan
from controller.tables.entities import Entities, Entity, EntityKey, Kind, Update, Verb, index, key_of, references, same
from controller.tables.routing import FAMILIES, Spread, hash_entity, host_addresses, route_entities, route_match
from controller.tables.weighted_routes import Spreads, onward, order, spreads_of
from dataplane.topology.values import DirectedLink, LinkKey, Topology

LOGGER = logging.getLogger("millrace.controller")

_TABLES = frozenset(family.routes for family in FAMILIES)
_SELECTORS = {family.routes: family.selector for family in FAMILIES}
_LAYER = _TABLES | frozenset(_SELECTORS.values())


def is_route_layer(key: EntityKey) -> bool:
    """Return whether an entity is a route, or a member or group that routes use."""
    return key.table in _LAYER


@dataclass(slots=True)
class _Due:
    """What a switch's routes need, worked out for the tables `held` and `wanted`; kept while those are the same."""

    held: Entities
    wanted: Entities
    keys: frozenset[EntityKey]
    unused: tuple[EntityKey, ...]


class RoutesOwner(Owner):
    """Owns the routes to hosts, base and weighted, their groups and members, and each switch's hash.

    Members are named after ports, and others lean on them, too: they stay as long as anybody does. A group that a
    switch refuses twice leaves the routes that want it as they are.
    """

    name = "routes"

    def __init__(self, topology: Topology) -> None:
        """Want base routes; leave what is there as it is until the weighted routes are known."""
        self.topology = topology
        self.strikes = Strikes()
        self._has_routes = self._detours = False
        self.weighted: tuple[WeightedRoute, ...] = ()
        self._hops = next_hops(topology)
        self._destinations = dict(_destinations(topology))
        self._spreads: Spreads = spreads_of(topology, self._hops, ())
        self._base = {node.name: self._entities(node.name) for node in topology.switches}
        self._wanted = dict(self._base)
        self._orders: dict[str, list[str]] = {}
        self._due: dict[str, _Due] = {}

    def want(self, weighted: Sequence[WeightedRoute]) -> None:
        """Want these weighted routes, base routes elsewhere; ControllerError, and no change, if that loops."""
        if tuple(weighted) == self.weighted:
            self._took()
            return
        before, spreads = self._spreads, spreads_of(self.topology, self._hops, weighted)
        self.weighted, self._spreads = tuple(weighted), spreads
        for name in self._wanted:
            if spreads[name] != before[name]:
                self._wanted[name] = self._entities(name)
        self._orders.clear()
        self._took()

    def _took(self) -> None:
        self._has_routes = True
        self.strikes.clear()

    def owns(self, key: EntityKey) -> bool:
        """Return whether an entity is a route to a host, a member or group of routes, or the hash."""
        if key.kind is Kind.ENTRY:
            return key in self._destinations
        return key.table in _LAYER or key.table == "path_hash"

    def avoid(self, down: Set[LinkKey]) -> None:
        """Want routes that use none of these links, where there is another way, and all others as they were.

        Weighted routes that would turn packets in a circle with those are left out until others are wanted.
        """
        self._detours = True
        hops = next_hops(self.topology, down)
        try:
            spreads = spreads_of(self.topology, hops, self.weighted)
        except ControllerError:
            self.weighted, spreads = (), spreads_of(self.topology, hops, ())
        for name in self._wanted:
            base = self._first_links(self._hops, name) != self._first_links(hops, name)
            weights = self._spreads[name] != spreads[name]
            if base:
                self._base[name] = self._entities_by(hops, name, {})
            if base or weights:
                self._wanted[name] = self._entities_by(hops, name, spreads[name])
        self._hops, self._spreads = hops, spreads
        self._orders.clear()

    @staticmethod
    def _first_links(hops: NextHops, switch: str) -> dict[str, tuple[DirectedLink, ...]]:
        """Return by which links a switch reaches each destination."""
        return {destination: ways[switch] for destination, ways in hops.items() if switch in ways}

    def wanted(self, switch: str) -> Entities:
        """Return the hash, routes, groups and members that a switch should hold."""
        return self._wanted[switch]

    def is_weighted(self, key: EntityKey) -> bool:
        """Return whether an entity is a group that no base route needs."""
        return key.kind is Kind.GROUP and not any(key in entities for entities in self._base.values())

    def refused(self, refusal: Refusal) -> Verdict:
        """Do without groups of weights; without base routes a switch cannot be used."""
        optional = [update for update in refusal.updates if self.is_weighted(update.key)]
        self.strikes.note(optional)
        if len(optional) < len(refusal.updates):
            return Verdict.INSISTS
        LOGGER.warning("%s", refusal.problem)
        return Verdict.SPARED

    def forgive(self) -> None:
        """Try everything again."""
        self.strikes.clear()

    def restored(self, switch: str, actual: Entities, known: Known) -> Entities:
        """Return what a switch that was just read may hold at once, given what others are known to hold.

        Routes that it has stay; those that it lacks are put in where that makes no circle. The steps do the rest.
        """
        refused, found = self.strikes.doubtful, dict[EntityKey, Entity]()
        for key, entity in self._wanted[switch].items():
            if key.kind is not Kind.ENTRY:
                continue
            if key in actual:
                found[key] = actual[key]
                continue
            for source in (self._wanted[switch], self._base[switch]):
                needed = self._needs(source, source.get(key, entity))
                if not needed & refused and not self._circles(switch, key, source, known.held):
                    found[key] = source[key]
                    break
        choice = {**self._base[switch], **actual, **self._wanted[switch]}
        used = {needed for entity in found.values() for needed in self._needs(choice, entity)}
        stay = {key for key in self._wanted[switch] if key.kind in (Kind.MEMBER, Kind.DEFAULT) or key in actual}
        found.update((key, choice[key]) for key in (used | stay) - found.keys() if key in choice)
        return found

    def plan(self, known: Known) -> UpdatePlan:
        """Return the steps from what switches are known to hold to the wanted routes, and which routes must wait.

        Before anybody has said which routes are wanted, only dead links are left.
        """
        if not (self._has_routes or self._detours):
            return NO_STEPS
        held, live, refused = known.held, known.live, self.strikes.given_up
        pending: set[EntityKey] = set()
        levels: list[dict[str, list[Update]]] = []
        due = {name: self._due_of(name, held.get(name, {})) for name in self._wanted}
        for key in sorted({key for each in due.values() for key in each.keys}):
            place: dict[str, int] = {}
            for name in self._order(self._destinations[key]):
                ahead = [place.get(peer) for peer in self._onward(name, key)]
                reached = [number for number in ahead if number is not None]
                if key not in self._wanted[name] or len(reached) < len(ahead):
                    continue
                if key not in due[name].keys:
                    place[name] = max(reached, default=0)
                elif name in live and not self._needs(self._wanted[name], self._wanted[name][key]) & refused:
                    place[name] = max(reached, default=0) + 1
                    _put(levels, place[name] - 1, name, _write(key, self._wanted[name][key], held[name]))
            if any(key in due[name].keys and name not in place for name in live):
                pending.add(key)
        steps = [*self._groups(levels, held), *levels]
        unused = [_removals(due, held, live, kind) for kind in (Kind.GROUP, Kind.MEMBER)]
        return UpdatePlan((*_steps(Phase.MAKE, steps), *_steps(Phase.BREAK, unused)), frozenset(pending))

    def _groups(
        self, levels: Sequence[Mapping[str, Sequence[Update]]], held: Mapping[str, Entities]
    ) -> Iterator[dict[str, list[Update]]]:
        """Yield what the entries of all levels lean on and their switches lack: members, then groups."""
        needed = {
            (name, key)
            for level in levels
            for name, updates in level.items()
            for update in updates
            for key in self._needs(self._wanted[name], update.entity)
        }
        for kind in (Kind.MEMBER, Kind.GROUP):
            found: dict[str, list[Update]] = {}
            for name, key in sorted(needed):
                entity = self._wanted[name][key]
                if key.kind is kind and not (key in held[name] and same(held[name][key], entity)):
                    found.setdefault(name, []).append(_write(key, entity, held[name]))
            yield found

    def _entities(self, switch: str) -> Entities:
        return self._entities_by(self._hops, switch, self._spreads[switch])

    def _entities_by(self, hops: NextHops, switch: str, spreads: Mapping[str, Spread]) -> Entities:
        entities = route_entities(self.topology, hops, switch, spreads)
        return index((hash_entity(self.topology, switch), *entities))

    def _order(self, destination: str) -> list[str]:
        if destination not in self._orders:
            self._orders[destination] = order(self.topology, self._hops, self._spreads, destination)
        return self._orders[destination]

    def _onward(self, switch: str, key: EntityKey) -> tuple[str, ...]:
        destination = self._destinations[key]
        if switch == destination:
            return ()
        return onward(self.topology, self._hops, self._spreads, switch, destination)

    def _needs(self, entities: Entities, entity: Entity) -> set[EntityKey]:
        """Return the group and members that an entry, or the members that a group, leans on."""
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
        found = {EntityKey(kind, selector, (), number) for number in numbers}
        for key in tuple(found):
            if key in entities and key.kind is Kind.GROUP:
                found |= self._needs(entities, entities[key])
        return found

    def _circles(self, switch: str, key: EntityKey, source: Entities, held: Mapping[str, Entities]) -> bool:
        """Return whether a route at one switch, with those that others are known to hold, leads back to it."""
        waiting, seen = self._peers(switch, source, key), set[str]()
        while waiting:
            name = waiting.pop()
            if name == switch:
                return True
            if name not in seen and name in self._wanted:
                seen.add(name)
                waiting |= self._peers(name, held.get(name, self._wanted[name]), key)
        return False

    def _peers(self, switch: str, entities: Entities, key: EntityKey) -> set[str]:
        """Return what a switch with these tables sends to by a route."""
        entity = entities.get(key)
        needs = set() if entity is None else self._needs(entities, entity)
        ports = {needed.number for needed in needs if needed.kind is Kind.MEMBER}
        neighbours = self.topology.neighbours[switch]
        return {neighbours[port].node for port in ports if port in neighbours}

    def _due_of(self, switch: str, held: Entities) -> _Due:
        wanted, known = self._wanted[switch], self._due.get(switch)
        if known is None or known.held is not held or known.wanted is not wanted:
            known = self._due[switch] = self._work_out(held, wanted)
        return known

    def _work_out(self, held: Entities, wanted: Entities) -> _Due:
        keys = frozenset(
            key
            for key, entity in wanted.items()
            if key.kind is Kind.ENTRY
            and not (key in held and same(held[key], entity) and _groups_agree(entity, held, wanted))
        )
        ours = [key for key in held if is_route_layer(key)]
        used = {needed for key in ours for needed in self._needs(held, held[key])} | wanted.keys()
        unused = tuple(sorted(key for key in ours if key.kind is not Kind.ENTRY and key not in used))
        return _Due(held, wanted, keys, unused)


def _destinations(topology: Topology) -> Iterator[tuple[EntityKey, str]]:
    for host, edge in topology.attachment.items():
        for family, address in host_addresses(topology, host).items():
            yield key_of(P4TableEntry(family.routes, match=route_match(family, address))), edge.node


def _groups_agree(entity: Entity, held: Entities, wanted: Entities) -> bool:
    """Return whether the group behind a route is what it should be: another writer may have changed it."""
    if not (isinstance(entity, P4TableEntry) and isinstance(entity.action, P4IndirectAction)):
        return True
    key = EntityKey(Kind.GROUP, _SELECTORS[entity.table_id], (), entity.action.group_id or 0)
    return key not in wanted or (key in held and same(held[key], wanted[key]))


def _write(key: EntityKey, entity: Entity, held: Entities) -> Update:
    return Update(Verb.MODIFY if key in held else Verb.INSERT, key, entity)


def _put(levels: list[dict[str, list[Update]]], place: int, name: str, update: Update) -> None:
    while len(levels) <= place:
        levels.append({})
    levels[place].setdefault(name, []).append(update)


def _removals(
    due: Mapping[str, _Due], held: Mapping[str, Entities], live: Set[str], kind: Kind
) -> dict[str, list[Update]]:
    found: dict[str, list[Update]] = {}
    for name, each in due.items():
        if name in live:
            for key in each.unused:
                if key.kind is kind:
                    found.setdefault(name, []).append(Update(Verb.DELETE, key, held[name][key]))
    return found


def _steps(phase: Phase, levels: Sequence[Mapping[str, Sequence[Update]]]) -> Iterator[Step]:
    for level in levels:
        if level:
            yield Step(phase, {name: tuple(updates) for name, updates in level.items()})
