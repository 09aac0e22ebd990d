"""Route entities of all switches, each made once: equal ones on several switches are one object.

Most switches send to most hosts by the same few ports and groups, so that a large fabric's tables fit into memory and
comparing, encoding and reading them back can use identity. `controller.network.tables.routing.route_entities` is the
plain version for one switch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from finsy import P4ActionProfileGroup, P4ActionProfileMember, P4IndirectAction, P4Member, P4TableEntry

from controller.network.base_paths import BaseHops
from controller.network.tables.entities import Entity, EntityKey, key_of
from controller.network.tables.routing import (
    MAX_GROUP_SIZE,
    PREFIXES_FROM_HOSTS,
    Family,
    Network,
    Spread,
    forward,
    group_ids,
    host_addresses,
    network_match,
    networks,
)
from dataplane.topology.values import Topology

_Block: TypeAlias = Mapping[EntityKey, Entity]

_BLOCKS_PER_DESTINATION: Final = 64
"""Blocks kept, on average: continually changing weights leave groups, and so blocks, unused."""


class SharedRoutes:
    """Makes the route entities of a topology's switches."""

    def __init__(self, topology: Topology, prefixes_from: int = PREFIXES_FROM_HOSTS) -> None:
        """`prefixes_from` is that of `networks`."""
        self._topology = topology
        self._hosts: dict[Family, dict[str, list[tuple[int, int]]]] = {}
        for host, edge in topology.attachment.items():
            for family, address in host_addresses(topology, host).items():
                self._hosts.setdefault(family, {}).setdefault(edge.node, []).append((edge.port, address))
        self._networks = {family: networks(topology, family, prefixes_from) for family in self._hosts}
        self._room = _BLOCKS_PER_DESTINATION * max(1, sum(map(len, self._hosts.values())))
        self._edges = dict.fromkeys(edge for at in self._hosts.values() for edge in at)
        self._blocks: dict[tuple[int, str, bool, int], _Block] = {}
        self._hops: BaseHops | None = None
        self._ports: dict[str, dict[str, tuple[int, ...]]] = {}
        self._even: dict[tuple[int, ...], Spread] = {}
        self._groups: dict[tuple[Family, int, Spread], tuple[EntityKey, Entity]] = {}
        self._keys = {(family, network): self._key(family, network) for family, _, network in self._routed()}

    def destinations(self) -> Iterator[tuple[EntityKey, str]]:
        """Yield the key of the route to each host or network of hosts, and the switch that they are attached to."""
        return ((self._keys[family, network], edge) for family, edge, network in self._routed())

    def local(self) -> frozenset[EntityKey]:
        """Return the keys of routes that only the switch has to which the host is attached."""
        everywhere = {(family, each) for family, at in self._networks.items() for here in at.values() for each in here}
        return frozenset(key for name, key in self._keys.items() if name not in everywhere)

    def entities(self, hops: BaseHops, switch: str, weighted: Mapping[str, Spread]) -> dict[EntityKey, Entity]:
        """Return members, groups and routes of a switch by key; the arguments are those of `route_entities`."""
        by_key: dict[EntityKey, Entity] = {}
        spreads = self._spreads(hops, switch, weighted)
        for family, hosts in self._hosts.items():
            ways = (
                spreads
                if len(hosts) == len(self._edges)
                else {destination: spread for destination, spread in spreads.items() if destination in hosts}
            )
            local = [((port, 1),) for port, _ in hosts.get(switch, ())]
            # By identity: spreads are many, different ones few, and long ones take time to hash.
            different = {id(spread): spread for spread in ways.values()}
            groups = group_ids(different.values())
            for port in sorted({port for spread in (*different.values(), *local) for port, _ in spread}):
                member = P4ActionProfileMember(
                    family.selector, member_id=port, action=forward(self._topology, switch, port)
                )
                by_key[key_of(member)] = member
            for spread, group in groups.items():
                key, entity = self._group(family, group, spread)
                by_key[key] = entity
            through = {
                name: (True, groups[spread]) if len(spread) > 1 else (False, spread[0][0])
                for name, spread in different.items()
            }
            for destination, spread in ways.items():
                by_key.update(self._block(family, destination, *through[id(spread)]))
            for port, address in hosts.get(switch, ()):
                network = address, family.bits
                by_key[self._keys[family, network]] = self._entry(family, network, P4IndirectAction(member_id=port))
        return by_key

    def _routed(self) -> Iterator[tuple[Family, str, Network]]:
        """Yield everything that a switch has a route to: hosts, and networks of hosts."""
        for family, hosts in self._hosts.items():
            for edge, hosts_there in hosts.items():
                yield from ((family, edge, network) for network in self._networks[family][edge])
                yield from ((family, edge, (address, family.bits)) for _, address in hosts_there)

    def _spreads(self, hops: BaseHops, switch: str, weighted: Mapping[str, Spread]) -> dict[str, Spread]:
        """Return the spread of a switch's traffic, for each other reachable switch with hosts."""
        if hops is not self._hops:
            self._hops, self._ports = hops, {destination: hops.ports(destination) for destination in self._edges}
        spreads: dict[str, Spread] = {}
        for destination, ports_at in self._ports.items():
            spread = weighted.get(destination) if weighted else None
            if spread is None and (ports := ports_at.get(switch)) is not None:
                spread = self._even.get(ports)
                if spread is None:
                    spread = self._even[ports] = tuple((port, 1) for port in ports[:MAX_GROUP_SIZE])
            if spread and destination != switch:
                spreads[destination] = spread
        return spreads

    def _block(self, family: Family, destination: str, is_group: bool, number: int) -> _Block:
        """Return the routes to all hosts of a switch through one member or group."""
        name = family.version, destination, is_group, number
        block = self._blocks.get(name)
        if block is None:
            if len(self._blocks) >= self._room:
                self._blocks.clear()
                self._groups.clear()
            action = P4IndirectAction(group_id=number) if is_group else P4IndirectAction(member_id=number)
            block = self._blocks[name] = {
                self._keys[family, network]: self._entry(family, network, action)
                for network in self._networks[family][destination]
            }
        return block

    def _group(self, family: Family, group: int, spread: Spread) -> tuple[EntityKey, Entity]:
        name = family, group, spread
        if name not in self._groups:
            # Each member watches its port: a switch whose port goes down chooses among the others at once.
            members = [P4Member(port, weight=(weight, port)) for port, weight in spread]
            # The size is fixed when a group is made (section 9.2.2), so it leaves room for every later change.
            entity = P4ActionProfileGroup(family.selector, group_id=group, max_size=MAX_GROUP_SIZE, members=members)
            self._groups[name] = key_of(entity), entity
        return self._groups[name]

    @staticmethod
    def _entry(family: Family, network: Network, action: P4IndirectAction) -> Entity:
        return P4TableEntry(family.routes, match=network_match(network), action=action)

    @classmethod
    def _key(cls, family: Family, network: Network) -> EntityKey:
        return key_of(cls._entry(family, network, P4IndirectAction(member_id=0)))
