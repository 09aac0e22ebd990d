"""Explicit paths of flows as entries."""

from __future__ import annotations

import pytest
from finsy import P4TableAction, P4TableEntry

from controller.common.errors import ControllerError
from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.tables.flow_paths import flow_path_entities
from dataplane.topology.values import Topology

AD = FlowSpec("ha", "hd")


def test_a_route_is_one_entry_a_switch_and_family(diamond: Topology) -> None:
    entities_by_switch = flow_path_entities(diamond, RouteSet(1, (Route(AD, ("a", "c", "d")),)))
    assert {switch: len(entities) for switch, entities in entities_by_switch.items()} == {
        "a": 2,
        "b": 0,
        "c": 2,
        "d": 2,
    }
    four = next(entity for key, entity in entities_by_switch["a"].items() if key.table == "ipv4_flow_paths")
    assert isinstance(four, P4TableEntry)
    assert four.match == {"src_addr": (0x0A000101, 0xFFFFFFFF), "dst_addr": (0x0A000401, 0xFFFFFFFF)}
    assert four.action == P4TableAction("forward", egress_port=3, dst_mac=0x020100030002)
    last = next(entity for key, entity in entities_by_switch["d"].items() if key.table == "ipv4_flow_paths")
    assert last.action == P4TableAction("forward", egress_port=1, dst_mac=0x020000040001)  # type: ignore[union-attr]


def test_a_host_without_ipv6_gets_ipv4_only(diamond: Topology) -> None:
    entities_by_switch = flow_path_entities(diamond, RouteSet(1, (Route(FlowSpec("ha", "hb"), ("a", "b")),)))
    assert {key.table for key in entities_by_switch["a"]} == {"ipv4_flow_paths"}


def test_more_specific_flow_wins(diamond: Topology) -> None:
    specs = [
        FlowSpec("ha", "hd", protocol, src_port, dst_port)
        for protocol in (None, 17)
        for src_port in (None, 5)
        for dst_port in (None, 6)
    ]
    routes = RouteSet(1, tuple(Route(spec, ("a", "b", "d")) for spec in specs))
    entries = [key for key in flow_path_entities(diamond, routes)["a"] if key.table == "ipv4_flow_paths"]
    assert sorted(key.number for key in entries) == list(range(1, 9))
    assert max(entries, key=lambda key: key.number).match == (
        ("dst_addr", (0x0A000401, 0xFFFFFFFF)),
        ("dst_port", (6, 0xFFFF)),
        ("protocol", (17, 0xFF)),
        ("src_addr", (0x0A000101, 0xFFFFFFFF)),
        ("src_port", (5, 0xFFFF)),
    )


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        (Route(AD, ("a", "d")), "there is no link a->d"),
        (Route(AD, ("a", "b")), "the path must run from a to d, the hosts' switches"),
        (Route(AD, ()), "via nothing"),
        (Route(AD, ("a", "b", "a", "c", "d")), "crosses a switch twice"),
        (Route(FlowSpec("ha", "nobody"), ("a",)), "there is no host 'nobody'"),
    ],
)
def test_a_route_that_cannot_be_is_named(diamond: Topology, route: Route, problem: str) -> None:
    with pytest.raises(ControllerError, match=rf"route ha->\w+ via .*{problem}|{problem}"):
        flow_path_entities(diamond, RouteSet(1, (route,)))


def test_a_flow_is_not_routed_twice(diamond: Topology) -> None:
    routes = RouteSet(4, (Route(AD, ("a", "b", "d")), Route(AD, ("a", "c", "d"))))
    with pytest.raises(ControllerError, match="routed twice in version 4"):
        flow_path_entities(diamond, routes)
