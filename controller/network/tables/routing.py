"""Routes to every host by longest prefix, equal-cost next hops through an action selector (p4/ingress/routing.p4).

A member is named after the port it forwards to, because the port determines everything that it does; a group after the
ports it spreads over. Such ids stay the same while the topology grows, so that reconciling rewrites no correct entry.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from finsy import (
    P4ActionProfileGroup,
    P4ActionProfileMember,
    P4IndirectAction,
    P4Member,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
)

from controller.network.base_paths import NextHops
from controller.network.tables.entities import Entity
from dataplane.topology.addressing import mac_at, switch_ipv4, switch_subnet_ipv4, switch_subnet_ipv6
from dataplane.topology.values import Topology

MAX_GROUP_SIZE = 32
"""`@max_group_size` in the program: equal-cost ports of a group, and what its weights add up to, at most."""

PREFIXES_FROM_HOSTS = 1_000
"""Number of hosts from which switches reach the hosts of another one by its prefix (`networks`): tables grow with the
number of switches then, not with that of hosts."""

_MAX_GROUP_ID = 0x7FFFFFFF


Network: TypeAlias = tuple[int, int]
"""An address prefix: value and length."""


@dataclass(frozen=True, slots=True)
class Family:
    """The tables of one IP family; `bits` is the length of a host's address."""

    version: int
    bits: int

    @property
    def mask(self) -> int:
        """All ones."""
        return (1 << self.bits) - 1

    @property
    def sources(self) -> str:
        """Its table of the networks that hosts route."""
        return f"ipv{self.version}_sources"

    @property
    def routes(self) -> str:
        """Its routing table."""
        return f"ipv{self.version}_routes"

    @property
    def selector(self) -> str:
        """The action selector of its routing table."""
        return f"ipv{self.version}_ecmp"

    @property
    def flow_paths(self) -> str:
        """Its table of explicit paths for flows."""
        return f"ipv{self.version}_flow_paths"

    @property
    def watchlist(self) -> str:
        """Its table of flows that get telemetry."""
        return f"ipv{self.version}_watchlist"

    def subnet(self, node_id: int) -> Network:
        """Return the prefix of a switch's automatically addressed hosts."""
        subnet = switch_subnet_ipv4(node_id) if self.version == 4 else switch_subnet_ipv6(node_id)
        return int(subnet.network_address), subnet.prefixlen


IPV4 = Family(4, 32)
IPV6 = Family(6, 128)
FAMILIES = (IPV4, IPV6)


def host_addresses(topology: Topology, host: str) -> dict[Family, int]:
    """Return a host's address in each family that it has one in."""
    node = topology.host[host]
    return {IPV4: int(node.ipv4)} | ({} if node.ipv6 is None else {IPV6: int(node.ipv6)})


def networks(topology: Topology, family: Family, prefixes_from: int = PREFIXES_FROM_HOSTS) -> dict[str, list[Network]]:
    """Return, for each switch with hosts, the prefixes by which other switches reach them.

    In a fabric of fewer hosts than `prefixes_from` these are the hosts' addresses. In a larger one, a switch's subnet
    stands for those of its hosts that it holds, unless a host elsewhere has an address in it.
    """
    addresses: dict[str, list[int]] = {}
    for host, edge in topology.attachment.items():
        address = host_addresses(topology, host).get(family)
        if address is not None:
            addresses.setdefault(edge.node, []).append(address)
    if len(topology.host) < prefixes_from:
        return {name: [(address, family.bits) for address in here] for name, here in addresses.items()}
    subnets = {name: family.subnet(topology.switch[name].node_id) for name in addresses}
    owners = {subnet: name for name, subnet in subnets.items()}
    reached: dict[str, list[Network]] = {name: [] for name in addresses}
    shared = set[str]()
    for name, here in addresses.items():
        length = subnets[name][1]
        around = [(address >> family.bits - length << family.bits - length, length) for address in here]
        shared.update(owners[subnet] for subnet in around if owners.get(subnet, name) != name)
        reached[name] = [
            subnet if subnet == subnets[name] else (address, family.bits)
            for address, subnet in zip(here, around, strict=True)
        ]
    return {
        name: [(address, family.bits) for address in addresses[name]] if name in shared else [*dict.fromkeys(at)]
        for name, at in reached.items()
    }


def forward(topology: Topology, switch: str, port: int) -> P4TableAction:
    """Return the action that sends packets out of `port`, addressed to the node at it."""
    peer = topology.neighbours[switch][port]
    return P4TableAction("forward", egress_port=port, dst_mac=mac_at(topology, peer.node, peer.port))


Spread = tuple[tuple[int, int], ...]
"""(port, weight), by port: the spread of a route's traffic."""


def route_entities(
    topology: Topology,
    hops: NextHops,
    switch: str,
    weighted: Mapping[str, Spread] | None = None,
    prefixes_from: int = PREFIXES_FROM_HOSTS,
) -> Iterator[Entity]:
    """Yield members, groups and routes to every host that the switch can reach, in both families.

    `weighted` overrides `hops` for all hosts of some destination switches; `prefixes_from` is that of `networks`.
    """
    for family in FAMILIES:
        routes: dict[Network, Spread] = {
            (address, family.bits): ((edge.port, 1),)
            for host, edge in topology.attachment.items()
            if edge.node == switch and (address := host_addresses(topology, host).get(family)) is not None
        }
        for destination, reached in networks(topology, family, prefixes_from).items():
            spread = _spread(hops, switch, destination, weighted or {})
            if spread and destination != switch:
                routes.update(dict.fromkeys(reached, spread))
        groups = group_ids(routes.values())
        yield from _members(topology, family, switch, routes.values())
        for spread, group in groups.items():
            # Each member watches its port: a switch whose port goes down chooses among the others at once.
            members = [P4Member(port, weight=(weight, port)) for port, weight in spread]
            # The size is fixed when a group is made (section 9.2.2), so it leaves room for every later change.
            yield P4ActionProfileGroup(family.selector, group_id=group, max_size=MAX_GROUP_SIZE, members=members)
        for network, spread in routes.items():
            yield P4TableEntry(family.routes, match=network_match(network), action=_through(spread, groups))


def route_match(family: Family, address: int) -> P4TableMatch:
    """Return the match of the route to one address."""
    return network_match((address, family.bits))


def network_match(network: Network) -> P4TableMatch:
    """Return the match of the route to a prefix."""
    return P4TableMatch(dst_addr=network)


def hash_multiplier(node_id: int) -> int:
    """Return the multiplier of a switch's path hash: odd, and unlike those of its neighbours (SplitMix64)."""
    mixed = (node_id * 0x9E3779B97F4A7C15) % (1 << 64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = ((mixed ^ mixed >> shift) * factor) % (1 << 64)
    return mixed >> 32 | 1


def hash_entity(topology: Topology, switch: str) -> Entity:
    """Return the entry that sets the multiplier of a switch's path hash."""
    multiplier = hash_multiplier(topology.switch[switch].node_id)
    return P4TableEntry(
        "path_hash", action=P4TableAction("set_path_hash_multiplier", multiplier=multiplier), is_default_action=True
    )


def ports_towards(topology: Topology, hops: NextHops, switch: str, host: str) -> tuple[int, ...]:
    """Return the ports by which a switch may send to a host, in order; empty if it cannot."""
    edge = topology.attachment[host]
    if edge.node == switch:
        return (edge.port,)
    return tuple(link.tail.port for link in hops[edge.node].get(switch, ())[:MAX_GROUP_SIZE])


def switch_route_entities(topology: Topology, hops: NextHops, switch: str) -> Iterator[Entity]:
    """Yield a route to the address of every other switch that can be reached, each over one port (`port_towards`)."""
    routes = {
        int(switch_ipv4(node.node_id)): port
        for node in topology.switches
        if (port := port_towards(topology, hops, switch, node.name)) is not None
    }
    for port in sorted(set(routes.values())):
        yield P4ActionProfileMember(IPV4.selector, member_id=port, action=forward(topology, switch, port))
    for address, port in routes.items():
        yield P4TableEntry(IPV4.routes, match=route_match(IPV4, address), action=P4IndirectAction(member_id=port))


def port_towards(topology: Topology, hops: NextHops, switch: str, destination: str) -> int | None:
    """Return the port towards another switch; None if it cannot be reached, or is the same.

    It is a fixed one of the equally good ones, but not the same for every destination.
    """
    ways = hops[destination].get(switch, ())
    if switch == destination or not ways:
        return None
    return ways[topology.switch[destination].node_id % len(ways)].tail.port


def group_ids(spreads: Iterable[Spread]) -> dict[Spread, int]:
    """Return an id for every spread over two or more ports: a hash of it, incremented where two collide."""
    ids: dict[Spread, int] = {}
    taken: set[int] = set()
    # Sorted, so that ids do not depend on the order in which spreads come.
    for spread in sorted({spread for spread in spreads if len(spread) > 1}):
        text = ",".join(str(port) if weight == 1 else f"{port}:{weight}" for port, weight in spread)
        number = zlib.crc32(text.encode()) % _MAX_GROUP_ID + 1
        while number in taken:
            number = number % _MAX_GROUP_ID + 1
        taken.add(number)
        ids[spread] = number
    return ids


def _spread(hops: NextHops, switch: str, destination: str, weighted: Mapping[str, Spread]) -> Spread:
    links = hops[destination].get(switch, ())[:MAX_GROUP_SIZE]
    return weighted.get(destination) or tuple((link.tail.port, 1) for link in links)


def _members(topology: Topology, family: Family, switch: str, spreads: Iterable[Spread]) -> Iterator[Entity]:
    for port in sorted({port for spread in spreads for port, _ in spread}):
        yield P4ActionProfileMember(family.selector, member_id=port, action=forward(topology, switch, port))


def _through(spread: Spread, groups: Mapping[Spread, int]) -> P4IndirectAction:
    return P4IndirectAction(member_id=spread[0][0]) if len(spread) == 1 else P4IndirectAction(group_id=groups[spread])
