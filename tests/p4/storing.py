"""Names that a switch under test holds content of, and packets of readers, writers and the producer."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address

from dataplane.store.reference.holder import Back, Cached, Held, Sender, Sent
from dataplane.wire import store
from dataplane.wire.store import UDP_PORT, Message
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
)

PRODUCER = IPv4Address("10.9.0.1")
HOSTS = tuple(IPv4Address(f"10.1.{number}.1") for number in range(3))
GROUP = 5
PORTS = dict(zip((*HOSTS, PRODUCER), (HOST_PORT, UP_PORT, DOWN_PORT, COLLECTOR_PORT), strict=True))
_CLIENT_PORT = 20000


@dataclass(frozen=True, slots=True)
class Named:
    """A name in the switch's table, and its cell."""

    name: int
    segment: int
    cell: int
    held: Held

    def entry(self) -> Entry:
        """Return the name's entry."""
        held, key = self.held, {"name": self.name, "segment": self.segment}
        if isinstance(held, Cached):
            return Entry(
                "store_names", key, "cached", (self.cell, held.generation, held.producer.address, held.producer.port)
            )
        return Entry("store_names", key, "recorded", (self.cell, held.generation, GROUP, int(held.forward)))


def fabric_items(writers: frozenset[int]) -> list[Item]:
    """Return the other entries that the switch needs: ports, routes, and permitted writers."""
    items: list[Item] = []
    for address, port in PORTS.items():
        key = {"dst_addr": (int(address), 32)}
        items += [
            Entry("egress_ports", {"egress_port": port}, "set_egress_port", (SWITCH_MAC, 0, 0, 0)),
            Entry("ipv4_destination_paths", key, "forward", (port, NEXT_HOP_MAC)),
        ]
    writer_keys = ({"src_addr": writer, "writers": GROUP} for writer in sorted(writers))
    return [*items, *(Entry("store_writers", key, "NoAction", priority=1) for key in writer_keys)]


def sender(src: IPv4Address) -> Sender:
    """Return the sender at an address, with its port."""
    return Sender(int(src), PORTS[src])


def frame(src: IPv4Address, message: Message, *, to: IPv4Address | None = None) -> tuple[int, bytes]:
    """Return port and frame of a message: of the producer to a host, or of a host to the producer."""
    ports = (UDP_PORT, _CLIENT_PORT) if src == PRODUCER else (_CLIENT_PORT, UDP_PORT)
    return PORTS[src], datagram((src, ports[0]), (to or PRODUCER, ports[1]), message.encode())


Arrival = tuple[int, str, str, int, int, Message]
"""Port, addresses, UDP ports, message."""


def seen(sent: targets.Sent) -> list[Arrival]:
    """Return the packets that left the switch; check lengths and checksums."""
    return arrivals(sent, store.decode)


def expected(sent: Sent, src: IPv4Address, to: IPv4Address) -> list[Arrival]:
    """Return the packets that should leave the switch for a packet between two hosts, by the reference."""
    if isinstance(sent, Back):
        return [(PORTS[src], str(to), str(src), UDP_PORT, _CLIENT_PORT, sent.message)]
    ports = (UDP_PORT, _CLIENT_PORT) if src == PRODUCER else (_CLIENT_PORT, UDP_PORT)
    return [(PORTS[to], str(src), str(to), *ports, sent.message)]
