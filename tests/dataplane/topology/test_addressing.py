from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address

import pytest

from dataplane.topology import addressing
from dataplane.topology.file import load_topology


def test_the_plan_is_what_the_docstring_says() -> None:
    assert addressing.host_ipv4(0x0102, 3) == IPv4Address("10.1.2.3")
    assert addressing.host_ipv6(0x0102, 3) == IPv6Address("fd00:0:0:102::3")
    assert addressing.host_mac(0x0102, 3) == 0x02_00_01_02_00_03
    assert addressing.port_mac(0x0102, 300) == 0x02_01_01_02_01_2C
    assert addressing.switch_ipv4(0x0102) == IPv4Address("10.1.2.254")
    assert addressing.switch_subnet_ipv4(0xFFFF) == IPv4Network("10.255.255.0/24")


def test_interfaces_of_a_topology() -> None:
    topology = load_topology("leaf-spine:spines=1,leaves=2,hosts=1")
    assert addressing.mac_at(topology, "h2", 0) == topology.host["h2"].mac
    assert addressing.mac_at(topology, "leaf2", 1) == addressing.port_mac(3, 1)
    assert addressing.gateway_mac(topology, "h2") == addressing.port_mac(3, 1)


def test_mac_addresses_as_text() -> None:
    assert addressing.parse_mac("02:00:00:01:00:0a") == 0x02000001000A
    assert addressing.format_mac(0x02000001000A) == "02:00:00:01:00:0a"


NOT_ONE_INTERFACE = ["01:00:5e:00:00:01", "00:00:00:00:00:00"]
NOT_AN_ADDRESS = ["", "02:00:00:01:00", "02:00:00:01:00:0g", "2:0:0:1:0:a", "0200.0001.000a", "02:00:00:01:00: 1"]


@pytest.mark.parametrize("text", NOT_ONE_INTERFACE + NOT_AN_ADDRESS)
def test_what_is_not_one_interface_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"MAC|interface"):
        addressing.parse_mac(text)
