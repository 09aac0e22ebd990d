"""sFlow datagrams of known agents, turned into figures of links, flows' paths, and drops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from collectors.counters import Count, Counters
from collectors.errors import CollectorError
from collectors.exporters.flows import ExportedFlows
from collectors.exporters.links import ExportedLinks, PortCounters
from collectors.exporters.settings import DeviceSettings, SflowSettings
from collectors.state.link_states import LinkStates
from collectors.values import DropRecord, FlowKey, LoadSource, PathState
from dataplane.clock import NS_PER_MS, NS_PER_S, Clock
from dataplane.errors import WireError
from dataplane.topology.addressing import report_source
from dataplane.topology.values import Endpoint, SwitchNode, Topology
from dataplane.wire import sflow
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.fields import IpAddress
from dataplane.wire.inner import decode_ethernet, decode_ipv4, decode_ipv6
from dataplane.wire.marking import UNMARKED
from dataplane.wire.sflow import CounterSample, Datagram, DiscardedPacket, PacketSample, SampledPacket

_UPTIME_WRAPS_MS: Final = 1 << 32
_ETHERNET_BYTES: Final = 14
_CLOCK_NS: Final = NS_PER_S
"""The uptime may be in whole seconds (Open vSwitch)."""

_DECODE: Final = {sflow.ETHERNET: decode_ethernet, sflow.IPV4: decode_ipv4, sflow.IPV6: decode_ipv6}

REASONS: Final = {
    **dict.fromkeys(range(16), DropReason.NO_ROUTE),  # ICMP's codes of unreachable destinations
    3: DropReason.UNKNOWN,  # a port, of the device itself
    4: DropReason.MTU_EXCEEDED,
    257: DropReason.TTL_EXPIRED,
    259: DropReason.QUEUE_FULL,
    260: DropReason.QUEUE_FULL,  # random early detection
    262: DropReason.MTU_EXCEEDED,
    269: DropReason.NO_ROUTE,  # a black hole
    270: DropReason.UNKNOWN_ETHERTYPE,
    275: DropReason.PARSER_ERROR,
    279: DropReason.NO_ROUTE,  # no neighbour
}
"""Reasons of discarded packets as those of our drop reports; all others are UNKNOWN."""


@dataclass(slots=True, eq=False)
class _Agent:
    """A switch's agent: its ports by interface, where its datagrams come from, and its clock."""

    node: SwitchNode
    source: IpAddress
    ports: Mapping[int, int] | None
    uptime_ms: int = 0
    clock_ms: int = 0
    """Uptime that does not wrap."""

    def port(self, interface: int | None) -> int | None:
        """Return the port of an interface, None for one that is no port of the topology's."""
        if interface is None or self.ports is None:
            return interface
        return self.ports.get(interface)

    def device_ns(self, uptime_ms: int) -> int:
        """Return the device's time of a datagram; after a restart it goes back."""
        step_ms = (uptime_ms - self.uptime_ms) % _UPTIME_WRAPS_MS
        # The uptime of a restarted device is small, and 49 days ahead of a long one only by arithmetic.
        is_ahead = step_ms < _UPTIME_WRAPS_MS // 2
        self.clock_ms = self.clock_ms + step_ms if is_ahead else uptime_ms
        self.uptime_ms = uptime_ms
        return self.clock_ms * NS_PER_MS


DropsSink = Callable[[tuple[DropRecord, ...]], None]


class SflowState:
    """State of links and flows by their agents; datagrams come in by `receive`, from one thread.

    Raises CollectorError for a device that is no switch of the topology, or two with one agent address.
    """

    def __init__(
        self, topology: Topology, settings: SflowSettings, clock: Clock, counters: Counters, on_drops: DropsSink
    ) -> None:
        self._agents = agents_of(topology, settings.devices)
        self._topology, self._clock, self._counters, self._on_drops = topology, clock, counters, on_drops
        self._links = ExportedLinks(topology, LoadSource.SFLOW, settings.stale_after_ns, _CLOCK_NS)
        self._flows = ExportedFlows(topology, settings.stale_after_ns, settings.max_flows)
        self.last_problem: str | None = None

    def links(self, links: LinkStates, now_ns: int) -> LinkStates:
        """Return links, completed by what agents counted."""
        return self._links.complete(links, now_ns)

    def paths(self, paths: Mapping[FlowKey, PathState], links: LinkStates, now_ns: int) -> Mapping[FlowKey, PathState]:
        """Return flows' paths, completed by those that only agents have sampled."""
        return self._flows.complete(paths, links, now_ns)

    def receive(self, payload: bytes, source: IpAddress) -> None:
        """Take a datagram; count what is malformed, of an unknown agent, or not from where the agent sends."""
        self._counters[Count.SFLOW_DATAGRAMS] += 1
        try:
            datagram = sflow.decode(payload)
        except WireError as error:
            self._refuse(Count.SFLOW_MALFORMED, f"datagram from {source}: {error}")
            return
        agent = None if datagram.agent is None else self._agents.get(datagram.agent)
        if agent is None:
            self._refuse(Count.SFLOW_UNKNOWN, f"datagram from {source}: no device has the agent {datagram.agent}")
        elif agent.source != source:
            line = f"datagram of {agent.node.name} from {source}, not from {agent.source}"
            self._refuse(Count.SFLOW_WRONG_SOURCE, line)
        else:
            self._take(agent, datagram)

    def _refuse(self, count: Count, problem: str) -> None:
        self._counters[count] += 1
        self.last_problem = problem

    def _take(self, agent: _Agent, datagram: Datagram) -> None:
        now_ns, device_ns = self._clock.now_ns(), agent.device_ns(datagram.uptime_ms)
        self._counters[Count.SFLOW_SKIPPED] += datagram.skipped
        drops: list[DropRecord] = []
        for sample in datagram.samples:
            match sample:
                case CounterSample():
                    self._take_counters(agent, sample, device_ns, now_ns)
                case PacketSample():
                    self._take_packet(agent, sample, now_ns)
                case DiscardedPacket():
                    drops.append(_drop(agent, sample, now_ns))
        if drops:
            self._on_drops(tuple(drops))

    def _port(self, agent: _Agent, interface: int | None) -> Endpoint | None:
        """Return the port of an interface if the topology has a cable there; count it otherwise."""
        port = agent.port(interface)
        if port is not None and port in self._topology.neighbours[agent.node.name]:
            return Endpoint(agent.node.name, port)
        self._counters[Count.SFLOW_NO_LINK] += 1
        return None

    def _take_counters(self, agent: _Agent, sample: CounterSample, device_ns: int, now_ns: int) -> None:
        counted = sample.counters
        port = self._port(agent, counted.interface)
        if port is None:
            return
        counters = PortCounters(
            device_ns,
            counted.in_octets,
            counted.in_packets,
            counted.in_errors,
            counted.out_octets,
            counted.out_packets,
            counted.out_discards + counted.out_errors,
        )
        if not self._links.take(port, counters, now_ns):
            self._counters[Count.SFLOW_RESTARTS] += 1

    def _take_packet(self, agent: _Agent, sample: PacketSample, now_ns: int) -> None:
        outward = agent.port(sample.output)
        if sample.transit_ns is not None and outward is not None:
            self._links.take_transit(Endpoint(agent.node.name, outward), sample.transit_ns, now_ns)
        flow = None if sample.packet is None else _flow(sample.packet)
        if flow is None or sample.packet is None:
            return
        ends = agent.port(sample.input), outward
        self._flows.take(flow, agent.node.name, ends, _ip_frame_bytes(sample.packet), sample.rate, now_ns)


def agents_of(
    topology: Topology, devices: Iterable[DeviceSettings], key: str = "sflow.devices"
) -> dict[IpAddress, _Agent]:
    """Return agents by address; raise CollectorError, which names `key`, if they do not fit the topology."""
    agents: dict[IpAddress, _Agent] = {}
    for number, device in enumerate(devices):
        node = topology.switch.get(device.switch)
        if node is None:
            raise CollectorError(f"{key}[{number}]: there is no switch {device.switch!r} in {topology.name}")
        address = report_source(node) if device.agent is None else ip_address(device.agent)
        if address in agents:
            other = agents[address].node.name
            raise CollectorError(f"{key}[{number}]: {device.switch} has the agent address {address} of {other}")
        source = address if device.source is None else ip_address(device.source)
        agents[address] = _Agent(node, source, device.interfaces)
    return agents


def _flow(packet: SampledPacket) -> FlowKey | None:
    """Return a sampled packet's flow, None if it is not IP or cut before its addresses."""
    decode = _DECODE.get(packet.protocol)
    if decode is None:
        return None
    try:
        found = decode(packet.header, UNMARKED)
    except WireError:  # cut, or another protocol: it has no flow
        return None
    return FlowKey(found.src, found.dst, found.protocol, found.src_port, found.dst_port)


def _ip_frame_bytes(packet: SampledPacket) -> int:
    """Return a packet's length with its Ethernet header and without what was stripped."""
    frame_bytes = packet.frame_bytes - packet.stripped
    return frame_bytes if packet.protocol == sflow.ETHERNET else frame_bytes + _ETHERNET_BYTES


def _drop(agent: _Agent, discarded: DiscardedPacket, now_ns: int) -> DropRecord:
    flow = None if discarded.packet is None else _flow(discarded.packet)
    return DropRecord(
        received_ns=now_ns,
        reporter_id=agent.node.node_id,
        sequence=discarded.sequence,
        node_id=agent.node.node_id,
        ingress_port=agent.port(discarded.input),
        egress_port=agent.port(discarded.output),
        queue_id=None,
        reason=REASONS.get(discarded.reason, DropReason.UNKNOWN),
        flow=flow,
    )
