"""A fabric's real tables under a coordinator, and the paths of packets by them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from finsy import P4ActionProfileGroup, P4ActionProfileMember, P4IndirectAction, P4TableAction, P4TableEntry
from hypothesis import strategies as st

from controller.network.base_paths import next_hops
from controller.network.features import Features
from controller.network.intents import FlowSpec, Route, RouteSet, WeightedRoute
from controller.network.owners.routes import is_route_layer
from controller.network.reconcile import apply
from controller.network.tables.entities import Entities, EntityKey, Kind, Update, Verb, index, same
from controller.network.tables.routing import IPV4, route_entities
from controller.network.tables.weighted_routes import spreads_of
from dataplane.topology.values import Topology

PATHS = {
    FlowSpec("ha", "hd"): ("abd", "acd", "abcd", "acbd"),
    FlowSpec("ha", "hd", 17): ("abd", "acd"),
    FlowSpec("hd", "hb"): ("db", "dcb", "dcab"),
}


WEIGHTS: tuple[tuple[str, ...], ...] = (
    (),
    ("a d b1c3",),
    ("a d b3c2", "b d d1", "c d b1d1"),
    ("a d c1", "b d c1"),
    ("c d b1", "a d b1c1"),
    ("d b c1", "c b b1"),
    ("d b c1b1", "c b b1", "a b c1b2"),
    ("a c b1", "b c d1c31"),
)
"""Weighted routes: switch, destination, next hops with weights."""


def weighted(texts: tuple[str, ...]) -> tuple[WeightedRoute, ...]:
    """Return weighted routes from their texts."""
    return tuple(
        WeightedRoute(at, to, tuple((peer, int(weight)) for peer, weight in re.findall(r"([a-z])(\d+)", hops)))
        for at, to, hops in (text.split() for text in texts)
    )


def route_sets() -> st.SearchStrategy[RouteSet]:
    """Return sets of routes: each flow on one of its paths or unrouted, each destination weighted or not."""
    choices = [st.sampled_from([None, *(Route(flow, tuple(path)) for path in paths)]) for flow, paths in PATHS.items()]
    routes = st.tuples(*choices).map(lambda routes: tuple(route for route in routes if route is not None))
    return st.builds(RouteSet, st.just(1), routes, st.sampled_from(WEIGHTS).map(weighted))


Packet = tuple[str, str, int]
"""Source host, destination host, IP protocol."""

PACKETS = tuple((src, dst, protocol) for src in ("ha", "hd") for dst in ("hb", "hc", "hd") for protocol in (6, 17))


class World:
    """The real tables, changed only by writes and restarts."""

    def __init__(self, topology: Topology, packets: tuple[Packet, ...] = PACKETS) -> None:
        self.topology, self.packets = topology, packets
        self.features = Features(topology)
        self.coordinator = self.features.coordinator
        self.tables: dict[str, Entities] = {node.name: {} for node in topology.switches}
        self.version = 0

    def happen(self, event: object) -> None:
        match event:
            case "step":
                self.step()
            case ("return", str(name)):
                self.connect(name)
            case ("leave", str(name)):
                self.coordinator.lost(name)
            case ("restart", str(name)):
                self.tables[name] = {}
                self.coordinator.lost(name)
            case ("cut", str(name)):
                self.step(cut=name)
            case RouteSet(_, routes, weights):
                self.version += 1
                self.features.want(RouteSet(self.version, routes, weights))

    def connect(self, name: str) -> None:
        for batch in self.coordinator.connected(name, self.tables[name]):
            self.write(name, batch)
        self.coordinator.reconciled(name)

    def step(self, cut: str | None = None) -> bool:
        """Send one step; a disconnected switch applies the writes without acknowledgement."""
        step = self.coordinator.next_step()
        for name, updates in step.updates.items() if step else ():
            assert name in self.coordinator.live
            if name == cut:
                self.execute(name, updates)
                self.coordinator.lost(name)
            else:
                self.write(name, updates)
        return step is not None

    def write(self, name: str, updates: tuple[Update, ...]) -> None:
        for update in updates:
            if update.verb is not Verb.MODIFY or update.key in self.tables[name]:
                assert (update.key in self.tables[name]) is (update.verb is not Verb.INSERT), f"{name}: {update}"
        self.execute(name, updates)
        self.coordinator.acknowledged(name, updates)

    @property
    def whole(self) -> bool:
        """Return whether every switch routes to every host; a restarted one lacks some until its neighbours follow."""
        routes = (sum(key.table == IPV4.routes for key in tables) for tables in self.tables.values())
        return all(count == len(self.topology.hosts) for count in routes)

    def execute(self, name: str, updates: tuple[Update, ...]) -> None:
        """Apply updates one by one, and check the paths of packets after each."""
        for update in updates:
            self.tables[name] = apply(self.tables[name], (update,))
            if update.key.table in (IPV4.flow_paths, IPV4.routes):
                check_packets(self.topology, self.tables, self.packets, whole=self.whole)


def fixed(base: Entities) -> Entities:
    """Return the entries that are independent of routes."""
    return {key: entity for key, entity in base.items() if not is_route_layer(key)}


def routes_of(topology: Topology, routes: RouteSet) -> dict[str, Entities]:
    """Return each switch's members, groups and routes."""
    hops = next_hops(topology)
    spreads = spreads_of(topology, hops, routes.weighted)
    return {name: index(route_entities(topology, hops, name, spreads[name])) for name in spreads}


def equal(left: Entities, right: Entities) -> bool:
    """Return whether two tables are equivalent."""
    return left.keys() == right.keys() and all(same(left[key], right[key]) for key in right)


def ways_on(topology: Topology, tables: Entities, switch: str, packet: Packet) -> set[str]:
    """Return the next hops of an IPv4 packet by a switch's tables, none without an entry."""
    ports = set(_ports(topology, tables, packet))
    return {topology.neighbours[switch][port].node for port in ports}


def check_packets(
    topology: Topology, tables: Mapping[str, Entities], packets: tuple[Packet, ...], *, whole: bool
) -> None:
    """Fail if a packet can loop or, with `whole` tables, miss its host."""
    for packet in packets:
        ways = {name: ways_on(topology, entities, name, packet) for name, entities in tables.items()}
        _follow(ways, packet, (topology.attachment[packet[0]].node,), whole=whole)


def _follow(ways: Mapping[str, set[str]], packet: Packet, passed: tuple[str, ...], *, whole: bool) -> None:
    """Follow every path from a packet's position; packets in flight may be anywhere reachable from the source."""
    onward = ways[passed[-1]]
    assert onward or not whole, f"{packet} ends at {passed}"
    for name in onward:
        assert name not in passed, f"{packet} turns in a circle: {passed} {name}"
        if name in ways:
            _follow(ways, packet, (*passed, name), whole=whole)
        else:
            assert name == packet[1], f"{packet} reaches {name}"


def _ports(topology: Topology, tables: Entities, packet: Packet) -> Iterator[int]:
    src, dst = (int(topology.host[name].ipv4) for name in packet[:2])
    keys = [key for key in tables if key.table == IPV4.flow_paths and _takes(key, src, dst, packet[2])]
    flows = [entity for key in keys if isinstance(entity := tables[key], P4TableEntry)]
    if flows:
        action = max(flows, key=lambda entry: entry.priority).action
        assert isinstance(action, P4TableAction)
        yield action.args["egress_port"]
        return
    route = tables.get(EntityKey(Kind.ENTRY, IPV4.routes, (("dst_addr", (dst, 32)),)))
    if isinstance(route, P4TableEntry):
        assert isinstance(route.action, P4IndirectAction)
        yield from _members(tables, route.action)


def _takes(key: EntityKey, src: int, dst: int, protocol: int) -> bool:
    """Return whether a flow entry matches a packet with any ports."""
    values = {"src_addr": src, "dst_addr": dst, "protocol": protocol}
    return all(values[name] & value[1] == value[0] for name, value in key.match if isinstance(value, tuple))


def _members(tables: Entities, action: P4IndirectAction) -> Iterator[int]:
    numbers = [action.member_id]
    if action.group_id is not None:
        group = tables[EntityKey(Kind.GROUP, IPV4.selector, (), action.group_id)]
        assert isinstance(group, P4ActionProfileGroup)
        numbers = [member.member_id for member in group.members or ()]
    for number in numbers:
        member = tables[EntityKey(Kind.MEMBER, IPV4.selector, (), number or 0)]
        assert isinstance(member, P4ActionProfileMember)
        assert isinstance(member.action, P4TableAction)
        yield member.action.args["egress_port"]
