"""Schema of topology files, and its resolution to a checked `Topology`.

Order matters twice: switches without an `id` take the lowest free one from 1, and ports without a number the lowest
free one from 1, hosts first, then links, both in the file's order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from itertools import count
from typing import Annotated, Literal, NoReturn, TypeVar

import msgspec

from dataplane.config import Strict
from dataplane.errors import ConfigError
from dataplane.topology import addressing
from dataplane.topology.hardware import DeviceSpec, HardwareReader, MediumSpec
from dataplane.topology.units import format_delay, parse_delay_ns, parse_rate_bps, parse_share_ppb
from dataplane.topology.values import (
    CollectorAddress,
    Endpoint,
    GeoLocation,
    HostNode,
    Link,
    SwitchNode,
    Topology,
)

CPU_PORT = 255
"""A switch's port to its controller; no cable may use it."""
MAX_PORT = 510
"""v1model ports have nine bits, and 511 means drop."""
MAX_QUEUE_FRAMES = 1_000_000
REPORT_UDP_PORT = 32766
"""The default port of the collector."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")

_Item = TypeVar("_Item")
_Address = TypeVar("_Address", IPv4Address, IPv6Address)

Fail = Callable[[str, str], ConfigError]
"""Creates the error for a problem at a path such as `links[3].rate`."""


class PlaceSpec(Strict, frozen=True):
    """Location of a node: degrees, north and east positive."""

    latitude: float
    longitude: float
    city: str = ""


Delay = Annotated[str, msgspec.Meta(examples=["500us"])]
Rate = Annotated[str, msgspec.Meta(examples=["10 Mbit/s"])]


class LinkDefaults(Strict, frozen=True):
    """Default values of a link; rates and times as text with a unit, losses as '0.1%' or 0.001."""

    rate: Rate = "10 Gbit/s"
    delay: Delay = "10 us"
    queue_frames: int = 256
    loss: str | float = "0%"
    jitter: Delay = "0 ns"


class DefaultsSpec(Strict, frozen=True):
    """Defaults of links between switches, and of the access links of hosts."""

    link: LinkDefaults = LinkDefaults()
    access: LinkDefaults = LinkDefaults()


class CollectorSpec(Strict, frozen=True):
    """The host that receives telemetry reports."""

    host: str
    udp_port: int = REPORT_UDP_PORT


class SwitchSpec(Strict, frozen=True):
    """A switch; `id` is its INT node id and P4Runtime device id.

    `report_source` is the source IPv4 address of its telemetry reports, if not that of `dataplane.topology.addressing`.
    """

    name: str
    id: int | None = None
    place: PlaceSpec | None = None
    report_source: str | None = None


class HostSpec(Strict, frozen=True):
    """A host and its access link; missing addresses follow `dataplane.topology.addressing`."""

    name: str
    switch: str
    port: int | None = None
    ipv4: str | None = None
    ipv6: str | None = None
    mac: str | None = None
    rate: Rate | None = None
    delay: Delay | None = None
    queue_frames: int | None = None
    loss: str | float | None = None
    jitter: Delay | None = None
    place: PlaceSpec | None = None
    cores: int | None = None
    memory: list[MediumSpec] = msgspec.field(default_factory=list)
    devices: list[DeviceSpec] = msgspec.field(default_factory=list)


class LinkSpec(Strict, frozen=True):
    """A cable between two switches, symmetric."""

    a: str
    b: str
    a_port: int | None = None
    b_port: int | None = None
    rate: Rate | None = None
    delay: Delay | None = None
    queue_frames: int | None = None
    loss: str | float | None = None
    jitter: Delay | None = None


class TopologySpec(Strict, frozen=True):
    """A topology file; `millrace` is the version of the format."""

    millrace: Literal[1]
    name: str
    switches: list[SwitchSpec]
    hosts: list[HostSpec] = msgspec.field(default_factory=list)
    links: list[LinkSpec] = msgspec.field(default_factory=list)
    defaults: DefaultsSpec = DefaultsSpec()
    collector: CollectorSpec | None = None
    synchronised_clocks: bool = False


def is_name(text: str) -> bool:
    """Return whether this is a valid name for a topology, a host or a switch."""
    return _NAME.fullmatch(text) is not None


def resolve(spec: TopologySpec, fail: Fail) -> Topology:
    """Return the topology that `spec` describes; raise the error that `fail` makes of the first problem."""
    return _Resolver(spec, fail).topology()


def resolve_generated(spec: TopologySpec) -> Topology:
    """Return the topology of a spec without a file; errors name the topology and the key."""
    return resolve(spec, lambda problem, path: ConfigError(problem, file=f"<{spec.name}>", key=path))


@dataclass(slots=True)
class _Resolver:
    """One pass over a spec; every unique value is remembered with the path that took it."""

    spec: TopologySpec
    fail: Fail
    names: dict[str, str] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    ports: dict[Endpoint, str] = field(default_factory=dict)
    addresses: dict[IPv4Address | IPv6Address, str] = field(default_factory=dict)
    macs: dict[int, str] = field(default_factory=dict)
    free_ports: dict[str, Iterator[int]] = field(default_factory=dict)

    def topology(self) -> Topology:
        spec = self.spec
        self._check_name(spec.name, "name")
        switches = self._switches()
        self._claim_stated_ports()
        hosts, access = self._hosts()
        topology = Topology(
            name=spec.name,
            switches=switches,
            hosts=hosts,
            links=(*access, *self._links()),
            collector=self._collector(),
            synchronised_clocks=spec.synchronised_clocks,
        )
        self._check_connected(topology)
        return topology

    def _refuse(self, problem: str, path: str) -> NoReturn:
        raise self.fail(problem, path)

    def _check_name(self, name: str, path: str) -> None:
        if not is_name(name):
            self._refuse(f"{name!r} is not 1 to 32 of a-z, 0-9 and -, with a letter or digit at both ends", path)

    def _claim_name(self, name: str, path: str) -> None:
        self._check_name(name, f"{path}.name")
        if name in self.names:
            self._refuse(f"name {name!r} is taken by {self.names[name]}", f"{path}.name")
        self.names[name] = path

    # switches

    def _switches(self) -> tuple[SwitchNode, ...]:
        if not self.spec.switches:
            self._refuse("a topology has at least one switch", "switches")
        taken: dict[int, str] = {}
        for path, switch in _each("switches", self.spec.switches):
            self._claim_name(switch.name, path)
            if switch.id is not None:
                self._in_range(switch.id, 1, addressing.MAX_NODE_ID, f"{path}.id")
                if switch.id in taken:
                    self._refuse(f"id {switch.id} is taken by {taken[switch.id]}", f"{path}.id")
                taken[switch.id] = path
        free = (node_id for node_id in count(1) if node_id not in taken)
        switches = []
        for path, switch in _each("switches", self.spec.switches):
            node_id = next(free) if switch.id is None else switch.id
            self._in_range(node_id, 1, addressing.MAX_NODE_ID, f"{path}.id")
            self.ids[switch.name] = node_id
            self.addresses[addressing.switch_ipv4(node_id)] = path
            stated = switch.report_source
            source = None if stated is None else self._ipv4(stated, f"{path}.report_source")
            switches.append(SwitchNode(switch.name, node_id, self._place(switch.place, path), source))
        return tuple(switches)

    # ports

    def _claim_stated_ports(self) -> None:
        """Claim the ports that the file numbers first, so that automatic ones avoid them."""
        for path, host in _each("hosts", self.spec.hosts):
            self._check_switch(host.switch, f"{path}.switch")
            self._claim_port(host.switch, host.port, f"{path}.port")
        for path, link in _each("links", self.spec.links):
            self._check_switch(link.a, f"{path}.a")
            self._check_switch(link.b, f"{path}.b")
            self._claim_port(link.a, link.a_port, f"{path}.a_port")
            self._claim_port(link.b, link.b_port, f"{path}.b_port")

    def _check_switch(self, name: str, path: str) -> None:
        if name not in self.ids:
            self._refuse(f"there is no switch {name!r}", path)

    def _claim_port(self, switch: str, port: int | None, path: str) -> None:
        if port is None:
            return
        self._in_range(port, 1, MAX_PORT, path)
        if port == CPU_PORT:
            self._refuse(f"port {CPU_PORT} is the CPU port", path)
        end = Endpoint(switch, port)
        if end in self.ports:
            self._refuse(f"port {port} of {switch!r} is taken by {self.ports[end]}", path)
        self.ports[end] = path

    def _port(self, switch: str, stated: int | None, path: str) -> Endpoint:
        if stated is not None:
            return Endpoint(switch, stated)
        numbers = self.free_ports.setdefault(switch, iter(range(1, MAX_PORT + 1)))
        ends = (Endpoint(switch, number) for number in numbers if number != CPU_PORT)
        end = next((end for end in ends if end not in self.ports), None)
        if end is None:
            self._refuse(f"switch {switch!r} has no port left", path)
        return end

    # hosts

    def _hosts(self) -> tuple[tuple[HostNode, ...], tuple[Link, ...]]:
        nodes, cables = [], []
        index: dict[str, int] = {}
        for path, host in _each("hosts", self.spec.hosts):
            self._claim_name(host.name, path)
            index[host.switch] = index.get(host.switch, 0) + 1
            nodes.append(self._host(host, index[host.switch], path))
            edge = self._port(host.switch, host.port, f"{path}.port")
            cables.append(self._cable(Endpoint(host.name, 0), edge, host, self.spec.defaults.access, path))
        return tuple(nodes), tuple(cables)

    def _host(self, host: HostSpec, index: int, path: str) -> HostNode:
        node_id = self.ids[host.switch]
        automatic = host.ipv4 is None or host.ipv6 is None or host.mac is None
        if automatic and index > addressing.MAX_HOSTS_PER_SWITCH:
            self._refuse(f"more than {addressing.MAX_HOSTS_PER_SWITCH} hosts on {host.switch!r} need addresses", path)
        mac = addressing.host_mac(node_id, index) if host.mac is None else self._mac(host.mac, f"{path}.mac")
        if mac in self.macs:
            self._refuse(f"MAC address {addressing.format_mac(mac)} is taken by {self.macs[mac]}", f"{path}.mac")
        self.macs[mac] = path
        ipv4 = addressing.host_ipv4(node_id, index) if host.ipv4 is None else self._ipv4(host.ipv4, f"{path}.ipv4")
        ipv6 = addressing.host_ipv6(node_id, index) if host.ipv6 is None else self._ipv6(host.ipv6, f"{path}.ipv6")
        self._claim_address(ipv4, path, f"{path}.ipv4")
        self._claim_address(ipv6, path, f"{path}.ipv6")
        reader = HardwareReader(self.fail)
        return HostNode(
            host.name,
            mac,
            ipv4,
            ipv6,
            self._place(host.place, path),
            devices=tuple(reader.device(item, where) for where, item in _each(f"{path}.devices", host.devices)),
            cores=reader.cores(host.cores, f"{path}.cores"),
            memory=tuple(reader.medium(item, where) for where, item in _each(f"{path}.memory", host.memory)),
        )

    def _claim_address(self, address: IPv4Address | IPv6Address, owner: str, path: str) -> None:
        if address in self.addresses:
            self._refuse(f"address {address} is taken by {self.addresses[address]}", path)
        self.addresses[address] = owner

    def _mac(self, text: str, path: str) -> int:
        try:
            return addressing.parse_mac(text)
        except ValueError as error:
            raise self.fail(str(error), path) from error

    def _ipv4(self, text: str, path: str) -> IPv4Address:
        try:
            return _unicast(IPv4Address(text))
        except (AddressValueError, ValueError) as error:
            raise self.fail(f"{text!r} is not the IPv4 address of a host", path) from error

    def _ipv6(self, text: str, path: str) -> IPv6Address:
        try:
            address = _unicast(IPv6Address(text))
        except (AddressValueError, ValueError) as error:
            raise self.fail(f"{text!r} is not the IPv6 address of a host", path) from error
        if address.scope_id is not None:
            self._refuse(f"{text!r} has a scope", path)
        return address

    def _place(self, location: PlaceSpec | None, path: str) -> GeoLocation | None:
        if location is None:
            return None
        if not -90 <= location.latitude <= 90:
            self._refuse(f"{location.latitude} is not between -90 and 90", f"{path}.place.latitude")
        if not -180 <= location.longitude <= 180:
            self._refuse(f"{location.longitude} is not between -180 and 180", f"{path}.place.longitude")
        return GeoLocation(location.latitude, location.longitude, location.city)

    # links

    def _links(self) -> Iterator[Link]:
        cabled: dict[frozenset[str], str] = {}
        for path, link in _each("links", self.spec.links):
            if link.a == link.b:
                self._refuse(f"{link.a!r} is linked with itself", path)
            pair = frozenset((link.a, link.b))
            if pair in cabled:
                self._refuse(f"{link.a!r} and {link.b!r} are already linked by {cabled[pair]}", path)
            cabled[pair] = path
            a = self._port(link.a, link.a_port, f"{path}.a_port")
            b = self._port(link.b, link.b_port, f"{path}.b_port")
            yield self._cable(a, b, link, self.spec.defaults.link, path)

    def _cable(self, a: Endpoint, b: Endpoint, stated: HostSpec | LinkSpec, default: LinkDefaults, path: str) -> Link:
        group = "defaults.access" if isinstance(stated, HostSpec) else "defaults.link"

        def resolved(own: _Item | None, otherwise: _Item, key: str) -> tuple[_Item, str]:
            return (otherwise, f"{group}.{key}") if own is None else (own, f"{path}.{key}")

        queue_frames, queue_path = resolved(stated.queue_frames, default.queue_frames, "queue_frames")
        self._in_range(queue_frames, 1, MAX_QUEUE_FRAMES, queue_path)
        rate_bps = self._quantity(parse_rate_bps, *resolved(stated.rate, default.rate, "rate"))
        delay_ns = self._quantity(parse_delay_ns, *resolved(stated.delay, default.delay, "delay"))
        loss_ppb = self._quantity(parse_share_ppb, *resolved(stated.loss, default.loss, "loss"))
        jitter, jitter_path = resolved(stated.jitter, default.jitter, "jitter")
        jitter_ns = self._quantity(parse_delay_ns, jitter, jitter_path)
        if jitter_ns > delay_ns:
            self._refuse(f"{jitter!r} is more than the delay, {format_delay(delay_ns)}", jitter_path)
        return Link(a, b, rate_bps, delay_ns, queue_frames, loss_ppb, jitter_ns)

    def _quantity(self, parse: Callable[[_Item], int], text: _Item, path: str) -> int:
        try:
            return parse(text)
        except ValueError as error:
            raise self.fail(str(error), path) from error

    def _in_range(self, value: int, least: int, most: int, path: str) -> None:
        if not least <= value <= most:
            self._refuse(f"{value} is not between {least} and {most}", path)

    # the whole

    def _collector(self) -> CollectorAddress | None:
        collector = self.spec.collector
        if collector is None:
            return None
        if collector.host not in {host.name for host in self.spec.hosts}:
            self._refuse(f"there is no host {collector.host!r}", "collector.host")
        self._in_range(collector.udp_port, 1, 0xFFFF, "collector.udp_port")
        return CollectorAddress(collector.host, collector.udp_port)

    def _check_connected(self, topology: Topology) -> None:
        start = topology.switches[0].name
        reached, frontier = {start}, [start]
        while frontier:
            for end in topology.neighbours[frontier.pop()].values():
                if end.node not in reached:
                    reached.add(end.node)
                    frontier.append(end.node)
        for path, switch in _each("switches", self.spec.switches):
            if switch.name not in reached:
                self._refuse(f"no path from {start!r} to {switch.name!r}", path)


def _each(name: str, items: list[_Item]) -> Iterator[tuple[str, _Item]]:
    return ((f"{name}[{index}]", item) for index, item in enumerate(items))


def _unicast(address: _Address) -> _Address:
    if address.is_multicast or address.is_unspecified or address.is_loopback or address.is_link_local:
        raise ValueError("not a host's address")
    return address
