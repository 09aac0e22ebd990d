"""Networks routed by hosts, as entries of their switches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from finsy import P4TableAction, P4TableEntry

from controller.common.errors import ControllerError
from controller.network.content.settings import StoreSettings
from controller.network.features import Features
from controller.network.p4runtime.session import check_schema, fabric_program, load_schema
from controller.network.process import features_of, load_settings
from controller.network.tables.base import port_entities
from controller.network.tables.entities import index
from controller.network.tables.sources import MAX_NETWORKS, SWITCH_TABLE, RoutedNetworks, source_entities
from dataplane.topology.addressing import SWITCH_ADDRESSES, switch_ipv4
from dataplane.topology.families import leaf_spine
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology

NETWORKS = ("172.16.0.0/12", "fd00:7::/48", "0.0.0.0/0")


def test_networks_are_let_in_at_the_port_of_their_host(diamond: Topology) -> None:
    routed = (RoutedNetworks("ha", NETWORKS),)
    entities = [*source_entities(diamond, "a", routed)]
    check_schema(load_schema(*fabric_program()), entities)
    matches = [(key.table, dict(key.match)) for key in index(entities)]
    assert matches == [
        (SWITCH_TABLE, {}),
        ("ipv4_sources", {"ingress_port": 1}),
        ("ipv4_sources", {"ingress_port": 1, "src_addr": (0xAC100000, 12)}),
        ("ipv6_sources", {"ingress_port": 1, "src_addr": (0xFD000007 << 96, 48)}),
    ]
    assert [*source_entities(diamond, "d", routed)] == entities[:1]


def test_every_switchs_address_is_one_and_no_hosts_is() -> None:
    value, mask = SWITCH_ADDRESSES
    for topology in (leaf_spine(2, 2, 3), load_topology("abilene"), load_topology("fat-tree:k=4")):
        assert all(int(switch_ipv4(node.node_id)) & mask == value for node in topology.switches)
        assert all(int(host.ipv4) & mask != value for host in topology.hosts)


def test_switches_without_hosts_need_none() -> None:
    topology = leaf_spine(2, 2, 1)
    assert [*source_entities(topology, "spine1", ())] == []
    assert [entity.table_id for entity in port_entities(topology, "spine1") if isinstance(entity, P4TableEntry)][
        1:
    ] == ["egress_ports"] * 2


def test_a_host_without_an_ipv6_address_sends_none(diamond: Topology) -> None:
    hosts = tuple(replace(host, ipv6=None) for host in diamond.hosts)
    (role,) = (
        entity.action
        for entity in port_entities(replace(diamond, hosts=hosts), "a")
        if isinstance(entity, P4TableEntry) and entity.table_id == "port_roles"
    )
    assert isinstance(role, P4TableAction)
    assert not any(0 <= address & role.args["ipv6_mask"] == role.args["ipv6_addr"] for address in (0, 1, 2**128 - 1))


def test_the_controllers_settings_name_them(tmp_path: Path, diamond: Topology) -> None:
    file = tmp_path / "controller.yaml"
    file.write_text("topology: t\nswitches: {}\nrouted_networks: [{host: ha, networks: [172.16.0.0/12]}]\n")
    settings = load_settings(file)
    assert settings.routed_networks == (RoutedNetworks("ha", ("172.16.0.0/12",)),)
    for asked in (settings, msgspec.structs.replace(settings, store=StoreSettings())):
        tables = [key.table for key in features_of(asked, diamond).coordinator.wanted("a")]
        assert tables.count("ipv4_sources") == 1


REFUSED = [
    (RoutedNetworks("nobody", ()), "routed_networks: topology diamond has no host 'nobody'"),
    (RoutedNetworks("ha", ("10.0.0.1/8",)), "routed_networks: ha: 10.0.0.1/8 has host bits set"),
    (RoutedNetworks("ha", ("everything",)), "routed_networks: ha: 'everything' does not appear to be"),
    (
        RoutedNetworks("ha", tuple(f"172.16.{n >> 8}.{n & 255}/32" for n in range(MAX_NETWORKS + 1))),
        f"routed_networks: {MAX_NETWORKS + 1} needed in ipv4_sources of a, but there is room for {MAX_NETWORKS}",
    ),
]


@pytest.mark.parametrize(("routed", "words"), REFUSED)
def test_impossible_network_is_refused(diamond: Topology, routed: RoutedNetworks, words: str) -> None:
    with pytest.raises(ControllerError, match=words):
        Features(diamond, routed=(routed,))
