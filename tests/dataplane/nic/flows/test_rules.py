from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest

from dataplane.errors import ClassifierError
from dataplane.nic.flows.patterns import pattern_of
from dataplane.nic.flows.rules import Call, Drop, FlowRule, Masked, Range

TOO_LARGE = 1 << 32


def refusal(match: Mapping[str, Any]) -> str:
    """Return the error for an invalid match."""
    rule = FlowRule("web", match, Drop())
    with pytest.raises(ClassifierError) as refused:
        pattern_of(rule)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("match", "message"),
    [
        ({"udp.port": 1}, "udp.port: there is no such field"),
        ({"udp.dst": 65536}, "udp.dst: 65536 does not fit in 16 bits"),
        ({"vlan.id": 4096}, "vlan.id: 4096 does not fit in 12 bits"),
        ({"ip.ttl": -1}, "ip.ttl: -1 does not fit in 8 bits"),
        ({"udp.dst": Masked(0, 1 << 16)}, "udp.dst: 65536 does not fit in 16 bits"),
        ({"udp.dst": Range(1, 65536)}, "udp.dst: 65536 does not fit in 16 bits"),
        ({"udp.dst": "53"}, "udp.dst: '53' is not a number"),
        ({"udp.dst": 5.0}, "udp.dst: 5.0 is not a number"),
        ({"udp.dst": None}, "udp.dst: None is not a number"),
        ({"udp.dst": "53/8"}, "udp.dst: '53/8' is not a number; Masked(value, mask) matches some of its bits"),
        ({"udp.dst": Masked(3, 1)}, "udp.dst: 3 has bits outside the mask 1"),
        ({"udp.dst": Range(9, 5)}, "udp.dst: 9 is above 5"),
        ({"ip.dst": "10.0.0.256"}, "ip.dst: '10.0.0.256' is not an IP address"),
        ({"ip.dst": 0x0A000001}, "ip.dst: 167772161 is not an IP address"),
        ({"ip.dst": "10.0.0.1/8"}, "ip.dst: '10.0.0.1/8' has bits beyond its prefix"),
        ({"ip.dst": "10.0.0.0/33"}, "ip.dst: '10.0.0.0/33' has no prefix length from 0 to 32"),
        ({"ip.dst": "10.0.0.0/255.0.0.0"}, "ip.dst: '10.0.0.0/255.0.0.0' has no prefix length from 0 to 32"),
        ({"ip.dst": Masked("10.0.0.0", "ff::")}, "ip.dst: 10.0.0.0 and the mask ff:: are of different IP versions"),
        ({"ip.dst": Range("10.0.0.0", "::1")}, "ip.dst: 10.0.0.0 and ::1 are of different IP versions"),
        ({"eth.dst": "02:00:00:00:00"}, "eth.dst: '02:00:00:00:00' is not a MAC address"),
        ({"eth.dst": "02:00:00:00:00:0g"}, "eth.dst: '02:00:00:00:00:0g' is not a MAC address"),
        ({"eth.dst": IPv4Address("10.0.0.1")}, "eth.dst: IPv4Address('10.0.0.1') is not a MAC address"),
        ({"ip.version": 5}, "ip.version: 5 is neither 4 nor 6"),
        ({"udp.dst": 53, "tcp.flags": 2}, "tcp.flags: cannot be combined with udp.dst"),
        ({"tcp.src": 53, "ip.protocol": 17}, "ip.protocol: cannot be combined with tcp.src"),
        ({"ip.protocol": Range(0, 10), "udp.dst": 5}, "udp.dst: cannot be combined with ip.protocol"),
        ({"ip.protocol": Range(0, 16), "udp.dst": 5}, "ip.protocol: cannot be combined with udp.dst"),
        ({"ip.src": "10.0.0.1", "ip.dst": "2001:db8::1"}, "ip.dst: cannot be combined with ip.src"),
        ({"ip.version": 6, "ip.dst": "10.0.0.0/8"}, "ip.dst: cannot be combined with ip.version"),
        ({"eth.type": 0x86DD, "ip.dst": "10.0.0.0/8"}, "ip.dst: cannot be combined with eth.type"),
        ({"eth.type": 0x0806, "ip.ttl": 64}, "ip.ttl: cannot be combined with eth.type"),
        ({"ip.fragment": True, "udp.dst": 53}, "udp.dst: cannot be combined with ip.fragment"),
    ],
)
def test_what_no_frame_can_have_is_refused(match: Mapping[str, Any], message: str) -> None:
    assert refusal(match) == f"rule web: {message}"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"priority": TOO_LARGE}, "rule web: priority 4294967296 is not in 0 to 4294967295"),
        ({"priority": -1}, "rule web: priority -1 is not in 0 to 4294967295"),
        ({"mark": TOO_LARGE}, "rule web: mark 4294967296 is not in 0 to 4294967295"),
        ({"action": Call(0)}, "rule web: function 0 is not in 1 to 18446744073709551615"),
        ({"action": Call(1, -1)}, "rule web: context -1 is not in 0 to 18446744073709551615"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ClassifierError) as refused:
        FlowRule("web", {}, **({"action": Drop()} | settings))
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"ip.dst": "10.0.0.0/8"}, {"ip.dst": IPv4Network("10.0.0.0/8")}),
        ({"ip.dst": "10.0.0.0/8"}, {"ip.dst": Masked("10.0.0.0", "255.0.0.0"), "ip.version": 4}),
        ({"ip.dst": "10.0.0.0/8"}, {"ip.dst": Range("10.0.0.0", "10.255.255.255"), "eth.type": 0x0800}),
        ({"ip.dst": "10.0.0.1/32"}, {"ip.dst": IPv4Address("10.0.0.1")}),
        ({"eth.dst": "02:00:00:00:00:00/24"}, {"eth.dst": Masked(0x020000000000, "ff:ff:ff:00:00:00")}),
        ({"udp.dst": 53}, {"udp.dst": Range(53, 53), "ip.protocol": 17, "ip.fragment": False}),
        ({"udp.dst": Range(0, 65535)}, {"udp.dst": Masked(0, 0), "ip.protocol": Range(1, 100)}),
    ],
)
def test_two_ways_to_write_the_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    assert pattern_of(FlowRule("a", one, Drop())) == pattern_of(FlowRule("b", other, Drop()))


def test_a_rule_keeps_the_match_that_it_was_made_with() -> None:
    match = {"udp.dst": 53}
    rule = FlowRule("web", match, Drop())
    match["udp.dst"] = 54
    assert rule.match == {"udp.dst": 53}
