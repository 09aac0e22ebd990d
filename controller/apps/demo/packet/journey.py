"""One packet over a fabric in virtual time, with telemetry: its frame on every cable, and its reports."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from controller.network.paths.deciding.graph import Network
from controller.network.tables.telemetry.int_watch import Mode, Watch
from controller.network.virtual import NO_HELLOS, VirtualController
from dataplane.clock import NS_PER_S
from dataplane.errors import FabricError
from dataplane.fabric.hosts import Flow, find_probe, flow_between
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.topology.values import HostNode, LinkKey, Topology
from dataplane.wire.ipv4 import PROTOCOL_UDP
from dataplane.wire.packet import decode_udp_frame

FRAME_BYTES: Final = 142
"""Frame size as the host sends it: 100 bytes behind its headers, enough to make the headers visible."""
_OTHERS_BYTES: Final = 1000
_MOST_OTHERS: Final = 24
_BEGIN_NS: Final = 10_000_000
_PATIENCE_NS: Final = 1_000_000_000
_OURS: Final = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """A frame at the end of a cable."""

    link: LinkKey
    frame: bytes
    arrived_ns: int


@dataclass(frozen=True, slots=True)
class Journey:
    """The packet on each cable in turn, and its reports as they arrived at the collector's host."""

    topology: Topology
    mode: Mode
    sent_ns: int
    seen: tuple[Seen, ...]
    reports: tuple[Seen, ...]

    @property
    def path(self) -> tuple[str, ...]:
        """The sending host, the switches crossed, the receiving host."""
        return (self.seen[0].link.src, *(seen.link.dst for seen in self.seen))


def ends(topology: Topology, src: str | None, dst: str | None) -> tuple[str, str]:
    """Return the two hosts: the named ones, else the first, and the one most switches away from it.

    Raises FabricError for an unknown host, and if there are fewer than two.
    """
    collector = None if topology.collector is None else topology.collector.host
    for name in (src, dst):
        if name is not None and name not in topology.host:
            raise FabricError(f"topology {topology.name} has no host {name!r}")
    hosts = [host for host in topology.hosts if host.name != collector]
    network = Network(topology)

    def hops(host: HostNode, other: HostNode) -> int:
        base = network.base(*network.ends(host.name, other.name))
        return 0 if base is None else len(base[0])

    if src is None:
        others = [host for host in hosts if host.name != dst]
        if not others:
            raise FabricError(f"topology {topology.name}: a packet needs two hosts besides the collector's")
        target = None if dst is None else topology.host[dst]
        src = (others[0] if target is None else max(others, key=lambda host: hops(host, target))).name
    if dst is None:
        others = [host for host in hosts if host.name != src]
        if not others:
            raise FabricError(f"topology {topology.name}: a packet needs two hosts besides the collector's")
        dst = max(others, key=lambda host: hops(topology.host[src], host)).name
    if src == dst:
        raise FabricError(f"a packet from {src} to itself crosses no cable")
    return src, dst


def travel(topology: Topology, src: str, dst: str, *, mode: Mode = "md", seed: int = 1) -> Journey:
    """Send the packet among other hosts' packets, so that it meets queues; raise FabricError if it is lost.

    The same seed gives the same journey.
    """
    if topology.collector is None:
        raise FabricError(f"topology {topology.name} has no collector to receive the reports")
    collector = topology.collector.host
    address = topology.host[collector].ipv4, topology.collector.udp_port
    flow = flow_between(topology, _OURS, src, dst, 1_000_000, frame_bytes=FRAME_BYTES)
    fabric = VirtualFabric(topology, seed=seed)
    watch = Watch(src=src, dst=dst, protocol=PROTOCOL_UDP, dst_port=flow.dst_port, mode=mode)
    VirtualController.over(fabric, watches=(watch,), hellos=NO_HELLOS).start()
    seen: list[Seen] = []
    reports: list[Seen] = []

    def note(link: LinkKey, frame: bytes) -> None:
        datagram = decode_udp_frame(frame)
        if datagram is None:
            return
        sighting, probe = Seen(link, frame, fabric.now_ns), find_probe(frame)
        if (datagram.ip.dst, datagram.dst_port) == address:
            reports.extend([sighting] if link.dst == collector else [])
        elif probe is not None and probe.flow_id == _OURS:
            seen.append(sighting)

    fabric.on_arrival(note)
    for other in _others(topology, src, dst, random.Random(seed)):
        fabric.start_flow(*other)
    fabric.run_until(_BEGIN_NS)
    # Stopping right after the start sends exactly one packet.
    fabric.start_flow(src, replace(flow, start_ns=_BEGIN_NS, stop_ns=_BEGIN_NS + 1))
    longest_ns = sum(link.delay_ns for link in topology.directed_links.values())
    fabric.run_until(_BEGIN_NS + _PATIENCE_NS + longest_ns)
    if not seen or seen[-1].link.dst != dst:
        where = f"it was last seen on {seen[-1].link}" if seen else "it was never seen"
        raise FabricError(f"the packet from {src} to {dst} did not arrive: {where}")
    return Journey(topology, mode, _BEGIN_NS, tuple(seen), tuple(reports))


def _others(topology: Topology, src: str, dst: str, chance: random.Random) -> Iterator[tuple[str, Flow]]:
    """Yield hosts next to the packet's path, and the burst that each sends just before the packet passes."""
    network = Network(topology)
    base = network.base(*network.ends(src, dst))
    switches = () if base is None else base[0]
    at_ns = _BEGIN_NS
    for number, (tail, head) in enumerate(pairwise((src, *switches)), _OURS + 1):
        link = topology.directed_links[LinkKey(tail, head)]
        neighbours = [
            host for host in topology.hosts if host.name != dst and topology.attachment[host.name].node == head
        ]
        at_ns += link.delay_ns + _time_ns(FRAME_BYTES, link.rate_bps)
        sender = src if number == _OURS + 1 else next((host.name for host in neighbours), None)
        if sender is None:
            continue
        access = topology.directed_links[LinkKey(sender, head)]
        frames = chance.randint(2, max(2, min(_MOST_OTHERS, access.queue_frames // 2)))
        took_ns = frames * _time_ns(_OTHERS_BYTES, access.rate_bps)
        # The burst ends just as the packet arrives, so that the packet meets its queue.
        start_ns = max(0, at_ns - access.delay_ns - took_ns)
        flow = flow_between(topology, number, sender, dst, access.rate_bps, frame_bytes=_OTHERS_BYTES)
        yield sender, replace(flow, start_ns=start_ns, stop_ns=start_ns + took_ns)


def _time_ns(frame_bytes: int, rate_bps: int) -> int:
    return 8 * frame_bytes * NS_PER_S // rate_bps
