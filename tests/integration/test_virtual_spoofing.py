"""A spoofing host in a fabric filled by the controller: its forged frames end at its own port."""

from __future__ import annotations

from collections import Counter
from functools import partial
from ipaddress import IPv4Address, IPv6Address

import pytest
from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Ether
from scapy.packet import Packet, Raw

from controller.network.tables.sources import RoutedNetworks
from controller.network.tables.telemetry.int_domain import IntDomain, PortRole
from controller.network.virtual import VirtualController, WriteDelays
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.addressing import format_mac, gateway_mac, switch_ipv4
from dataplane.topology.families import leaf_spine
from dataplane.topology.values import HostNode

TOPOLOGY = leaf_spine(1, 2, 2)
ATTACKER, NEIGHBOUR, VICTIM = (TOPOLOGY.host[name] for name in ("h3", "h4", "h1"))
EDGE = TOPOLOGY.attachment[ATTACKER.name]
AT_ONCE_NS = 1_000_000
IN_FORCE_NS = 10_000_000_000
Address = IPv4Address | IPv6Address
NOBODYS: tuple[Address, ...] = IPv4Address("192.0.2.1"), IPv6Address("2001:db8::1")
SPOOFED, REPORTS = "drop_source_spoofed", "drop_report_at_edge"


class World:
    """The fabric, and what reaches each host from now on, by source address."""

    def __init__(self, *, domain: IntDomain | None = None, routed: tuple[RoutedNetworks, ...] = ()) -> None:
        self.fabric = VirtualFabric(TOPOLOGY)
        delays = WriteDelays(write_delay_ns=0)
        controller = VirtualController.over(
            self.fabric, delays=delays, watches=(), domain=domain or IntDomain(), routed=routed
        )
        controller.start()
        self.fabric.run_until(IN_FORCE_NS)
        self.arrived: Counter[tuple[str, str]] = Counter()
        for host in TOPOLOGY.hosts:
            self.fabric.host(host.name).on_frame(partial(self._note, host.name))

    def send(self, host: HostNode, *packets: Packet) -> None:
        """Have a host send packets, and wait until those that arrive have arrived."""
        ethernet = Ether(src=format_mac(host.mac), dst=format_mac(gateway_mac(TOPOLOGY, host.name)))
        for packet in packets:
            assert self.fabric.host(host.name).send(raw(ethernet / packet))
            self.fabric.run_until(self.fabric.now_ns + AT_ONCE_NS)

    def dropped(self, counter: str) -> int:
        """Return how many packets the attacker's switch has dropped."""
        state = self.fabric.switch(EDGE.node).state
        assert state is not None
        return next(cells.packets[0] for name, cells in state.counters.items() if name.endswith(f".{counter}"))

    def _note(self, host: str, frame: bytes, _: int) -> None:
        packet = Ether(frame)
        self.arrived[host, packet[IP].src if IP in packet else packet[IPv6].src] += 1


def udp(src: Address | None, dst: HostNode = VICTIM, port: int = 2000) -> Packet:
    if isinstance(src, IPv4Address):
        return IP(src=str(src), dst=str(dst.ipv4)) / UDP(sport=port, dport=port) / Raw(bytes(40))
    return IPv6(src=str(src), dst=str(dst.ipv6)) / UDP(sport=port, dport=port) / Raw(bytes(40))


def switches() -> list[IPv4Address]:
    return [switch_ipv4(node.node_id) for node in TOPOLOGY.switches]


def forgeries() -> list[Packet]:
    """Return packets that claim every other host and switch, and unknown sources, plain and in tunnels."""
    others = [host for host in TOPOLOGY.hosts if host is not ATTACKER]
    plain = [udp(address) for host in others for address in (host.ipv4, host.ipv6)]
    mine = IP(src=str(ATTACKER.ipv4), dst=str(VICTIM.ipv4))
    tunnelled = [mine / GRE() / udp(address) for address in switches()]
    nobodys = [udp(address) for address in NOBODYS]
    return [*plain, *map(udp, switches()), *nobodys, *tunnelled]


def reports() -> list[Packet]:
    """Return what a forger of reports sends: in switches' names, and in its own, by IPv6, too."""
    assert TOPOLOGY.collector is not None
    there, port = TOPOLOGY.host[TOPOLOGY.collector.host], TOPOLOGY.collector.udp_port
    own: list[Address] = [address for address in (ATTACKER.ipv4, ATTACKER.ipv6) if address is not None]
    return [udp(address, there, port) for address in (*switches(), *own)]


OPEN = IntDomain(ports=(PortRole(switch=EDGE.node, port=EDGE.port, source=False),))


@pytest.mark.parametrize("domain", [IntDomain(), OPEN], ids=["default", "a host that sends INT itself"])
def test_nothing_that_a_host_forges_leaves_its_port(domain: IntDomain) -> None:
    world = World(domain=domain)
    world.send(ATTACKER, *forgeries(), *reports())
    assert world.arrived == {}
    assert (world.dropped(SPOOFED), world.dropped(REPORTS)) == (len(forgeries()), len(reports()))


def test_genuine_packets_arrive_beside_forged_ones() -> None:
    world = World()
    for forged in forgeries():
        world.send(ATTACKER, forged, udp(ATTACKER.ipv4), udp(ATTACKER.ipv6), udp(ATTACKER.ipv4, NEIGHBOUR))
        world.send(NEIGHBOUR, udp(NEIGHBOUR.ipv4))
    count = len(forgeries())
    assert world.arrived == {
        (VICTIM.name, str(ATTACKER.ipv4)): count,
        (VICTIM.name, str(ATTACKER.ipv6)): count,
        (NEIGHBOUR.name, str(ATTACKER.ipv4)): count,
        (VICTIM.name, str(NEIGHBOUR.ipv4)): count,
    }
    assert world.dropped(SPOOFED) == count


def test_a_host_that_routes_everything_still_is_no_switch() -> None:
    world = World(routed=(RoutedNetworks(ATTACKER.name, ("0.0.0.0/0", "::/0")),))
    world.send(ATTACKER, *(udp(address) for address in (VICTIM.ipv4, *NOBODYS)))
    assert sum(world.arrived.values()) == 3
    world.send(ATTACKER, *(udp(address) for address in switches()), *reports())
    assert sum(world.arrived.values()) == 3
    assert (world.dropped(SPOOFED), world.dropped(REPORTS)) == (len(switches()), len(reports()))
