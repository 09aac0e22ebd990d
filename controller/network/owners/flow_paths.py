"""Explicit paths of flows (`controller/network/tables/flow_paths.py`): the desired ones, and the steps to them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import pairwise

from controller.network.intents import Route, RouteSet
from controller.network.owners.base import ObservedState, Owner, Refusal, RefusalCounts, Verdict
from controller.network.owners.flow_plan import plan, restorable
from controller.network.owners.steps import NO_STEPS, UpdatePlan
from controller.network.tables.entities import Entities, EntityKey, Kind
from controller.network.tables.flow_paths import FLOW_TABLES, RouteEntries, flow_path_entities
from dataplane.topology.values import LinkKey, Topology

LOGGER = logging.getLogger("millrace.controller")


class FlowPathsOwner(Owner):
    """Owns the tables of explicit paths; entries that a switch refuses twice stay unchanged, on every switch."""

    name = "flow paths"

    def __init__(self, topology: Topology) -> None:
        """Begin without desired paths, and remove nothing until they are known."""
        self.topology = topology
        self.routes: RouteSet | None = None
        self.refusal_counts = RefusalCounts()
        self._down: Set[LinkKey] = frozenset()
        self._desired: Mapping[str, Entities] = {}
        self._made: dict[Route, RouteEntries] = {}
        """The entries of the last routes: most of them recur."""
        self._held: dict[str, tuple[Entities, Entities]] = {}

    def tables_of(self, routes: RouteSet) -> dict[str, Entities]:
        """Return the entries for a set of routes; raise ControllerError if one is impossible."""
        alive = self._alive(routes)
        made = dict(self._made)
        tables = flow_path_entities(self.topology, alive, made)
        self._made = {route: made[route] for route in alive.routes}
        return tables

    def want(self, routes: RouteSet, tables: Mapping[str, Entities]) -> None:
        """Take the newest full set of routes, with its `tables_of`."""
        self.routes, self._desired = routes, tables
        self.refusal_counts.clear()

    def owns(self, key: EntityKey) -> bool:
        """Return whether an entity is an explicit path's."""
        return key.kind is Kind.ENTRY and key.table in FLOW_TABLES

    def wanted(self, switch: str) -> Entities:
        """Return the entries of all desired paths."""
        return self._desired.get(switch, {})

    def restored(self, switch: str, actual: Entities, known: ObservedState) -> Entities:
        """Return a switch's present paths, and those whose next hops are in place; the steps do the rest."""
        # Without paths of its own, a switch need not know those of all others.
        wants_any = bool(self._desired.get(switch))
        onward = restorable(self.topology, switch, self._desired, self._of(known, known.live)) if wants_any else {}
        refused = self.refusal_counts.refused
        present = {key: entity for key, entity in actual.items() if self.owns(key)}
        return {**present, **{key: entity for key, entity in onward.items() if key not in refused}}

    def plan(self, known: ObservedState) -> UpdatePlan:
        """Return the steps from the held paths to the desired ones."""
        if self.routes is None:
            return NO_STEPS
        held = self._of(known, known.held)
        return plan(self.topology, self._desired, held, known.live, self.refusal_counts.refused_twice)

    def refused(self, refusal: Refusal) -> Verdict:
        """Give up on entries refused twice: one full table must not stop the rest."""
        LOGGER.warning("%s", refusal.problem)
        self.refusal_counts.note(refusal.updates)
        return Verdict.SPARED

    def forgive(self) -> None:
        """Try everything again."""
        self.refusal_counts.clear()

    def avoid(self, down: Set[LinkKey]) -> None:
        """Drop paths over dead links: base routes lead around those, even while no decider runs."""
        self._down = down
        if self.routes is not None:
            self._desired = self.tables_of(self.routes)

    def _alive(self, routes: RouteSet) -> RouteSet:
        if not self._down:
            return routes
        kept = (route for route in routes.routes if self._down.isdisjoint(_links(route.switches)))
        return replace(routes, routes=tuple(kept))

    def _of(self, known: ObservedState, switches: Iterable[str]) -> dict[str, Entities]:
        return {switch: self._part(switch, known.held[switch]) for switch in switches}

    def _part(self, switch: str, held: Entities) -> Entities:
        """Return the paths among a switch's entities, computed once for the same tables."""
        seen = self._held.get(switch)
        if seen is None or seen[0] is not held:
            seen = self._held[switch] = held, {key: entity for key, entity in held.items() if self.owns(key)}
        return seen[1]


def _links(path: Sequence[str]) -> Iterator[LinkKey]:
    return (LinkKey(*pair) for pair in pairwise(path))
