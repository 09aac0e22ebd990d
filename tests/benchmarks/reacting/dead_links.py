"""Outage after a link dies: the time from the fault to the first packet on another path.

Three faults (a device set down, everything lost one way, a switch that dies) on a ring, Abilene and a leaf-spine, in
virtual time and, as root, in the kernel with the real daemons. Each hits the path of one flow of 500 packets per second
that has another path; an unrelated flow must lose nothing. Figures are the longest time without a packet within three
seconds of the fault.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import pairwise
from pathlib import Path

from rich.table import Table

from collectors.collector import Collector
from collectors.values import LinkCondition, LinkStatus, Snapshot
from controller.network.base_paths import base_paths, next_hops
from controller.network.daemon_settings import LinkSettings
from controller.network.gnmi.settings import Hellos
from controller.network.paths.core import PathServerCore
from controller.network.paths.settings import DecideSettings
from controller.network.virtual import VirtualController
from dataplane.fabric.hosts import Flow, Receiver, flow_between
from dataplane.fabric.kernel import KernelFabric
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.topology.file import load_topology, loads
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.packet import decode_udp_frame
from tests.integration.kernel_circle import FLOW_END_NS, Circle

MS = 1_000_000
S = 1_000 * MS
RATE_BPS, FRAME_BYTES = 800_000, 200
FAULT_NS = 1 * S
WATCHED_NS = 3 * S
BEFORE_NS = 500 * MS
"""Lead time before the fault from which the other flow's packets count."""
NOTICE_NS = 1 * MS
"""A device that is set down is noticed by netlink at once."""
RING = """
millrace: 1
name: ring
collector: {host: h5}
synchronised_clocks: true
defaults:
  link: {rate: 20 Mbit/s, delay: 1 ms, queue_frames: 64}
  access: {rate: 100 Mbit/s, delay: 10 us, queue_frames: 64}
switches: [{name: s1}, {name: s2}, {name: s3}, {name: s4}, {name: s5}, {name: s6}]
hosts:
  - {name: h1, switch: s1}
  - {name: h3, switch: s3}
  - {name: h4, switch: s4}
  - {name: h5, switch: s5}
links: [{a: s1, b: s2}, {a: s2, b: s3}, {a: s3, b: s4}, {a: s4, b: s5}, {a: s5, b: s6}, {a: s6, b: s1}]
"""


class Fault(StrEnum):
    """Kind of fault."""

    DEVICE_DOWN = "device down"
    ONE_WAY = "lost one way"
    SWITCH_DEAD = "switch dead"


@dataclass(frozen=True, slots=True)
class Outage:
    """Effect of a fault on the flow that it hit and on the one that it did not."""

    topology: str
    fault: Fault
    kernel: bool
    away_ns: int
    others_lost: int


@dataclass(frozen=True, slots=True)
class Ends:
    """Two hosts whose shortest path has a switch between their own, with another way around it; and two others."""

    src: str
    dst: str
    other_src: str
    other_dst: str


def topologies() -> Iterator[Topology]:
    """Yield the topologies of the benchmark."""
    yield loads(RING)
    yield load_topology("abilene")
    yield load_topology("leaf-spine")


def choose_ends(topology: Topology) -> Ends:
    """Return the first pair of hosts that fits, and the first two hosts whose path shares no switch with theirs."""
    hops = next_hops(topology)
    at = {host: end.node for host, end in topology.attachment.items()}
    collector = at[topology.collector.host] if topology.collector else ""
    pairs = [(a, b) for a in at for b in at if a != b]
    for src, dst in pairs:
        ways = list(base_paths(hops, at[src], at[dst]))
        middle = {switch for way in ways for switch in way[1:-1]}
        if any(len(way) != 3 for way in ways) or collector in middle:
            continue
        lost = {LinkKey(*pair) for pair in pairwise(ways[0])}
        if not list(base_paths(next_hops(topology, lost), at[src], at[dst])):
            continue
        taken = {*middle, at[src], at[dst]}
        for start, other in pairs:
            if all(not taken & set(way) for way in base_paths(hops, at[start], at[other])):
                return Ends(src, dst, start, other)
    raise SystemExit(f"{topology.name}: no two hosts fit")


def flows(topology: Topology, ends: Ends) -> tuple[Flow, Flow]:
    """Return the flow that the fault hits and the one that it must not."""

    def flow(number: int, src: str, dst: str, rate_bps: int) -> Flow:
        return flow_between(topology, number, src, dst, rate_bps, frame_bytes=FRAME_BYTES, stop_ns=FLOW_END_NS)

    return flow(1, ends.src, ends.dst, RATE_BPS), flow(2, ends.other_src, ends.other_dst, RATE_BPS // 4)


def path_of(snapshot: Snapshot, topology: Topology, ends: Ends) -> tuple[str, ...]:
    """Return the switches that the first flow was last seen to cross, () if it was not."""
    wanted = topology.host[ends.src].ipv4, topology.host[ends.dst].ipv4
    return next((path.switches for key, path in snapshot.paths.items() if (key.src, key.dst) == wanted), ())


# ---- virtual time


class VirtualCircle:
    """A fabric in virtual time with hellos, controller, collector and path server."""

    def __init__(self, topology: Topology, ends: Ends) -> None:
        self.topology, self.ends = topology, ends
        self.fabric = VirtualFabric(topology, pipeline_factory=compiled_pipeline)
        self.collector = Collector(topology, self.fabric.clock)
        self.paths = PathServerCore(topology, DecideSettings())
        self.controller = VirtualController.over(self.fabric, hellos=Hellos())
        self.controller.on_links(self._hear)
        self.controller.start()
        self.receivers = Receiver(), Receiver()
        if topology.collector is not None:
            self.fabric.host(topology.collector.host).on_frame(self._report)
        for number, (flow, host) in enumerate(zip(flows(topology, ends), (ends.dst, ends.other_dst), strict=True)):
            self.fabric.host(host).on_frame(partial(_receive, self.receivers[number]))
            self.fabric.start_flow((ends.src, ends.other_src)[number], flow)

    def run_until(self, end_ns: int) -> None:
        """Run, deciding every 50 ms."""
        while self.fabric.now_ns < end_ns:
            self.fabric.run_until(min(end_ns, self.fabric.now_ns + 50 * MS))
            result = self.paths.step(self.collector.snapshot(), self.fabric.now_ns)
            if result is not None:
                self.controller.submit(result.routes)

    def strike(self, fault: Fault) -> None:
        """Let something go wrong on the first flow's path."""
        path = path_of(self.collector.snapshot(), self.topology, self.ends)
        if fault is Fault.DEVICE_DOWN:
            self.fabric.set_link(path[0], path[1], up=False, notice_after_ns=NOTICE_NS)
        elif fault is Fault.ONE_WAY:
            self.fabric.lose(path[1], path[2], lost=True)
        else:
            for end in self.topology.neighbours[path[1]].values():
                self.fabric.lose(path[1], end.node, lost=True)
                self.fabric.lose(end.node, path[1], lost=True)

    def _hear(self, statuses: Mapping[LinkKey, LinkStatus]) -> None:
        self.collector.note_links(statuses)
        result = self.paths.links_noted(statuses, self.fabric.now_ns)
        if result is not None:
            self.controller.submit(result.routes)

    def _report(self, frame: bytes, _now_ns: int) -> None:
        datagram = decode_udp_frame(frame)
        if datagram is not None and datagram.dst_port == self.collector.report_udp_port:
            self.collector.receive(datagram.payload)


def _receive(receiver: Receiver, frame: bytes, now_ns: int) -> None:
    receiver.receive(frame, now_ns)


def strike_virtual(topology: Topology, ends: Ends, fault: Fault) -> Outage:
    """Return what a fault does in virtual time."""
    circle = VirtualCircle(topology, ends)
    circle.run_until(FAULT_NS)
    circle.strike(fault)
    circle.run_until(FAULT_NS + WATCHED_NS)
    hit, spared = circle.receivers
    away_ns = hit.longest_gap_ns(1, FAULT_NS, FAULT_NS + WATCHED_NS)
    return Outage(
        topology.name, fault, False, away_ns, spared.measure(2, FAULT_NS - BEFORE_NS, FAULT_NS + WATCHED_NS).lost
    )


# ---- the kernel


def strike_kernel(topology: Topology, ends: Ends) -> Iterator[Outage]:
    """Yield what each fault does to a fabric in the kernel under the real daemons, one after the other."""
    with tempfile.TemporaryDirectory() as name, KernelFabric(topology) as fabric:
        circle = Circle(fabric, Path(name), flows=(), links=LinkSettings(return_after_ns=1 * S))
        for daemon in ("collector", "paths", "controller"):
            circle.start(daemon)
        fabric.wait_ready()
        for fault in Fault:
            circle.until(lambda: are_alive(circle.snapshot(), topology), "links that are alive")
            yield _strike_once(circle, ends, fault)


def _strike_once(circle: Circle, ends: Ends, fault: Fault) -> Outage:
    fabric, topology = circle.fabric, circle.fabric.topology
    with circle.traffic(*flows(topology, ends)) as traffic:
        circle.until(lambda: len(path_of(circle.snapshot(), topology, ends)) == 3, "the flow's telemetry")
        time.sleep(1.0)
        path = path_of(circle.snapshot(), topology, ends)
        breaks, mends = _acts(fabric, path, fault)
        struck_ns = traffic.now_ns()
        breaks()
        time.sleep(WATCHED_NS / S)
        mends()
    away_ns = traffic.longest_gap_ns(1, struck_ns, struck_ns + WATCHED_NS)
    spared = traffic.measure(2, struck_ns - BEFORE_NS, struck_ns + WATCHED_NS)
    return Outage(topology.name, fault, True, away_ns, spared.lost)


def _acts(fabric: KernelFabric, path: tuple[str, ...], fault: Fault) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return what breaks a path and what mends it."""
    if fault is Fault.DEVICE_DOWN:
        return (lambda: fabric.set_link(path[0], path[1], up=False)), (
            lambda: fabric.set_link(path[0], path[1], up=True)
        )
    if fault is Fault.ONE_WAY:
        return (lambda: fabric.lose(path[1], path[2], lost=True)), (lambda: fabric.lose(path[1], path[2], lost=False))
    return (lambda: fabric.stop_switch(path[1], kill=True)), (lambda: fabric.start_switch(path[1]))


def are_alive(snapshot: Snapshot, topology: Topology) -> bool:
    """Return whether every link between switches is known to be up."""
    inner = {key for key in topology.directed_links if {key.src, key.dst} <= topology.switch.keys()}
    return inner == {key for key, status in snapshot.statuses.items() if status.condition is LinkCondition.UP}


def run(*, kernel: bool) -> list[Outage]:
    """Return what every fault does on every topology, in virtual time and, if asked for, in the kernel."""
    outages: list[Outage] = []
    for topology in topologies():
        ends = choose_ends(topology)
        outages += [strike_virtual(topology, ends, fault) for fault in Fault]
        if kernel:
            outages += strike_kernel(topology, ends)
    return outages


def longest_ms(outages: Sequence[Outage], *, kernel: bool) -> float | None:
    """Return the longest time away, None where nothing was run."""
    times = [outage.away_ns for outage in outages if outage.kernel is kernel]
    return round(max(times) / MS, 1) if times else None


def outage_table(outages: Sequence[Outage]) -> Table:
    """Return a row a fault."""
    table = Table(title="Links that die: how long the traffic that they carried stays away", title_justify="left")
    for name in ("topology", "fault", "time", "away ms", "others lost"):
        table.add_column(name, justify="right" if name == "away ms" else "left")
    for outage in outages:
        kind = "kernel" if outage.kernel else "virtual"
        table.add_row(outage.topology, outage.fault, kind, f"{outage.away_ns / MS:.1f}", str(outage.others_lost))
    return table
