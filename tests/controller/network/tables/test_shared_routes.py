"""Shared route entities equal each switch's plain ones, and equal ones are the same object."""

from __future__ import annotations

import pytest

from controller.network.base_paths import next_hops
from controller.network.tables.entities import Kind, index
from controller.network.tables.routing import route_entities
from controller.network.tables.shared_routes import SharedRoutes
from controller.network.tables.weighted_routes import spreads_of
from dataplane.topology.families import fat_tree, leaf_spine
from dataplane.topology.values import LinkKey, Topology
from tests.benchmarks.routing.scale import random_fabric
from tests.controller.network.fabric_tables import WEIGHTS, weighted


@pytest.mark.parametrize("topology", [fat_tree(4), leaf_spine(2, 3, 2), random_fabric(10, 3, 1)], ids=lambda t: t.name)
def test_shared_routes_are_those_of_each_switch(topology: Topology) -> None:
    shared = SharedRoutes(topology)
    cut = next(key for key, link in topology.directed_links.items() if link.head.node in topology.switch)
    for down in (frozenset[LinkKey](), {cut, LinkKey(cut.dst, cut.src)}):
        hops = next_hops(topology, down)
        for node in topology.switches:
            assert shared.entities(hops, node.name, {}) == index(route_entities(topology, hops, node.name))


@pytest.mark.parametrize("texts", WEIGHTS)
def test_shared_routes_follow_weights(diamond: Topology, texts: tuple[str, ...]) -> None:
    shared, hops = SharedRoutes(diamond), next_hops(diamond)
    for name, spread in spreads_of(diamond, hops, weighted(texts)).items():
        assert shared.entities(hops, name, spread) == index(route_entities(diamond, hops, name, spread))


def test_routes_that_say_the_same_are_one_object() -> None:
    topology = fat_tree(4)
    shared, hops = SharedRoutes(topology), next_hops(topology)
    tables = [shared.entities(hops, node.name, {}) for node in topology.switches]
    entries = {id(entity) for table in tables for key, entity in table.items() if key.kind is Kind.ENTRY}
    assert len(entries) < sum(map(len, tables)) / 3
    assert len({id(key) for table in tables for key in table if key.kind is Kind.ENTRY}) == len(
        {key for table in tables for key in table if key.kind is Kind.ENTRY}
    )


def test_shared_routes_forget_unused_entities(monkeypatch: pytest.MonkeyPatch, diamond: Topology) -> None:
    monkeypatch.setattr("controller.network.tables.shared_routes._BLOCKS_PER_DESTINATION", 1)
    shared, hops = SharedRoutes(diamond), next_hops(diamond)
    for texts in WEIGHTS * 3:
        for name, spread in spreads_of(diamond, hops, weighted(texts)).items():
            assert shared.entities(hops, name, spread) == index(route_entities(diamond, hops, name, spread))
            assert len(shared._blocks) <= shared._room
