"""The routes' owner decides like its plain twins, whatever switches hold: other routes, loops, nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator

from finsy import P4IndirectAction, P4TableEntry
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.network.base_paths import next_hops
from controller.network.intents import WeightedRoute
from controller.network.owners.base import ObservedState
from controller.network.owners.route_views import needs
from controller.network.owners.routes import RoutesOwner
from controller.network.owners.steps import Phase
from controller.network.tables.entities import Entities, Entity, EntityKey, Kind
from controller.network.tables.weighted_routes import spreads_of
from dataplane.topology.families import fat_tree, leaf_spine
from dataplane.topology.values import Topology
from tests.benchmarks.routing.scale import random_fabric
from tests.controller.network.owners import reference_routes

TOPOLOGIES = (leaf_spine(2, 3, 2), fat_tree(4), *(random_fabric(8, 3, seed) for seed in range(3)))


@st.composite
def states(draw: st.DrawFn) -> tuple[Topology, RoutesOwner, ObservedState]:
    """Return an owner, and switches that hold its routes, others, some that turn in circles, or nothing."""
    topology = draw(st.sampled_from(TOPOLOGIES))
    owner = RoutesOwner(topology, draw(st.sampled_from([1, 1_000])))
    owner.want(())
    chance: random.Random = draw(st.randoms(use_true_random=False))
    others = draw(st.sampled_from([0.0, 0.05, 0.5]))
    held: dict[str, Entities] = {}
    for node in topology.switches:
        state = chance.choice(["unread", "empty", "held", "held", "held"])
        if state != "unread":
            wanted = owner.wanted(node.name) if state == "held" else {}
            held[node.name] = dict(_damaged(topology, node.name, wanted, chance, others))
    live = frozenset(name for name in held if chance.random() < 0.8)
    return topology, owner, ObservedState(held, live)


def _damaged(
    topology: Topology, switch: str, wanted: Entities, chance: random.Random, others: float
) -> Iterator[tuple[EntityKey, Entity]]:
    """Yield most desired entries, with some routes on another port."""
    ports = sorted(topology.neighbours[switch])
    for key, entity in wanted.items():
        if chance.random() < 0.1:
            continue
        if isinstance(entity, P4TableEntry) and key.kind is Kind.ENTRY and chance.random() < others:
            action = P4IndirectAction(member_id=chance.choice(ports))
            yield key, P4TableEntry(entity.table_id, match=entity.match, action=action)
        else:
            yield key, entity


@settings(max_examples=60, deadline=None)
@given(state=states())
def test_restored_leaves_out_routes_that_turn_in_circles(state: tuple[Topology, RoutesOwner, ObservedState]) -> None:
    topology, owner, known = state
    wanted = {node.name: owner.wanted(node.name) for node in topology.switches}
    for name, entities in wanted.items():
        restored = owner.restored(name, {}, known)
        routes = [key for key in entities if key.kind is Kind.ENTRY]
        expected = {key for key in routes if not reference_routes.circles(topology, wanted, name, key, known.held)}
        assert {key for key in restored if key.kind is Kind.ENTRY} == expected
        for key in expected:
            assert needs(restored, restored[key]) <= restored.keys()


@settings(max_examples=60, deadline=None)
@given(state=states())
def test_restored_keeps_the_routes_that_are_there(state: tuple[Topology, RoutesOwner, ObservedState]) -> None:
    _, owner, known = state
    for name, actual in known.held.items():
        restored = owner.restored(name, actual, known)
        kept = {key: entity for key, entity in actual.items() if key.kind is Kind.ENTRY}
        assert {key: restored[key] for key in kept} == kept


@settings(max_examples=60, deadline=None)
@given(state=states(), is_weighted=st.booleans())
def test_plan_agrees_with_the_plain_one(state: tuple[Topology, RoutesOwner, ObservedState], is_weighted: bool) -> None:
    topology, owner, known = state
    routes = tuple(_by_neighbours(topology)) if is_weighted else ()
    owner.want(routes)
    hops = next_hops(topology)
    wanted = {node.name: owner.wanted(node.name) for node in topology.switches}
    spreads = spreads_of(topology, hops, routes)
    levels, pending = reference_routes.plan(topology, hops, spreads, wanted, owner._destinations, known)
    planned = owner.plan(known)
    assert planned.pending == pending
    makes = [step.updates for step in planned.steps if step.phase is Phase.MAKE]
    keys = [
        {name: frozenset(update.key for update in updates) for name, updates in step.items()}
        for step in makes
        if any(update.key.kind is Kind.ENTRY for updates in step.values() for update in updates)
    ]
    assert keys == levels
    for step in makes:
        for name, updates in step.items():
            assert all(update.entity is wanted[name][update.key] for update in updates)


def _by_neighbours(topology: Topology) -> Iterator[WeightedRoute]:
    """Yield direct routes to the first host's switch from all its neighbours, which close no loop."""
    destination = topology.attachment[topology.hosts[0].name].node
    for peer in topology.neighbours[destination].values():
        if peer.node in topology.switch:
            yield WeightedRoute(peer.node, destination, ((destination, 3),))


def test_plan_changes_the_routes_of_a_whole_fabric_at_once() -> None:
    topology = fat_tree(4)
    owner = RoutesOwner(topology)
    owner.want(())
    known = ObservedState({node.name: {} for node in topology.switches}, frozenset(topology.switch))
    written = [update.key for step in owner.plan(known).steps for each in step.updates.values() for update in each]
    assert len(written) == sum(len(owner.wanted(node.name)) - 1 for node in topology.switches)  # except the hash
