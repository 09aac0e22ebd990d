"""Marks and ports of an INT domain: entries and refusals."""

from __future__ import annotations

import pytest

from controller.common.errors import ControllerError
from controller.network.tables.entities import Entities
from controller.network.tables.telemetry.int_domain import IntDomain, PortRole
from controller.network.tables.telemetry.int_watch import Watch
from dataplane.topology.values import Topology
from dataplane.wire.marking import Marking
from tests.controller.network.base_tables import base_entities
from tests.controller.network.tables.test_base import action


def tables(entities: Entities) -> set[str]:
    return {key.table for key in entities}


def test_the_default_marks_need_no_entry(diamond: Topology) -> None:
    assert tables(base_entities(diamond)["a"]).isdisjoint({"int_marker", "int_tunnels"})
    assert IntDomain().marking() == Marking(gre_protocol=None)


MARKS = [
    (IntDomain(dscp=0x20, dscp_mask=0x20), "mark_by_dscp", {"dscp": 0x20, "mask": 0x20}),
    (IntDomain(udp_port=5599), "mark_by_udp_port", {"udp_port": 5599, "always_new_udp": 0}),
    (IntDomain(udp_port=5599, always_new_udp=True), "mark_by_udp_port", {"udp_port": 5599, "always_new_udp": 1}),
    (IntDomain(probe_marker=0xFEED << 48), "mark_by_probe", {"probe_marker": 0xFEED << 48}),
]


@pytest.mark.parametrize(("domain", "name", "arguments"), MARKS)
def test_every_switch_gets_the_same_mark(
    diamond: Topology, domain: IntDomain, name: str, arguments: dict[str, int]
) -> None:
    for entities in base_entities(diamond, domain=domain).values():
        marker = action(entities, "int_marker")
        assert (marker.name, marker.args) == (name, arguments)


def test_a_decoder_looks_for_one_mark_only() -> None:
    marking = IntDomain(udp_port=5599, tunnels=True, gre_protocol=0x88B6).marking()
    assert (marking.dscp, marking.udp_port, marking.probe_marker, marking.gre_protocol) == (None, 5599, None, 0x88B6)


def test_tunnels_are_turned_on(diamond: Topology) -> None:
    entities = base_entities(diamond, domain=IntDomain(tunnels=True))["a"]
    assert action(entities, "int_tunnels").args == {"gre_protocol": 0x88B5}


def test_switch_links_have_an_mtu_and_host_ports_none(diamond: Topology) -> None:
    entities = base_entities(diamond, domain=IntDomain(mtu_bytes=1600, strip_at_mtu=True))["a"]
    assert [action(entities, "egress_ports", egress_port=port).args["mtu_bytes"] for port in (1, 3)] == [0, 1600]
    assert action(entities, "egress_ports", egress_port=3).args["strip_at_mtu"] == 1


def test_a_port_may_be_source_or_sink_or_neither(diamond: Topology) -> None:
    ports = (
        PortRole(switch="a", port=1, source=False),
        PortRole(switch="a", port=3, source=True, sink=True, mtu_bytes=1500),
    )
    entities = base_entities(diamond, domain=IntDomain(ports=ports))["a"]
    host, between = (action(entities, "port_roles", ingress_port=port) for port in (1, 3))
    assert (host.name, between.name) == ("set_host_port", "set_source_port")
    assert (host.args["addr"], host.args["mask"]) == (0x0A000101, 0xFFFFFFFF)
    assert set(between.args.values()) == {0}  # whatever the other switch sends
    assert [action(entities, "egress_ports", egress_port=port).args["sink"] for port in (1, 3)] == [1, 1]
    assert action(entities, "egress_ports", egress_port=3).args["mtu_bytes"] == 1500


REFUSED = [
    (IntDomain(udp_port=1, probe_marker=0), "either a UDP port or a probe marker"),
    (IntDomain(always_new_udp=True), "always_new_udp needs a udp_port"),
    (IntDomain(dscp=0x17, dscp_mask=0x10), "DSCP 0x17 has bits outside its mask 0x10"),
    (IntDomain(tunnels=True, gre_protocol=0x6558), "GRE protocol 0x6558 is that of packets without INT"),
    (IntDomain(probe_marker=1 << 64), "a probe marker must fit 64 bits"),
    (IntDomain(probe_marker=0x3 << 60), "probe marker 0x3000000000000000 begins like a shim"),
    (IntDomain(probe_marker=0x0C << 56), "probe marker 0x0c00000000000000 begins like VXLAN"),
    (IntDomain(udp_port=4789), "UDP port 4789 is that of VXLAN"),
    (IntDomain(udp_port=19778), "UDP port 19778 is that of stored content"),
    (IntDomain(ports=(PortRole(switch="a", port=99),)), "there is no port 99 of switch 'a' in use"),
    (IntDomain(ports=(PortRole(switch="nowhere", port=1),)), "there is no port 1 of switch 'nowhere' in use"),
]


@pytest.mark.parametrize(("domain", "words"), REFUSED)
def test_impossible_domain_is_refused(diamond: Topology, domain: IntDomain, words: str) -> None:
    with pytest.raises(ControllerError, match=words):
        base_entities(diamond, domain=domain)


@pytest.mark.parametrize(("mode", "number"), [("md", 0), ("hop-by-hop", 1), ("mx", 2), ("xd", 3)])
def test_a_watch_chooses_the_mode(diamond: Topology, mode: str, number: int) -> None:
    watch = Watch(mode=mode, source_number=True, forwarding=True, discard=True)  # type: ignore[arg-type]
    args = action(base_entities(diamond, (watch,))["a"], "ipv4_watchlist", protocol=(6, 255)).args
    assert (args["mode"], args["domain_instructions"], args["discard"]) == (number, 0xC000, 1)


def test_only_exporting_watches_reach_switches_without_sources(diamond: Topology) -> None:
    domain = IntDomain(ports=(PortRole(switch="a", port=1, source=False),))
    assert "ipv4_watchlist" not in tables(base_entities(diamond, domain=domain)["a"])
    watches = (Watch(dst_port=80), Watch(mode="xd"))
    assert "ipv4_watchlist" in tables(base_entities(diamond, watches, domain=domain)["a"])
