"""Source addresses that a host may use: its own, those of networks it is declared to route, never a switch's."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest
from scapy.compat import raw
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Dot1Q, Ether
from scapy.packet import Packet, Raw

from dataplane.wire.drop_reasons import DropReason
from tests.p4.drop_cases import MARKED
from tests.p4.entries import (
    COLLECTOR,
    COLLECTOR6,
    COLLECTOR_UDP_PORT,
    DOWN_PORT,
    HOST_PORT,
    UP_PORT,
    DefaultAction,
    Entry,
    Item,
    Role,
    Watch,
    source,
    transit,
    watch_drops,
)
from tests.p4.frames import DST4, DST6, HOST_MAC, ROUTER_MAC, SRC4, SRC6, build
from tests.p4.targets import Target, pass_through
from tests.p4.test_drops import check_counted
from tests.p4.test_payloads import REPORTS

SWITCH = "10.0.7.254"
SWITCHES = DefaultAction("switch_addresses", "set_switch_addresses", (0x0A0000FE, 0xFF0000FF))
OWN = (int(IPv4Address(SRC4)), 2**32 - 1, int(IPv6Address(SRC6)), 2**128 - 1)
EDGE = replace(source(Watch()), watch=None, reports=False, own=OWN, extra=(SWITCHES,))
ETHERNET = Ether(src=HOST_MAC, dst=ROUTER_MAC)


def from_address(src: str, payload: Packet | None = None, *, vlan: bool = False) -> bytes:
    """Return a host's frame with this source address."""
    frame: Packet = ETHERNET / Dot1Q(vlan=7) if vlan else ETHERNET
    ip = IPv6(src=src, dst=DST6) if ":" in src else IP(src=src, dst=DST4)
    return raw(frame / ip / (payload or UDP(sport=1, dport=2) / Raw(b"payload")))


OWN_FRAMES = {
    "ipv4": from_address(SRC4),
    "ipv4-tcp-vlan": from_address(SRC4, TCP(sport=1, dport=2), vlan=True),
    "another-protocol": from_address(SRC4, Raw(bytes(40))),
    "ipv6": from_address(SRC6),
}
FORGED = {
    "another-host": from_address("10.0.0.2"),
    "another-host-vlan": from_address("10.0.0.2", vlan=True),
    "another-protocol": from_address("10.0.0.2", Raw(bytes(40))),
    "a-switch": from_address(SWITCH),
    "nobody": from_address("0.0.0.0"),
    "another-host-ipv6": from_address("fc00::2"),
    "link-local": from_address("fe80::1"),
}


@pytest.mark.parametrize("frame", OWN_FRAMES.values(), ids=OWN_FRAMES)
def test_a_hosts_own_packets_pass(target: Target, frame: bytes) -> None:
    assert [port for port, _ in pass_through(target, EDGE, HOST_PORT, frame, expect=1)] == [DOWN_PORT]
    check_spoofed(target, 0)


@pytest.mark.parametrize("frame", FORGED.values(), ids=FORGED)
def test_spoofed_source_is_dropped_by_name_unreported(target: Target, frame: bytes) -> None:
    role = replace(EDGE, reports=True, extra=(SWITCHES, *watch_drops()))
    assert pass_through(target, role, HOST_PORT, frame, expect=0) == []
    check_spoofed(target, 1)
    assert DropReason.SOURCE_SPOOFED.name.lower() == "source_spoofed"


@pytest.mark.parametrize("frame", FORGED.values(), ids=FORGED)
def test_between_switches_addresses_are_nobodys_business(target: Target, frame: bytes) -> None:
    role = replace(transit(), own=OWN, extra=(SWITCHES,))
    assert len(pass_through(target, role, UP_PORT, frame, expect=1)) == 1
    check_spoofed(target, 0)


def vxlan(flags: int, next_protocol: int, inner: Packet, *, port: int = 4789) -> Packet:
    header = bytes([flags, 0, 0, next_protocol, 0, 0, 9, 0])
    return UDP(sport=5, dport=port, chksum=0) / Raw(header + raw(inner))


def tunnels(src: str) -> dict[str, Packet]:
    """Return every tunnel that the program reads, with a packet from an address in it."""
    inner = IP(src=src, dst=DST4) / UDP(sport=32766, dport=32766) / Raw(bytes(32))
    frame = Ether(src=HOST_MAC, dst=ROUTER_MAC)
    return {
        "gre": GRE() / inner,
        "gre-options": GRE(chksum_present=1, key_present=1, seqnum_present=1, key=5, sequence_number=6) / inner,
        "gre-bridged": GRE(proto=0x6558) / frame / inner,
        "gre-bridged-vlan": GRE(proto=0x6558) / frame / Dot1Q(vlan=0) / inner,
        "vxlan": vxlan(0x08, 0, frame / inner),
        "vxlan-vlan": vxlan(0x08, 0, frame / Dot1Q(vlan=3) / inner),
        "gpe-without-protocol": vxlan(0x08, 0, frame / inner, port=4790),
        "gpe-ipv4": vxlan(0x0C, 1, inner, port=4790),
        "gpe-frame": vxlan(0x0C, 3, frame / inner, port=4790),
    }


KINDS = tuple(tunnels(SWITCH))


@pytest.mark.parametrize("outer", [SRC4, SRC6], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_tunnel_brings_in_a_switchs_packets(target: Target, kind: str, outer: str) -> None:
    assert pass_through(target, EDGE, HOST_PORT, from_address(outer, tunnels(SWITCH)[kind]), expect=0) == []
    check_spoofed(target, 1)
    assert len(pass_through(target, EDGE, HOST_PORT, from_address(outer, tunnels("10.0.0.9")[kind]), expect=1)) == 1
    check_spoofed(target, 0)


def test_tunnel_too_short_for_an_address_passes(target: Target) -> None:
    frames = [from_address(SRC4, GRE() / Raw(bytes(length))) for length in range(11, 20)]
    frames += [from_address(SRC4, GRE(proto=0x6558) / Raw(bytes(12) + b"\x81\0" + bytes(20)))]
    assert len(pass_through(target, EDGE, HOST_PORT, *frames, expect=len(frames))) == len(frames)
    check_spoofed(target, 0)


def behind(*networks: tuple[str, int]) -> Role:
    """Return a switch whose host routes networks."""
    items: list[Item] = [SWITCHES]
    for text, length in networks:
        address = IPv6Address(text) if ":" in text else IPv4Address(text)
        match: dict[str, int | tuple[int, int]] = {"ingress_port": HOST_PORT}
        if length:
            match["src_addr"] = (int(address), length)
        items.append(Entry(f"ipv{address.version}_sources", match, "NoAction"))
    return replace(EDGE, extra=tuple(items))


def test_a_host_that_routes_carries_its_networks_and_no_others(target: Target) -> None:
    role = behind(("172.16.0.0", 12), ("2001:db8::", 32))
    carried = [from_address(src) for src in ("172.16.9.9", "172.31.0.1", "2001:db8::5", SRC4, SRC6)]
    assert len(pass_through(target, role, HOST_PORT, *carried, expect=5)) == 5
    check_spoofed(target, 0)
    others = [from_address(src) for src in ("172.32.0.1", "10.0.0.2", "2001:db9::5", "fc00::2")]
    assert pass_through(target, role, HOST_PORT, *others, expect=0) == []
    check_spoofed(target, 4)


def test_a_gateway_carries_any_address_but_a_switchs(target: Target) -> None:
    role = behind(("0.0.0.0", 0), ("::", 0))
    carried = [from_address(src) for src in ("192.0.2.1", "10.0.0.2", "2001:db8::5")]
    assert len(pass_through(target, role, HOST_PORT, *carried, expect=3)) == 3
    check_spoofed(target, 0)
    forged = [from_address(SWITCH), from_address("192.0.2.1", tunnels(SWITCH)["gre"])]
    assert pass_through(target, role, HOST_PORT, *forged, expect=0) == []
    check_spoofed(target, 2)


def test_int_sending_host_forges_neither_addresses_nor_reports(target: Target) -> None:
    items = [item for item in EDGE.items() if not (isinstance(item, Entry) and item.table == "port_roles")]
    collector = DefaultAction("collector", "set_collector", (COLLECTOR, COLLECTOR6, COLLECTOR_UDP_PORT))
    target.write([*items, collector, Entry("port_roles", {"ingress_port": HOST_PORT}, "set_host_port", OWN)])
    assert len(target.send(HOST_PORT, MARKED, build(), expect=2)) == 2
    assert target.send(HOST_PORT, *FORGED.values(), *REPORTS.values(), expect=0) == []
    check_counted(target, {"drop_source_spoofed": len(FORGED), "drop_report_at_edge": len(REPORTS)})


def check_spoofed(target: Target, packets: int) -> None:
    check_counted(target, {"drop_source_spoofed": packets} if packets else {})
