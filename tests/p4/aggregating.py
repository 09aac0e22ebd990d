"""Jobs that a switch under test adds up for, and packets of their workers."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address

from dataplane.allreduce.reference.aggregator import Job, Multicast, Sent, Unicast
from dataplane.wire import aggregation
from dataplane.wire.aggregation import UDP_PORT, Aggregation
from tests.p4 import targets
from tests.p4.datagrams import arrivals, datagram
from tests.p4.entries import (
    COLLECTOR_PORT,
    DOWN_PORT,
    HOST_PORT,
    NEXT_HOP_MAC,
    SWITCH_MAC,
    UP_PORT,
    Entry,
    Item,
    MulticastTo,
    Spread,
    mac,
)

SWITCH, PARENT = IPv4Address("10.200.0.1"), IPv4Address("10.200.0.2")
PARENT_PORT = COLLECTOR_PORT
NONCE = 0xFEDCBA9876543210
SERVER = 5
"""Number of the main server, which is no child."""
_PORTS = (HOST_PORT, UP_PORT, DOWN_PORT)


@dataclass(frozen=True, slots=True)
class Hosted:
    """A job in the switch's tables: its number, how many children it has, and its first cell."""

    number: int
    job: Job
    children: int
    first_cell: int = 0

    def items(self) -> list[Item]:
        """Return all entries of the job."""
        job = self.job
        shared = (job.nonce, job.epoch, job.children, self.first_cell, self.first_cell + job.cells - 1, self.number)
        action, last = ("add_up_for", int(PARENT)) if job.leaf else ("add_up", self.number)
        key = {"dst_addr": int(SWITCH), "job": self.number}
        items: list[Item] = [
            MulticastTo(self.number, tuple((port_of(child), child + 1) for child in range(self.children))),
            Entry("aggregation_jobs", {"job": self.number}, action, (*shared, last)),
            Entry("aggregation_peers", {**peer(PARENT, UDP_PORT), **key}, "from_parent", priority=1),
        ]
        for child in range(self.children):
            to = (mac(child), int(address_of(child)), udp_port_of(child))
            items += [
                Entry(
                    "aggregation_peers",
                    {**peer(address_of(child), udp_port_of(child)), **key},
                    "from_child",
                    (child,),
                    1,
                ),
                Entry("aggregation_replicas", {"job": self.number, "replica": child + 1}, "address", to),
            ]
        server = {**peer(address_of(SERVER), udp_port_of(SERVER)), **key}
        items.append(Entry("aggregation_peers", server, "from_server", priority=1))
        return items


def peer(address: IPv4Address, udp_port: int) -> dict[str, int | tuple[int, int]]:
    """Return the key that identifies a peer by its packets."""
    return {"src_addr": int(address), "src_port": (udp_port, 0xFFFF)}


def fabric_items() -> list[Item]:
    """Return the other entries that the switch needs: ports, and a route to the parent."""
    route = Spread("ipv4_routes", "ipv4_ecmp", {"dst_addr": (int(PARENT), 32)}, 1, ((PARENT_PORT, NEXT_HOP_MAC),))
    ports = (*_PORTS, PARENT_PORT)
    return [
        *(Entry("egress_ports", {"egress_port": port}, "set_egress_port", (SWITCH_MAC, 0, 0, 0)) for port in ports),
        route,
    ]


def port_of(child: int) -> int:
    """Return the port that a child is behind; there are more children than ports."""
    return _PORTS[child % len(_PORTS)]


def address_of(child: int) -> IPv4Address:
    """Return a child's address."""
    return IPv4Address("10.0.1.1") + 256 * child


def udp_port_of(child: int) -> int:
    """Return the UDP port that a child listens on."""
    return 19000 + child


def from_child(child: int, packet: Aggregation, *, ecn: int = 0) -> tuple[int, bytes]:
    """Return port and frame of a child's packet."""
    return port_of(child), frame(address_of(child), udp_port_of(child), packet, ecn=ecn)


def from_parent(packet: Aggregation, *, ecn: int = 0) -> tuple[int, bytes]:
    """Return port and frame of a parent's packet."""
    return PARENT_PORT, frame(PARENT, UDP_PORT, packet, ecn=ecn)


def frame(src: IPv4Address, src_port: int, packet: Aggregation, *, ecn: int = 0, checksum: int | None = 0) -> bytes:
    """Return a frame to the switch."""
    return datagram((src, src_port), (SWITCH, UDP_PORT), packet.encode(), ecn=ecn, checksum=checksum)


Arrival = tuple[int, str, str, int, int, Aggregation]
"""Port, addresses, UDP ports, packet."""


def seen(sent: targets.Sent) -> list[Arrival]:
    """Return the packets that left the switch; check lengths and checksums."""
    return sorted(arrivals(sent, aggregation.decode), key=lambda arrival: (arrival[0], arrival[4]))


def expected(sent: Sent | None, children: int) -> list[Arrival]:
    """Return the packets that should leave the switch, by the reference."""
    match sent:
        case None:
            return []
        case Unicast(child, packet):
            to = [(port_of(child), address_of(child), udp_port_of(child))]
        case Multicast(packet):
            to = [(port_of(child), address_of(child), udp_port_of(child)) for child in range(children)]
        case _:
            packet, to = sent.packet, [(PARENT_PORT, PARENT, UDP_PORT)]
    return sorted(
        ((port, str(SWITCH), str(address), UDP_PORT, udp_port, packet) for port, address, udp_port in to),
        key=lambda arrival: (arrival[0], arrival[4]),
    )
