"""A small fabric, and the reports that its switches would send, built with the wire module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_address

from collectors.values import FlowKey
from dataplane.topology.values import (
    CollectorAddress,
    Endpoint,
    HostNode,
    Link,
    SwitchNode,
    Topology,
)
from dataplane.wire import int_metadata
from dataplane.wire.completion import Completion
from dataplane.wire.int_md import IntMd, encode_stack
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_mx import IntMx
from dataplane.wire.int_shim import IntShim, IntType
from dataplane.wire.packet import ip_packet
from dataplane.wire.report import Report, ReportPacket
from dataplane.wire.report_group import ReportGroup
from dataplane.wire.report_individual import InnerType, ReportType
from dataplane.wire.report_int import IntReport
from dataplane.wire.udp import segment

ALL = 0xFD00
"""Every instruction bit that our program answers, but level-2 interfaces."""

MICRO = 1_000


def build_topology(synchronised: bool = True) -> Topology:
    """h1 - s1 - s2 - s3 - h2, and s1 - s3 directly; ports: s1 1:h1 2:s2 3:s3, s2 1:s1 2:s3, s3 1:s2 2:h2 3:s1."""
    cables = [("h1", 0, "s1", 1), ("s1", 2, "s2", 1), ("s2", 2, "s3", 1), ("s3", 2, "h2", 0), ("s1", 3, "s3", 3)]
    return Topology(
        "triangle",
        tuple(SwitchNode(f"s{n}", 10 + n) for n in (1, 2, 3)),
        (
            HostNode("h1", 0x020000000001, IPv4Address("10.0.0.1")),
            HostNode("h2", 0x020000000002, IPv4Address("10.0.0.2")),
        ),
        tuple(
            Link(Endpoint(a, p), Endpoint(b, q), rate_bps=1_000_000_000, delay_ns=5_000, queue_frames=100)
            for a, p, b, q in cables
        ),
        CollectorAddress("h2", 32766),
        synchronised,
    )


@dataclass(frozen=True)
class Hop:
    """A hop as a switch would report it: arrival and departure (ns), ports, and frames queued ahead."""

    node_id: int
    arrived_ns: int
    left_ns: int
    ingress_port: int
    egress_port: int
    queue: int = 0
    tx_bytes: int = 0
    buffer: int | None = None

    def metadata(self, bits: int) -> HopMetadata:
        fields = HopMetadata(
            self.node_id,
            self.ingress_port,
            self.egress_port,
            self.left_ns - self.arrived_ns,
            0,
            self.queue,
            self.arrived_ns,
            self.left_ns,
            tx_utilisation=self.tx_bytes,
            buffer_id=None if self.buffer is None else 0,
            buffer_occupancy=self.buffer,
        )
        # Only the requested fields: decode what was encoded.
        return int_metadata.decode(fields.encode(bits), 0, bits, 4 * int_metadata.baseline_words(bits))


@dataclass(frozen=True)
class Flags:
    """The association bits of an individual report."""

    dropped: bool = False
    congested: bool = False
    tracked: bool = True
    intermediate: bool = False


@dataclass
class Reporter:
    """Builds report payloads; a sequence number per node counts on by itself."""

    src: str = "10.0.0.1"
    dst: str = "10.0.0.2"
    src_port: int = 5000
    dst_port: int = 6001
    bits: int = ALL
    sequences: dict[int, int] = field(default_factory=dict)
    number: int | None = None
    """Packet number from our domain's source, if it numbers packets."""

    @property
    def flow(self) -> FlowKey:
        return FlowKey(ip_address(self.src), ip_address(self.dst), 17, self.src_port, self.dst_port)

    def group(self, node_id: int, sequence: int | None = None) -> ReportGroup:
        if sequence is None:
            sequence = self.sequences.get(node_id, -1) + 1
        self.sequences[node_id] = sequence
        return ReportGroup(0, sequence, node_id)

    def inner(self, header: IntMd, stack: bytes, payload: bytes = b"payload") -> bytes:
        """Return IP, UDP, shim, header and stack; the checksum is that of the whole packet, cut off behind INT."""
        shim = IntShim(IntType.MD, (12 + len(stack)) // 4)
        datagram = segment(
            ip_address(self.src),
            ip_address(self.dst),
            self.src_port,
            self.dst_port,
            shim.encode() + header.encode() + stack + payload,
        )
        packet = ip_packet(ip_address(self.src), ip_address(self.dst), 17, datagram, dscp=0x17)
        return packet[: len(packet) - len(payload)]

    def plain(self, payload: bytes = b"payload", shim_and_header: bytes = b"") -> bytes:
        """Return IP, UDP and an INT header without stack, or none, as a report truncates it: no payload."""
        src, dst = ip_address(self.src), ip_address(self.dst)
        datagram = segment(src, dst, self.src_port, self.dst_port, shim_and_header + payload)
        packet = ip_packet(src, dst, 17, datagram, dscp=0x17 if shim_and_header else 0)
        return packet[: len(packet) - len(payload)]

    def _packet(
        self,
        node_id: int,
        main: IntReport,
        inner: bytes,
        sequence: int | None,
        flags: Flags = Flags(),
    ) -> bytes:
        inner_type = InnerType.IPV6 if ":" in self.src else InnerType.IPV4
        individual = Report(
            ReportType.INT, inner_type, main, inner, flags.dropped, flags.congested, flags.tracked, flags.intermediate
        )
        return ReportPacket(self.group(node_id, sequence), (individual,)).encode()

    def _main(self, hop: Hop) -> IntReport:
        return IntReport(self.bits & 0x7FFF, hop.metadata(self.bits & 0x7FFF))

    def postcards(self, hops: Sequence[Hop], *, mx: bool, payload: bytes = b"payload") -> list[bytes]:
        """Return every hop's own report of one packet that carries an INT-MX header or nothing."""
        words = self._source_word()
        header = IntMx(self.bits, *self._domain(), source_inserted=words)
        shim = IntShim(IntType.MX, 3 + len(words) // 4).encode() + header.encode() if mx else b""
        inner = self.plain(payload, shim)
        return [self._packet(hop.node_id, self._main(hop), inner, None) for hop in hops]

    def intermediate(self, before: Sequence[Hop], after: Sequence[Hop]) -> list[bytes]:
        """Return the report of the last hop `before`, which takes the stack off, and the sink's of the hops `after`."""
        first = self._stack(before[:-1], self.bits)
        second = self._stack(after[:-1], self.bits)
        return [
            self._packet(before[-1].node_id, self._main(before[-1]), first, None, Flags(intermediate=True)),
            self._packet(after[-1].node_id, self._main(after[-1]), second, None),
        ]

    def _stack(self, hops: Sequence[Hop], bits: int) -> bytes:
        header = IntMd(int_metadata.baseline_words(bits), 60, bits, *self._domain())
        stack = encode_stack(header, tuple(hop.metadata(bits) for hop in reversed(hops)))
        return self.inner(header, stack + self._source_word())

    def _domain(self) -> tuple[int, int]:
        """Return domain id and instructions."""
        return (0, 0) if self.number is None else (0x4D52, 0x8000)

    def _source_word(self) -> bytes:
        return b"" if self.number is None else self.number.to_bytes(4, "big")

    def dropped(self, hops: Sequence[Hop], reason: int, *, tracked: bool = True) -> bytes:
        """Return the drop report of the last hop, for a packet that carries the stack of those before it."""
        last = hops[-1]
        bits = int_metadata.LEVEL1_INTERFACES | int_metadata.INGRESS_TIMESTAMP | int_metadata.LAST
        fields = HopMetadata(
            ingress_interface=last.ingress_port,
            egress_interface=last.egress_port,
            ingress_timestamp=last.arrived_ns,
            drop_queue_id=3,
            drop_reason=reason,
        )
        inner = self._stack(hops[:-1], self.bits)
        return self._packet(last.node_id, IntReport(bits, fields), inner, None, Flags(dropped=True, tracked=tracked))

    def congested(self, hop: Hop, *, tracked: bool = False) -> bytes:
        """Return a congested queue's report about a packet without INT."""
        return self._packet(hop.node_id, self._main(hop), self.plain(), None, Flags(congested=True, tracked=tracked))

    def item(self, node_id: int, completion: Completion, **main: int) -> bytes:
        """Return a switch's report of an item whose last contribution came from this host."""
        bits = int_metadata.LEVEL1_INTERFACES | int_metadata.INGRESS_TIMESTAMP
        own = HopMetadata(ingress_interface=2, ingress_timestamp=12_345, domain=completion.encode())
        fields = {"domain_id": 0x4D52, "domain_bits": 0x2000, **main}
        return self._packet(node_id, IntReport(bits, own, **fields), self.plain(), None)

    def stacked(self, hops: Sequence[Hop], *, sequence: int | None = None, exceeded: bool = False) -> bytes:
        """Return the sink's report: earlier hops in the stack, its own metadata in the main contents."""
        header = IntMd(
            int_metadata.baseline_words(self.bits),
            max(65 - len(hops), 0),
            self.bits,
            *self._domain(),
            hop_count_exceeded=exceeded,
        )
        stack = encode_stack(header, tuple(hop.metadata(self.bits) for hop in reversed(hops[:-1])))
        stack += self._source_word()
        main = IntReport(self.bits & 0x7FFF, hops[-1].metadata(self.bits & 0x7FFF))
        return self._packet(hops[-1].node_id, main, self.inner(header, stack), sequence)

    def hop_by_hop(self, hops: Sequence[Hop], *, max_hops: int = 8, payload: bytes = b"payload") -> list[bytes]:
        """Return every hop's own report of one packet, in travelling order."""
        reports = []
        for index, hop in enumerate(hops):
            last = index == len(hops) - 1
            remaining = max_hops - 1 - index
            header = IntMd(
                int_metadata.baseline_words(self.bits),
                remaining + last,  # the sink reports the header as it came
                self.bits,
                domain_id=0x4D52,
                domain_instructions=self._domain()[1],
                domain_flags=0x8000,
            )
            status = 0x8000 | (0x4000 if last else 0) | remaining
            main = IntReport(self.bits & 0x7FFF, hop.metadata(self.bits & 0x7FFF), 0x4D52, 0, status)
            reports.append(self._packet(hop.node_id, main, self.inner(header, self._source_word(), payload), None))
        return reports


def long_way(start_ns: int = 0, queued_ns: int = 0, queue: int = 0, tx_bytes: int = 0) -> list[Hop]:
    """Return a packet's hops over s1, s2, s3; it waits `queued_ns` at s2. A link costs 5 us, a hop 2 us."""
    at_s2 = start_ns + 2 * MICRO + 5 * MICRO
    at_s3 = at_s2 + 2 * MICRO + queued_ns + 5 * MICRO
    return [
        Hop(11, start_ns, start_ns + 2 * MICRO, 1, 2),
        Hop(12, at_s2, at_s2 + 2 * MICRO + queued_ns, 1, 2, queue, tx_bytes),
        Hop(13, at_s3, at_s3 + 2 * MICRO, 1, 2),
    ]


def short_way(start_ns: int = 0) -> list[Hop]:
    """Return a packet's hops over s1 and s3."""
    return [
        Hop(11, start_ns, start_ns + 2 * MICRO, 1, 3),
        Hop(13, start_ns + 7 * MICRO, start_ns + 9 * MICRO, 3, 2),
    ]
