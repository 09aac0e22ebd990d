"""Reports that a fabric's sinks would send, as rows of bytes: any number of hops and flows, values that vary.

The fabric has as many stages as a path has hops, `WIDTH` switches each, every one linked to all of the next stage; each
switch of the first and of the last stage has a host. A flow takes one switch a stage, by its number.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address

import numpy as np
from numpy.typing import NDArray

from dataplane.topology.addressing import switch_ipv4
from dataplane.topology.values import CollectorAddress, Endpoint, HostNode, Link, SwitchNode, Topology
from dataplane.wire import int_metadata
from dataplane.wire.int_md import IntMd, encode_stack
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_shim import IntShim, IntType
from dataplane.wire.packet import ip_packet
from dataplane.wire.report import Report, ReportPacket
from dataplane.wire.report_group import ReportGroup
from dataplane.wire.report_individual import InnerType, ReportType
from dataplane.wire.report_int import IntReport
from dataplane.wire.udp import segment

WIDTH = 4
HOST_PORT = 100
BITS = 0xF900
"""Node id, interfaces, hop latency, queue, ingress time stamp, TX utilisation: 7 words a hop."""
LINK_DELAY_NS = 5_000
GROUP_BYTES, HEADER_BYTES, MAIN_BYTES = 8, 4, 8
_HOP = {"node": 0, "ports": 4, "latency": 8, "queue": 12, "arrived": 16, "tx": 24}
"""Offsets of a hop's values; the reporter's own come without its node id."""
HOP_BYTES = 28


def stage_topology(hops: int) -> Topology:
    """Return the fabric for paths with this many hops."""
    switches = tuple(SwitchNode(f"s{stage}-{n}", node_id(stage, n)) for stage in range(hops) for n in range(WIDTH))
    ends = [(name, stage, n) for name, stage in (("a", 0), ("b", hops - 1)) for n in range(WIDTH)]
    hosts = tuple(
        HostNode(f"{name}{n}", 0x02_00_00_00_00_00 | number, address(number))
        for number, (name, _, n) in enumerate(ends)
    )
    cables = [(f"{name}{n}", 0, f"s{stage}-{n}", HOST_PORT + (name == "b")) for name, stage, n in ends]
    for stage in range(hops - 1):
        for tail in range(WIDTH):
            cables += [(f"s{stage}-{tail}", head, f"s{stage + 1}-{head}", WIDTH + tail) for head in range(WIDTH)]
    links = tuple(
        Link(Endpoint(a, p), Endpoint(b, q), rate_bps=100_000_000_000, delay_ns=LINK_DELAY_NS, queue_frames=1000)
        for a, p, b, q in cables
    )
    return Topology("stages", switches, hosts, links, CollectorAddress("b0", 32766), synchronised_clocks=True)


def node_id(stage: int, number: int) -> int:
    """Return a switch's node id."""
    return 1000 + stage * WIDTH + number


def address(number: int) -> IPv4Address:
    """Return a host's address."""
    return IPv4Address(f"10.0.{number}.1")


@dataclass(slots=True)
class Reports:
    """Payloads, a row each, all equally long; `advance` makes them the next ones of the same flows."""

    rows: NDArray[np.uint8]
    places: NDArray[np.uint64]
    lengths: NDArray[np.uint32]
    addresses: NDArray[np.uint32]
    hops: int
    sinks: NDArray[np.int64]
    span_ns: int

    def advance(self) -> None:
        """Move sequence numbers and time stamps on, as though the next packets had been measured."""
        counts = np.bincount(self.sinks, minlength=WIDTH)
        _set(self.rows, 0, ">u4", _get(self.rows, 0, ">u4") + counts[self.sinks] & 0x3F_FFFF | 0x2000_0000)
        for hop in range(self.hops):
            at = hop_at(self.hops, hop) + _HOP["arrived"]
            _set(self.rows, at, ">u8", _get(self.rows, at, ">u8") + self.span_ns)


def hop_at(hops: int, hop: int) -> int:
    """Return where a hop's values begin in a row: the last one's, the reporter's, as though its node id were there."""
    own = GROUP_BYTES + HEADER_BYTES + MAIN_BYTES - 4
    stack = own + HOP_BYTES + 20 + 8 + 4 + 12
    return own if hop == hops - 1 else stack + (hops - 2 - hop) * HOP_BYTES


def reports(hops: int, flows: int, count: int, seed: int = 1) -> Reports:
    """Return reports of randomly drawn flows."""
    random = np.random.default_rng(seed)
    template = _template(hops)
    rows = np.zeros((count, -(-len(template) // 64) * 64), np.uint8)
    rows[:, : len(template)] = np.frombuffer(template, np.uint8)
    flow = random.permutation(np.arange(count) % flows) if flows <= count else random.integers(0, flows, count)
    at_flow = hop_at(hops, hops - 1) + HOP_BYTES
    sequences = np.zeros(count, np.int64)
    # A flow's way: a switch a stage by its number's digits, mixed so that neighbours differ.
    digits = (flow * 0x9E37_79B9 >> 7) & 0xFFFF_FFFF
    switches = np.stack([(digits >> 2 * stage) % WIDTH for stage in range(hops)])
    sinks = switches[-1]
    for sink in range(WIDTH):
        sequences[sinks == sink] = np.arange(np.count_nonzero(sinks == sink))
    _set(rows, 0, ">u4", sequences & 0x3F_FFFF | 0x2000_0000)
    _set(rows, 4, ">u4", node_id(hops - 1, 0) + sinks)
    _set(rows, at_flow + 12, ">u4", int(address(0)) + 256 * switches[0])
    _set(rows, at_flow + 16, ">u4", int(address(WIDTH)) + 256 * sinks)
    _set(rows, at_flow + 20, ">u2", 1024 + (flow & 0x7FFF))
    _set(rows, at_flow + 22, ">u2", 1024 + (flow >> 15))
    interval_ns = 100
    arrived = 1_000_000_000 + np.arange(count) * interval_ns
    for hop in range(hops):
        at = hop_at(hops, hop)
        waited = (random.lognormal(9, 0.7, count)).astype(np.int64)
        if hop < hops - 1:
            _set(rows, at, ">u4", node_id(hop, 0) + switches[hop])
        egress = switches[hop + 1] if hop < hops - 1 else np.full(count, HOST_PORT + 1)
        ingress = WIDTH + switches[hop - 1] if hop else np.full(count, HOST_PORT)
        _set(rows, at + _HOP["ports"], ">u4", ingress << 16 | egress)
        _set(rows, at + _HOP["latency"], ">u4", waited)
        _set(rows, at + _HOP["queue"], ">u4", waited >> 10)
        _set(rows, at + _HOP["arrived"], ">u8", arrived)
        _set(rows, at + _HOP["tx"], ">u4", random.integers(0, 800_000_000, count))
        arrived = arrived + waited + LINK_DELAY_NS
    lengths = np.full(count, len(template), np.uint32)
    places = np.arange(count, dtype=np.uint64) * np.uint64(rows.shape[1])
    sources = np.array([int(switch_ipv4(node_id(hops - 1, n))) for n in range(WIDTH)], np.uint32)
    return Reports(rows, places, lengths, sources[sinks], hops, sinks, count * interval_ns)


def _template(hops: int) -> bytes:
    """Return one report by the codecs, whose values are put in later."""
    hop = HopMetadata(0, 0, 0, 0, 0, 0, 0, 0, tx_utilisation=0)
    header = IntMd(int_metadata.baseline_words(BITS), 64 - hops, BITS)
    metadata = int_metadata.decode(hop.encode(BITS), 0, BITS, HOP_BYTES)
    stack = encode_stack(header, (metadata,) * (hops - 1))
    shim = IntShim(IntType.MD, (12 + len(stack)) // 4)
    datagram = segment(address(0), address(WIDTH), 1, 2, shim.encode() + header.encode() + stack + bytes(1000))
    packet = ip_packet(address(0), address(WIDTH), 17, datagram, dscp=0x17)[: 44 + len(stack)]
    own = int_metadata.decode(hop.encode(BITS), 4, BITS & 0x7FFF, HOP_BYTES - 4)
    individual = Report(ReportType.INT, InnerType.IPV4, IntReport(BITS & 0x7FFF, own), packet, tracked=True)
    return ReportPacket(ReportGroup(0, 0, 0), (individual,)).encode()


def _set(rows: NDArray[np.uint8], at: int, kind: str, values: NDArray[np.int64] | NDArray[np.uint64]) -> None:
    cells = values.astype(kind).view(np.uint8).reshape(len(rows), -1)
    rows[:, at : at + cells.shape[1]] = cells


def _get(rows: NDArray[np.uint8], at: int, kind: str) -> NDArray[np.int64]:
    size = np.dtype(kind).itemsize
    return np.ascontiguousarray(rows[:, at : at + size]).view(kind)[:, 0].astype(np.int64)
