"""Reports of flows: rows of bytes by the project's encoders, with only numbers and measurements changed afterwards.

A report is a Telemetry Report v2.0 of a UDP/IPv4 packet with an INT-MD stack of seven words a hop: node id, interfaces,
hop latency, queue, ingress time stamp, TX utilisation. The last switch of a path reports; its own words stand in the
report. Every report draws every hop's delay, and time stamps agree with the delays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataplane.topology.values import LinkKey, Topology
from dataplane.wire import int_metadata
from dataplane.wire.int_md import IntMd, encode_stack
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_shim import IntShim, IntType
from dataplane.wire.ipv4 import PROTOCOL_UDP
from dataplane.wire.packet import ip_packet
from dataplane.wire.report import Report, ReportPacket
from dataplane.wire.report_group import SEQUENCE_BITS, VERSION, ReportGroup
from dataplane.wire.report_individual import InnerType, ReportType
from dataplane.wire.report_int import IntReport
from dataplane.wire.udp import segment
from tests.benchmarks.chaining.flows import SOURCE_PORT, TARGET_PORT, Flow, Flows

BITS = 0xF900
"""Node id, interfaces, hop latency, queue, ingress time stamp, TX utilisation."""
HOP_BYTES = 4 * int_metadata.baseline_words(BITS)
PAYLOAD_BYTES = 1000
FULL_QUEUE_FRAMES = 400
FULL_LOAD = 0.99
TX_WINDOW_NS = 65_536_000
"""`StateSettings.tx_window_ns`: the span whose bytes a switch reports."""

_DSCP = 0x17
"""The DSCP that marks packets with INT, as the collector's settings have it."""
_FRAME_BITS = 1538 * 8
_OWN_AT = 8 + 4 + 8 - 4
"""Group, individual and INT headers; the reporter's words come without a node id, as though it stood before them."""
_STACK_AT = _OWN_AT + HOP_BYTES + 20 + 8 + 4 + 12
"""... then IPv4, UDP, INT's shim and header."""
PORTS_AT = _OWN_AT + HOP_BYTES + 20
"""Offset of the packet's UDP ports in a row, two bytes each; length and then checksum follow them."""
_FIELDS = {"latency": (8, ">u4"), "queue": (12, ">u4"), "stamp": (16, ">u8"), "tx": (24, ">u4")}
_DRAWN = 1 << 20
_IDLE_NS, _IDLE_SIGMA = 1_000, 0.5
"""Median and sigma of the lognormal latency of a switch without a queue."""
_IDLE_LOAD = 0.2, 0.4


def report_bytes(hops: int) -> int:
    """Return the length of a report of a path with this many switches."""
    return _STACK_AT + (hops - 1) * HOP_BYTES


def layout(hops: int) -> np.dtype[Any]:
    """Return a row's `sequence` and `reporter`, and `latency0`, `queue0`, `stamp0`, `tx0` and so on of each hop."""
    fields: dict[str, tuple[int, str]] = {"sequence": (0, ">u4"), "reporter": (4, ">u4")}
    for hop in range(hops):
        at = _OWN_AT if hop == hops - 1 else _STACK_AT + (hops - 2 - hop) * HOP_BYTES
        fields |= {f"{name}{hop}": (at + offset, kind) for name, (offset, kind) in _FIELDS.items()}
    return np.dtype(
        {
            "names": list(fields),
            "formats": [kind for _, kind in fields.values()],
            "offsets": [offset for offset, _ in fields.values()],
            "itemsize": report_bytes(hops),
        }
    )


def encoded(topology: Topology, flow: Flow) -> bytes:
    """Return a flow's report by the codecs, its measurements zero."""
    nodes = (flow.src, *flow.path, flow.dst)
    links = topology.directed_links
    hops = [
        HopMetadata(
            node_id=topology.switch[name].node_id,
            ingress_interface=links[LinkKey(before, name)].head.port,
            egress_interface=links[LinkKey(name, after)].tail.port,
            hop_latency=0,
            queue_id=0,
            queue_occupancy=0,
            ingress_timestamp=0,
            tx_utilisation=0,
        )
        for before, name, after in zip(nodes, flow.path, nodes[2:], strict=False)
    ]
    src, dst = topology.host[flow.src].ipv4, topology.host[flow.dst].ipv4
    header = IntMd(int_metadata.baseline_words(BITS), 64 - len(hops), BITS)
    stack = encode_stack(header, tuple(reversed(hops[:-1])))
    shim = IntShim(IntType.MD, (12 + len(stack)) // 4)
    inner = shim.encode() + header.encode() + stack + bytes(PAYLOAD_BYTES)
    packet = ip_packet(src, dst, PROTOCOL_UDP, segment(src, dst, SOURCE_PORT, TARGET_PORT, inner), dscp=_DSCP)
    own = IntReport(BITS & ~int_metadata.NODE_ID, hops[-1])
    report = Report(ReportType.INT, InnerType.IPV4, own, packet[: 20 + 8 + 4 + 12 + len(stack)], tracked=True)
    return ReportPacket(ReportGroup(0, 0, topology.switch[flow.path[-1]].node_id), (report,)).encode()


@dataclass(slots=True)
class Congestion:
    """Directed links whose queue is full."""

    links: NDArray[np.int32]

    @classmethod
    def of(cls, flows: Flows, links: tuple[LinkKey, ...] = ()) -> Congestion:
        """Return the congestion of these links."""
        return cls(np.array([flows.numbers[link] for link in links], np.int32))


class Reports:
    """Makes rows of a schedule of flows, one batch after the other; `rows` holds the newest batch from row 0 on."""

    def __init__(self, flows: Flows, rng: np.random.Generator, largest_batch: int) -> None:
        self.flows, self._rng = flows, rng
        self._layout = layout(flows.hops)
        made = [encoded(flows.topology, flow) for flow in flows.flows]
        self._templates = np.frombuffer(b"".join(made), np.uint8).reshape(len(made), -1).copy()
        self.rows = np.zeros((largest_batch, self._templates.shape[1]), np.uint8)
        self._fields = self.rows.reshape(-1).view(self._layout)
        self._order = flows.schedule(rng)
        self._next = 0
        nodes = self._templates.reshape(-1).view(self._layout)["reporter"].astype(np.int64)
        self._node_ids, self._reporter = np.unique(nodes, return_inverse=True)
        self._sent = np.zeros(len(self._node_ids), np.int64)
        self._idle_ns = rng.lognormal(np.log(_IDLE_NS), _IDLE_SIGMA, _DRAWN).astype(np.int64)
        directed = flows.topology.directed_links
        rate_bps = np.array([directed[key].rate_bps for key in flows.keys], np.int64)
        self._delay_ns = np.array([directed[key].delay_ns for key in flows.keys], np.int64)
        self._full_tx = rate_bps * TX_WINDOW_NS // (8 * 1_000_000_000)
        self._frame_ns = _FRAME_BITS * 1_000_000_000 / rate_bps
        self._load = rng.uniform(*_IDLE_LOAD, _DRAWN)

    def reroute(self, flow: int) -> None:
        """Take a flow's new path into its reports."""
        self._templates[flow] = np.frombuffer(encoded(self.flows.topology, self.flows.flows[flow]), np.uint8)

    def fill(self, count: int, begins_ns: int, interval_ns: int, congestion: Congestion) -> NDArray[np.bool_]:
        """Make the next `count` rows, of packets that came to their first switch in such intervals.

        Return which of them crossed a congested link.
        """
        flow = self._take(count)
        rows = self._fields[:count]
        self.rows[:count] = self._templates[flow]
        self._number(rows, self._reporter[flow])
        at_ns = begins_ns + np.arange(count, dtype=np.int64) * interval_ns
        draw = int(self._rng.integers(_DRAWN - count * self.flows.hops))
        hit = np.zeros(count, np.bool_)
        for hop in range(self.flows.hops):
            some = slice(draw + hop * count, draw + (hop + 1) * count)
            link = self.flows.links[flow, hop]
            latency_ns, queue, load = self._idle_ns[some], self._idle_ns[some] >> 10, self._load[some]
            if len(congestion.links):
                full = np.isin(link, congestion.links)
                waited_ns = (FULL_QUEUE_FRAMES * self._frame_ns[link]).astype(np.int64)
                latency_ns = latency_ns + np.where(full, waited_ns, 0)
                queue, load = np.where(full, FULL_QUEUE_FRAMES, queue), np.where(full, FULL_LOAD, load)
                hit |= full
            rows[f"stamp{hop}"] = at_ns
            rows[f"latency{hop}"] = latency_ns
            rows[f"queue{hop}"] = queue
            rows[f"tx{hop}"] = load * self._full_tx[link]
            at_ns = at_ns + latency_ns + self._delay_ns[link]
        return hit

    def renumber(self, count: int) -> None:
        """Renumber the first `count` rows, so that they are not taken for repetitions."""
        nodes = self._fields[:count]["reporter"]
        self._number(self._fields[:count], np.searchsorted(self._node_ids, nodes))

    def _take(self, count: int) -> NDArray[np.int32]:
        """Return the next flows of the schedule."""
        taken = self._order.take(np.arange(self._next, self._next + count), mode="wrap")
        self._next = (self._next + count) % len(self._order)
        return taken

    def _number(self, rows: NDArray[Any], reporter: NDArray[np.int64]) -> None:
        """Give each row its reporter's next sequence number."""
        order = np.argsort(reporter, kind="stable")
        of = reporter[order]
        begins = np.searchsorted(of, of)
        rank = np.empty(len(of), np.int64)
        rank[order] = np.arange(len(of)) - begins
        number = (self._sent[reporter] + rank) & ((1 << SEQUENCE_BITS) - 1)
        rows["sequence"] = number | VERSION << 28
        self._sent += np.bincount(reporter, minlength=len(self._sent))
