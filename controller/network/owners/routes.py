"""Routes of all switches, and their changes in an order in which no packet loops or is left without a route.

For each destination a switch changes when every switch that its new route sends to follows the new routes, and so do
all behind those. A switch that has changed then sends to switches that have changed, up to the destination; one that
has not follows the old routes until the destination or the first that has. Old and new routes are loop-free, so any
mixture is too, and a packet in flight meets at most one change of routes. A change of weights is a change of group: a
new group is made before the entry points to it, so each switch changes atomically, and the old one is removed when
unused.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import compress
from operator import is_not, or_
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from controller.common.errors import ControllerError
from controller.network.base_paths import Arrows, BaseHops, NextHops, next_hops
from controller.network.intents import WeightedRoute
from controller.network.owners.base import ObservedState, Owner, Refusal, RefusalCounts, Verdict
from controller.network.owners.route_views import LAYER, RouteTables, RouteView, is_route_layer
from controller.network.owners.steps import NO_STEPS, Phase, Step, UpdatePlan
from controller.network.tables.entities import Entities, Entity, EntityKey, Kind, Update, Verb, key_of, same
from controller.network.tables.routing import PREFIXES_FROM_HOSTS, Spread, hash_entity
from controller.network.tables.shared_routes import SharedRoutes
from controller.network.tables.weighted_routes import Spreads, spreads_of
from dataplane.topology.values import Endpoint, LinkKey, Topology

_Rows: TypeAlias = NDArray[np.intp]
_Mask: TypeAlias = NDArray[np.bool_]


class ChangeOrder:
    """The switches that reach a destination, each after all that it sends to."""

    def __init__(self, arrows: Arrows, destination: int, count: int) -> None:
        """`arrows` are the next hops of each of `count` switches for a destination; they have no loop."""
        onward = arrows.tails != destination
        by_tail = np.argsort(arrows.tails[onward], kind="stable")
        tails, heads = arrows.tails[onward][by_tail], arrows.heads[onward][by_tail]
        degree = np.bincount(tails, minlength=count)
        # Row `count` stands in where a switch sends to fewer others than the widest of its level.
        heads, first = np.append(heads, count), np.cumsum(degree) - degree
        self._levels: list[tuple[_Rows, _Rows]] = []
        waiting, level = degree.copy(), np.array([destination], dtype=np.intp)
        while level.size:
            columns = np.arange(max(1, degree[level].max()))
            places = np.where(columns < degree[level][:, None], first[level][:, None] + columns, -1)
            self._levels.append((level, heads[places]))
            reached = np.isin(heads[:-1], level)
            waiting -= np.bincount(tails[reached], minlength=count)
            level = np.unique(tails[reached])
            level = level[waiting[level] == 0]
        self.rows: _Rows = np.concatenate([rows for rows, _ in self._levels])
        self.reaching: _Mask = np.zeros(count, dtype=bool)
        self.reaching[self.rows] = True

    def waves(self, due: _Mask, stuck: _Mask) -> NDArray[np.int64]:
        """Return by row the wave, counted from 1, in which each switch may change at the earliest.

        0 stands for a switch that is not `due`, with no due one ahead of it; -1 for one that has to wait, being due and
        `stuck`, or sending to one that waits; and for one that does not reach the destination.
        """
        wave_of = np.full(len(due) + 1, -1, dtype=np.int64)
        wave_of[-1] = 0
        for rows, peers in self._levels:
            ahead = wave_of[peers]
            waits = (ahead.min(axis=1) < 0) | (due[rows] & stuck[rows])
            wave_of[rows] = np.where(waits, -1, ahead.max(axis=1) + due[rows])
        return wave_of[:-1]


__all__ = ["RoutesOwner", "is_route_layer"]

LOGGER = logging.getLogger("millrace.controller")


class RoutesOwner(Owner):
    """Owns the routes to hosts, base and weighted, their groups and members, and each switch's hash.

    Members are named after ports, and other owners use them, too: they stay as long as any does. If a switch refuses a
    group twice, the routes that want it are left as they are.
    """

    name = "routes"

    def __init__(self, topology: Topology, prefixes_from: int = PREFIXES_FROM_HOSTS) -> None:
        """Begin with base routes; leave existing entries unchanged until the weighted routes are known.

        From `prefixes_from` hosts on, routes to hosts of other switches are routes to these switches' subnets.
        """
        self.topology = topology
        self.refusal_counts = RefusalCounts()
        self._has_routes = self._detours = False
        self._down: Set[LinkKey] = frozenset()
        self._drained: Set[LinkKey] = frozenset()
        self.weighted: tuple[WeightedRoute, ...] = ()
        self._hops = next_hops(topology)
        self._shared = SharedRoutes(topology, prefixes_from)
        self._destinations, self._local = dict(self._shared.destinations()), self._shared.local()
        self._spreads: Spreads = spreads_of(topology, self._hops, ())
        self._base = {node.name: self._entities(node.name) for node in topology.switches}
        self._wanted = dict(self._base)
        self._names = [node.name for node in topology.switches]
        self._row = {name: row for row, name in enumerate(self._names)}
        self._orders: dict[str, ChangeOrder] = {}
        self._views: dict[str, RouteView] = {}
        self._seen: tuple[list[object], list[object]] = ([object()] * len(self._names),) * 2
        """The held and the desired tables that the views are of, by row."""
        self._unsure = set[str]()
        """Switches with other views than those whose strays are counted."""
        self._unheld = np.ones(len(self._names), dtype=bool)
        """Mask by row of the switches that are not known to hold anything."""
        self._strays: dict[str, frozenset[EntityKey]] = {}
        self._stray_count: dict[EntityKey, int] = {}

    def want(self, weighted: Sequence[WeightedRoute], drained: Set[LinkKey] = frozenset()) -> None:
        """Set these weighted routes, elsewhere base routes around drained links; ControllerError if that loops.

        Then nothing changes.
        """
        if drained != self._drained:
            hops = next_hops(self.topology, self._down, drained)
            spreads = spreads_of(self.topology, hops, weighted)
            self.weighted, self._drained = tuple(weighted), drained
            self._follow(hops, spreads)
            self._took()
            return
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
        self.refusal_counts.clear()

    def owns(self, key: EntityKey) -> bool:
        """Return whether an entity is a route to a host, a member or group of routes, or the hash."""
        if key.kind is Kind.ENTRY:
            return key in self._destinations
        return key.table in LAYER or key.table == "path_hash"

    def avoid(self, down: Set[LinkKey]) -> None:
        """Set routes that avoid these links, where there is another path, and leave all others unchanged.

        Weighted routes that would loop with those are left out until others are set.
        """
        self._detours, self._down = True, down
        hops = next_hops(self.topology, down, self._drained)
        try:
            spreads = spreads_of(self.topology, hops, self.weighted)
        except ControllerError:
            self.weighted, spreads = (), spreads_of(self.topology, hops, ())
        self._follow(hops, spreads)

    def _follow(self, hops: BaseHops, spreads: Spreads) -> None:
        """Take other base routes, and the weights in force over them."""
        for name in self._switches_changed(hops):
            self._base[name] = self._wanted[name] = self._entities_by(hops, name, {})
        for name in self._wanted:
            if spreads[name] or spreads[name] != self._spreads[name]:
                self._wanted[name] = self._entities_by(hops, name, spreads[name])
        self._hops, self._spreads = hops, spreads
        self._orders.clear()

    def _switches_changed(self, hops: NextHops) -> set[str]:
        """Return the switches that reach a host's switch by other links than before."""
        switches: set[str] = set()
        for destination in set(self._destinations.values()):
            before, now = self._hops[destination], hops[destination]
            switches.update(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        return switches

    def wanted(self, switch: str) -> Entities:
        """Return the hash, routes, groups and members that a switch should hold."""
        return self._wanted[switch]

    def is_weighted(self, key: EntityKey) -> bool:
        """Return whether an entity is a group that no base route needs."""
        return key.kind is Kind.GROUP and not any(key in entities for entities in self._base.values())

    def refused(self, refusal: Refusal) -> Verdict:
        """Give up on groups of weights; without base routes a switch cannot be used."""
        optional = [update for update in refusal.updates if self.is_weighted(update.key)]
        self.refusal_counts.note(optional)
        if len(optional) < len(refusal.updates):
            return Verdict.INSISTS
        LOGGER.warning("%s", refusal.problem)
        return Verdict.SPARED

    def forgive(self) -> None:
        """Try everything again."""
        self.refusal_counts.clear()

    def restored(self, switch: str, actual: Entities, known: ObservedState) -> Entities:
        """Return the entities that a switch that was just read may hold immediately, given the known ones of others.

        Its existing routes stay; missing ones are added if that makes no loop. The steps do the rest.
        """
        wanted = self._wanted[switch]
        missing = [key for key in wanted if key.kind is Kind.ENTRY and key not in actual]
        circling = self._circling(switch, missing, RouteTables(wanted, self._ports(switch)), known.held)
        if not circling and not self.refusal_counts.refused and not any(key in self._destinations for key in actual):
            return wanted
        present = {key: actual[key] for key in wanted if key.kind is Kind.ENTRY and key in actual}
        present.update(self._allowed(switch, missing, circling, known.held))
        tables = RouteTables({**self._base[switch], **actual, **wanted}, self._ports(switch))
        used = frozenset[EntityKey]().union(*map(tables.needs, present.values()))
        stay = {key for key in wanted if key.kind in (Kind.MEMBER, Kind.DEFAULT) or key in actual}
        choice = tables.entities
        present.update((key, choice[key]) for key in (used | stay) - present.keys() if key in choice)
        return present

    def _allowed(
        self, switch: str, missing: Sequence[EntityKey], circling: Set[EntityKey], held: Mapping[str, Entities]
    ) -> Iterator[tuple[EntityKey, Entity]]:
        """Yield the missing routes that a switch may have: the desired one, else the base one, else none."""
        refused = self.refusal_counts.refused
        wanted, base = (
            RouteTables(entities, self._ports(switch)) for entities in (self._wanted[switch], self._base[switch])
        )
        for key in missing:
            entity = wanted.entities[key]
            if key not in circling and refused.isdisjoint(wanted.needs(entity)):
                yield key, entity
            elif key in base.entities and refused.isdisjoint(base.needs(base.entities[key])):
                self._look(held)
                if not self._leads_back(switch, key, base):
                    yield key, base.entities[key]

    def plan(self, known: ObservedState) -> UpdatePlan:
        """Return the steps from the switches' known entities to the desired routes, and the routes that must wait.

        Until desired routes are known, only dead links are avoided.
        """
        if not (self._has_routes or self._detours):
            return NO_STEPS
        held, live = known.held, known.live
        self._look(held)
        self._unheld = np.array([not self._views[name].held for name in self._names], dtype=bool)
        levels: list[dict[str, list[Update]]] = []
        pending: set[EntityKey] = set()
        for keys, due in self._changes(live):
            pending.update(self._place(keys, due, known, levels))
        steps = [*self._groups(levels, held), *levels]
        unused = [self._removals(held, live, kind) for kind in (Kind.GROUP, Kind.MEMBER)]
        return UpdatePlan((*_steps(Phase.MAKE, steps), *_steps(Phase.BREAK, unused)), frozenset(pending))

    def _changes(self, live: Set[str]) -> Iterator[tuple[list[EntityKey], Set[str]]]:
        """Yield routes that a live switch must change, with the switches on which they differ from the desired ones.

        Routes that change together, to hosts of one switch and at the same switches, come together. Switches that hold
        nothing are not named.
        """
        changing = frozenset[EntityKey]().union(*(self._views[name].due for name in live))
        due: dict[EntityKey, list[str]] = {key: [] for key in sorted(changing)}
        for name, view in self._views.items():
            if due and view.held:
                for key in view.due & changing:
                    due[key].append(name)
        together: dict[tuple[str, str, bool, tuple[str, ...]], list[EntityKey]] = {}
        for key, names in due.items():
            alike = self._destinations[key], key.table, key in self._local, tuple(names)
            together.setdefault(alike, []).append(key)
        for (_, _, _, at), keys in together.items():
            yield keys, set(at)

    def _place(
        self, keys: Sequence[EntityKey], due: Set[str], known: ObservedState, levels: list[dict[str, list[Update]]]
    ) -> Sequence[EntityKey]:
        """Sort the live switches' writes of routes that change together into levels; return routes that wait."""
        key, refused = keys[0], self.refusal_counts.refused_twice
        order = self._order(self._destinations[key])
        is_due, stuck = np.zeros((2, len(self._names)), dtype=bool)
        is_due[[self._row[name] for name in due]] = True
        unheld = self._unheld & order.reaching
        if key in self._local:
            unheld[np.arange(len(unheld)) != self._row[self._destinations[key]]] = False
        is_due |= unheld
        for row in np.flatnonzero(is_due).tolist():
            name = self._names[row]
            route = self._wanted[name].get(key)  # only others have the one to a switch's own network
            leans_on = frozenset[EntityKey]() if route is None else self._views[name].wanted_tables.needs(route)
            stuck[row] = name not in known.live or not refused.isdisjoint(leans_on)
        waves = order.waves(is_due, stuck)
        for row in order.rows[is_due[order.rows] & (waves[order.rows] > 0)].tolist():
            name = self._names[row]
            wanted, held = self._wanted[name], known.held[name]
            for each in keys:
                if each in wanted:
                    _put(levels, waves[row] - 1, name, _write(each, wanted[each], held))
        waiting = np.flatnonzero(is_due & (waves < 0)).tolist()
        return keys if any(self._names[row] in known.live for row in waiting) else ()

    def _groups(
        self, levels: Sequence[Mapping[str, Sequence[Update]]], held: Mapping[str, Entities]
    ) -> Iterator[dict[str, list[Update]]]:
        """Yield missing dependencies of the entries of all levels: members, then groups."""
        needed = {
            (name, key)
            for level in levels
            for name, updates in level.items()
            for update in updates
            for key in self._views[name].wanted_tables.needs(update.entity)
        }
        for kind in (Kind.MEMBER, Kind.GROUP):
            updates_of: dict[str, list[Update]] = {}
            for name, key in sorted(needed):
                entity = self._wanted[name][key]
                if key.kind is kind and not (key in held[name] and same(held[name][key], entity)):
                    updates_of.setdefault(name, []).append(_write(key, entity, held[name]))
            yield updates_of

    def _entities(self, switch: str) -> Entities:
        return self._entities_by(self._hops, switch, self._spreads[switch])

    def _entities_by(self, hops: BaseHops, switch: str, spreads: Mapping[str, Spread]) -> Entities:
        multiplier = hash_entity(self.topology, switch)
        return {key_of(multiplier): multiplier, **self._shared.entities(hops, switch, spreads)}

    def _order(self, destination: str) -> ChangeOrder:
        """Return the switches that reach a destination, each after all that it sends to."""
        if destination not in self._orders:
            arrows = self._arrows(destination)
            self._orders[destination] = ChangeOrder(arrows, self._row[destination], len(self._row))
        return self._orders[destination]

    def _arrows(self, destination: str) -> Arrows:
        """Return the forwarding pairs for a destination by the desired routes."""
        base, row = self._hops.arrows(destination), self._row
        weighted = {name: spread[destination] for name, spread in self._spreads.items() if destination in spread}
        if not weighted:
            return base
        others = ~np.isin(base.tails, [row[name] for name in weighted])
        extra = [
            (row[name], row[self._ports(name)[port].node]) for name, spread in weighted.items() for port, _ in spread
        ]
        tails, heads = np.array(extra, dtype=np.intp).T
        return Arrows(np.append(base.tails[others], tails), np.append(base.heads[others], heads))

    def _ports(self, switch: str) -> Mapping[int, Endpoint]:
        return self.topology.neighbours[switch]

    def _look(self, held: Mapping[str, Entities]) -> None:
        """Create a view of every switch's held and desired tables."""
        # By identity and without a loop in Python: this is called for each switch, and most tables are as before.
        names = self._names
        held_now: list[object] = [*map(held.get, names)]
        wanted_now: list[object] = [*map(self._wanted.__getitem__, names)]
        differs = map(or_, map(is_not, held_now, self._seen[0]), map(is_not, wanted_now, self._seen[1]))
        for name in [*compress(names, differs)]:
            self._views[name] = RouteView(
                held.get(name), self._wanted[name], self._ports(name), self._destinations.keys()
            )
            self._unsure.add(name)
        self._seen = held_now, wanted_now

    def _circling(
        self, switch: str, keys: Iterable[EntityKey], tables: RouteTables, held: Mapping[str, Entities]
    ) -> set[EntityKey]:
        """Return which of a switch's desired routes, with the known ones of others, lead back to it.

        Desired routes have no loop, so only those are followed that another switch leads elsewhere.
        """
        self._look(held)
        for name in self._unsure:
            before, strays = self._strays.get(name, frozenset()), self._views[name].strays
            self._strays[name] = strays
            for key in before - strays:
                self._stray_count[key] -= 1
                if not self._stray_count[key]:
                    del self._stray_count[key]
            for key in strays - before:
                self._stray_count[key] = self._stray_count.get(key, 0) + 1
        self._unsure.clear()
        if not self._stray_count:
            return set()
        own = self._strays[switch]
        suspect = (key for key in keys if self._stray_count.get(key, 0) > (key in own))
        return {key for key in suspect if self._leads_back(switch, key, tables)}

    def _leads_back(self, switch: str, key: EntityKey, tables: RouteTables) -> bool:
        """Return whether a route in these tables of one switch, with those of others, leads back to it."""
        waiting, seen = [*tables.peers(key)], set[str]()
        while waiting:
            name = waiting.pop()
            if name == switch:
                return True
            if name not in seen and name in self._views:
                seen.add(name)
                waiting.extend(self._views[name].peers(key))
        return False

    def _removals(self, held: Mapping[str, Entities], live: Set[str], kind: Kind) -> dict[str, list[Update]]:
        updates_of: dict[str, list[Update]] = {}
        for name, view in self._views.items():
            if name in live:
                for key in view.unused:
                    if key.kind is kind:
                        updates_of.setdefault(name, []).append(Update(Verb.DELETE, key, held[name][key]))
        return updates_of


def _write(key: EntityKey, entity: Entity, held: Entities) -> Update:
    return Update(Verb.MODIFY if key in held else Verb.INSERT, key, entity)


def _put(levels: list[dict[str, list[Update]]], level: int, name: str, update: Update) -> None:
    while len(levels) <= level:
        levels.append({})
    levels[level].setdefault(name, []).append(update)


def _steps(phase: Phase, levels: Sequence[Mapping[str, Sequence[Update]]]) -> Iterator[Step]:
    for level in levels:
        if level:
            yield Step(phase, {name: tuple(updates) for name, updates in level.items()})
