"""Positions in the page's map."""

from __future__ import annotations

import pytest

from dataplane.topology.families import from_text
from dataplane.topology.file import load_topology
from dataplane.topology.layout import bounds, placed
from dataplane.topology.values import Topology

TOPOLOGIES = ["abilene", "geant", "fat-tree:k=4", "leaf-spine:spines=4,leaves=8,hosts=2", "ring:switches=5,hosts=1"]


def topology(name: str) -> Topology:
    return from_text(name) if ":" in name else load_topology(name)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_node_has_its_own_position(name: str) -> None:
    network = topology(name)
    where = placed(network)
    points = [*where.switches.values(), *where.hosts.values()]
    assert set(where.switches) == set(network.switch)
    assert set(where.hosts) == set(network.host)
    assert len({(round(x, 6), round(y, 6)) for x, y in points}) == len(points)
    x0, y0, x1, y1 = bounds(points)
    assert all(x0 <= x <= x1 and y0 <= y <= y1 for x, y in points)
    assert placed(network) == where


def test_a_clos_has_its_hosts_switches_lowest() -> None:
    where = placed(topology("leaf-spine:spines=4,leaves=8,hosts=2"))
    assert where.kind == "layers"
    assert set(where.layers.values()) == {0, 1}
    lowest = {name for name, layer in where.layers.items() if layer == 0}
    highest_y = max(y for _, y in where.switches.values())
    assert {name for name, (_, y) in where.switches.items() if y == highest_y} == lowest


def test_a_wan_is_placed_by_longitude_and_latitude() -> None:
    network = topology("abilene")
    where = placed(network)
    assert where.kind == "place"
    seattle = network.switch["sttl"].place
    assert seattle is not None
    assert where.switches["sttl"] == (seattle.longitude, -seattle.latitude)


def test_many_switches_without_layers_are_placed_quickly() -> None:
    where = placed(from_text("ring:switches=400,hosts=1"))
    assert len(set(where.switches.values())) == 400
