"""Shared route entities equal each switch's plain ones, and equal ones are the same object."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from controller.network.base_paths import next_hops
from controller.network.tables.entities import Entities, Kind, index
from controller.network.tables.routing import IPV4, IPV6, Family, host_addresses, networks, route_entities
from controller.network.tables.shared_routes import SharedRoutes
from controller.network.tables.weighted_routes import spreads_of
from dataplane.topology.addressing import switch_subnet_ipv4
from dataplane.topology.families import fat_tree, leaf_spine
from dataplane.topology.values import LinkKey, Topology
from tests.benchmarks.routing.scale import random_fabric
from tests.controller.network.fabric_tables import WEIGHTS, weighted


@pytest.mark.parametrize("prefixes_from", [1, 1_000])
@pytest.mark.parametrize("topology", [fat_tree(4), leaf_spine(2, 3, 2), random_fabric(10, 3, 1)], ids=lambda t: t.name)
def test_shared_routes_are_those_of_each_switch(topology: Topology, prefixes_from: int) -> None:
    shared = SharedRoutes(topology, prefixes_from)
    cut = next(key for key, link in topology.directed_links.items() if link.head.node in topology.switch)
    for down in (frozenset[LinkKey](), {cut, LinkKey(cut.dst, cut.src)}):
        hops = next_hops(topology, down)
        for node in topology.switches:
            plain = index(route_entities(topology, hops, node.name, prefixes_from=prefixes_from))
            assert shared.entities(hops, node.name, {}) == plain


def test_large_fabrics_have_a_route_for_each_switch_with_hosts() -> None:
    topology = leaf_spine(2, 3, 2)
    spines, leaves = topology.switches[:2], topology.switches[2:]
    shared, hops = SharedRoutes(topology, 1), next_hops(topology)
    for family, length in ((IPV4, 24), (IPV6, 64)):
        subnets = {family.subnet(leaf.node_id) for leaf in leaves}
        assert {subnet[1] for subnet in subnets} == {length}
        assert routed(shared.entities(hops, spines[0].name, {}), family) == subnets
        own = {family.subnet(leaves[0].node_id)}
        local = {
            (host_addresses(topology, host)[family], family.bits)
            for host, edge in topology.attachment.items()
            if edge.node == leaves[0].name
        }
        assert routed(shared.entities(hops, leaves[0].name, {}), family) == subnets - own | local


def test_a_subnet_with_a_host_elsewhere_is_no_route() -> None:
    plain = leaf_spine(2, 3, 2)
    moved = next(host for host, edge in plain.attachment.items() if edge.node == plain.switches[2].name)
    foreign = IPv4Address(int(switch_subnet_ipv4(plain.switches[3].node_id)[77]))
    hosts = tuple(replace(host, ipv4=foreign) if host.name == moved else host for host in plain.hosts)
    topology = replace(plain, hosts=hosts)
    reached = networks(topology, IPV4, 1)
    assert (int(foreign), 32) in reached[plain.switches[2].name]
    assert IPV4.subnet(plain.switches[2].node_id) in reached[plain.switches[2].name]
    assert {length for _, length in reached[plain.switches[3].name]} == {32}
    assert reached[plain.switches[4].name] == [IPV4.subnet(plain.switches[4].node_id)]


def routed(entities: Entities, family: Family) -> set[object]:
    return {key.match[0][1] for key in entities if key.table == family.routes}


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
