"""An attacker's datagrams: forged and damaged ones of every kind that any part of a fabric accepts.

The attacker knows everything but secrets: addresses, ports, topology, numbers of jobs and items, names of content. It
cannot know nonces, cookies and tags, so it guesses them. Aimed datagrams are those that once did harm; random ones are
genuine in form, with a few bytes changed, cut or added.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address
from itertools import cycle

from dataplane.store import layout
from dataplane.store.names import digest
from dataplane.switch.hellos import frames as hellos
from dataplane.topology.addressing import gateway_mac, switch_ipv4
from dataplane.topology.values import Topology
from dataplane.wire import aggregation, store
from dataplane.wire.aggregation import Aggregation, Operation
from dataplane.wire.bfd import Bfd, State
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.int_md import IntMd, encode_stack
from dataplane.wire.int_metadata import HopMetadata, baseline_words
from dataplane.wire.int_shim import IntShim, IntType
from dataplane.wire.packet import udp_frame
from dataplane.wire.report import Report, ReportPacket
from dataplane.wire.report_group import ReportGroup
from dataplane.wire.report_individual import InnerType, ReportType
from dataplane.wire.report_int import IntReport
from dataplane.wire.store import Message
from tests.collectors.reports import ALL, Hop, Reporter

Address = IPv4Address | IPv6Address
MS = 1_000_000
S = 1000 * MS
FAR_VERSION = 2**31 - 1
LONGEST_MS = 2**32 - 1
INT_DSCP = 0x17
_DROP_BITS = 0x4801
_TALL_STACKS = ((0x8000, 249), (0x8C00, 49))
"""Instructions, and of how many hops a stack then fills all that its shim can say."""
_WORKERS = slice(10, 12)
"""Worker field of an aggregation header."""


class Kind(StrEnum):
    """Apparent kind of a datagram."""

    REPORT = "report"
    INT = "INT"
    DATA = "DATA"
    PUT = "PUT"
    RESULT = "result"
    REFUSAL = "refusal"
    HELLO = "hello"


@dataclass(frozen=True, slots=True)
class Datagram:
    """A UDP datagram, or with `frame` a whole frame; `src` is the claimed source."""

    kind: Kind
    what: str
    src: Address
    dst: Address
    ports: tuple[int, int]
    payload: bytes
    dscp: int = 0
    frame: bytes | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The attacker's knowledge of a fabric and its workloads."""

    topology: Topology
    attacker: str
    producer: str
    reader: str
    worker: str
    worker_port: int
    job: int
    name: str

    def ipv4(self, host: str) -> IPv4Address:
        """Return a host's address."""
        return self.topology.host[host].ipv4

    def switches(self) -> list[int]:
        """Return the switches' node ids."""
        return [node.node_id for node in self.topology.switches]


class Attacker:
    """Draws datagrams, aimed and random in turn; `now_ns` is the time that its stamps are around."""

    def __init__(self, target: Target, now_ns: Callable[[], int], seed: int = 1) -> None:
        self.target, self.item = target, 0
        """Target item among those that workers add up."""
        self._now_ns, self._chance = now_ns, random.Random(seed)
        self._reporter = Reporter(src=str(target.ipv4(target.reader)), dst=str(target.ipv4(target.worker)))

    def datagrams(self, count: int) -> Iterator[Datagram]:
        """Yield `count` datagrams: all kinds in turn, of each an aimed one, then the same with damage."""
        aimed = {
            kind: cycle(self._chance.sample(candidates := list(self.aimed(kind)), len(candidates))) for kind in Kind
        }
        for number in range(count):
            datagram = next(aimed[list(Kind)[number % len(Kind)]])
            yield datagram if number // len(Kind) % 2 else self._damaged(datagram)

    def aimed(self, kind: Kind) -> Iterator[Datagram]:
        """Yield each attack of a kind that did harm once, under each address that it may claim."""
        return {
            Kind.REPORT: self._reports,
            Kind.INT: self._int_packets,
            Kind.DATA: self._data,
            Kind.PUT: self._puts,
            Kind.RESULT: self._results,
            Kind.REFUSAL: self._refusals,
            Kind.HELLO: self._hellos,
        }[kind]()

    # reports

    def _reports(self) -> Iterator[Datagram]:
        topology, sources = self.target.topology, self._claimed(self.target.producer)
        assert topology.collector is not None
        collector, switches = topology.host[topology.collector.host], [*map(switch_ipv4, self.target.switches())]
        ways: list[tuple[Address, Address]] = [(src, collector.ipv4) for src in (*sources, *switches)]
        own = topology.host[self.target.attacker].ipv6
        if own is not None and collector.ipv6 is not None:
            ways += [(own, collector.ipv6), (_mapped(switches[0]), collector.ipv6)]
        for what, payload in self.report_payloads():
            for src, dst in ways:
                ports = (self._chance.randrange(1024, 65536), topology.collector.udp_port)
                yield Datagram(Kind.REPORT, f"{what}, IPv{src.version}", src, dst, ports, payload)

    def report_payloads(self) -> Iterator[tuple[str, bytes]]:
        """Yield forged reports of each switch, as a collector gets them, with their kind of attack."""
        for node in self.target.topology.switches:
            ports = sorted(self.target.topology.neighbours[node.name])
            yield from self._payloads_of(node.node_id, ports[0], ports[-1])
        yield "an unknown switch", self._reporter.stacked([Hop(0x7777, 0, 2_000, 1, 2)], sequence=1)

    def _payloads_of(self, node_id: int, came: int, left: int) -> Iterator[tuple[str, bytes]]:
        now_ns = self._now_ns()

        def hops(at_ns: int, count: int = 1) -> list[Hop]:
            return [Hop(node_id, at_ns, at_ns + 2_000, came, left, 90)] * count

        for ahead in (1, 1024, 65_537, 2**21 - 1, 2**22 - 1):
            yield f"number {ahead} ahead", self._reporter.stacked(hops(now_ns), sequence=ahead)
        for ahead_ms in (-3600_000, -3100, 260, 2900, 3_600_000, 2**42):
            at_ns = (now_ns + ahead_ms * MS) % 2**63
            yield f"stamp {ahead_ms} ms ahead", self._reporter.stacked(hops(at_ns), sequence=7)
        for bits, count in _TALL_STACKS:
            narrow = replace(self._reporter, bits=bits, sequences={})
            yield f"stack of {count + 1} hops", narrow.stacked(hops(now_ns + 2900 * MS, count + 1), sequence=3)
        yield "losses, 44 KB of them", self._losses(node_id, came, left, 44_000)
        yield "losses in one frame", self._losses(node_id, came, left, 1_300)
        yield "a congested queue", self._reporter.congested(hops(now_ns)[0])

    def _losses(self, node_id: int, came: int, left: int, size: int) -> bytes:
        metadata = HopMetadata(
            ingress_interface=came,
            egress_interface=left,
            ingress_timestamp=self._now_ns(),
            drop_queue_id=0,
            drop_reason=DropReason.QUEUE_FULL,
        )
        inner = self._reporter.plain()
        report = Report(
            ReportType.INT, InnerType.IPV4, IntReport(_DROP_BITS, metadata), inner, True, False, True, False
        )
        return ReportPacket(ReportGroup(0, 9, node_id), (report,) * (size // len(report.encode()))).encode()

    # packets with INT

    def _int_packets(self) -> Iterator[Datagram]:
        for src in self._claimed(self.target.reader):
            for node_id in self.target.switches():
                for hops in (1, 3, 40):
                    yield self._with_int(src, node_id, hops)

    def _with_int(self, src: IPv4Address, node_id: int, hops: int) -> Datagram:
        header = IntMd(baseline_words(ALL), 8, ALL)
        now_ns = self._now_ns()
        hop = Hop(node_id, now_ns, now_ns + 2_900 * MS, 1, 2, 90).metadata(ALL)
        stack = encode_stack(header, (hop,) * hops)
        shim = IntShim(IntType.MD, min((12 + len(stack)) // 4, 255))
        payload = shim.encode() + header.encode() + stack + b"payload"
        dst = self.target.ipv4(self.target.worker)
        return Datagram(Kind.INT, f"{hops} forged hops", src, dst, (5000, 6001), payload, INT_DSCP)

    # named content

    def _data(self) -> Iterator[Datagram]:
        (content,) = layout.in_place(b"a forged value")
        reader, name = self.target.ipv4(self.target.reader), digest(self.target.name)
        for src in self._claimed(self.target.producer):
            for kind in (store.Kind.DATA, store.Kind.PUT_ACK, store.Kind.NACK):
                for version in (1, 2, 3, 70_000, FAR_VERSION, 2**32 - 1):
                    message = Message(
                        kind, name, 0, version, LONGEST_MS, content, len(content) // 256, tag=self._chance.randrange(64)
                    )
                    what = f"{kind.name} of version {version}"
                    for dst in (reader, self.target.ipv4(self.target.producer), self.target.ipv4(self.target.attacker)):
                        yield Datagram(Kind.DATA, what, src, dst, (store.UDP_PORT, 30_000), message.encode())

    def _puts(self) -> Iterator[Datagram]:
        producer = self.target.ipv4(self.target.producer)
        whole = layout.in_place(b"a forged value")[0]
        for src in self._claimed(self.target.reader):
            for what, message in (
                ("PUT of a value", Message(store.Kind.PUT, digest(self.target.name), content=whole)),
                ("PUT of no value", Message(store.Kind.PUT, digest(self.target.name), content=bytes(1024))),
                ("PUT of a block", Message(store.Kind.PUT, self._chance.getrandbits(128), 3, content=bytes(1024))),
                ("PUT of a version", Message(store.Kind.PUT, digest(self.target.name), 0, 9, content=whole)),
            ):
                yield Datagram(Kind.PUT, what, src, producer, (31_000, store.UDP_PORT), message.encode())

    # sums

    def _results(self) -> Iterator[Datagram]:
        worker = self.target.ipv4(self.target.worker)
        aggregators = [switch_ipv4(node_id) for node_id in self.target.switches()]
        for workers in (0, 1, 3, 65_535):
            for operation in Operation:
                for item in (self.item, self.item + 1, self.item + 2**31):
                    values = b"\x3f" * 1024
                    forged = Aggregation(
                        aggregation.Kind.RESULT, self.target.job, item % 2**32, 1, 1, operation, values
                    )
                    for src in (*aggregators, self.target.ipv4(self.target.attacker)):
                        yield self._to_worker(Kind.RESULT, f"result of {workers} workers", src, forged, workers)
                    mine = replace(forged, kind=aggregation.Kind.CONTRIBUTION)
                    for src in (worker, self.target.ipv4(self.target.attacker)):
                        for dst in aggregators:
                            ports = (self.target.worker_port, aggregation.UDP_PORT)
                            yield Datagram(Kind.RESULT, "a contribution", src, dst, ports, mine.encode())

    def _refusals(self) -> Iterator[Datagram]:
        for src in map(switch_ipv4, self.target.switches()):
            for kind in (aggregation.Kind.REFUSED, aggregation.Kind.AGAIN):
                for epoch in (0, 2, 40_000):
                    for reason in aggregation.Reason:
                        forged = Aggregation(kind, self.target.job, self.item, epoch, reason=reason)
                        yield self._to_worker(Kind.REFUSAL, f"{kind.name} in epoch {epoch}", src, forged)

    def _to_worker(
        self, kind: Kind, what: str, src: IPv4Address, packet: Aggregation, workers: int | None = None
    ) -> Datagram:
        payload, dst = bytearray(packet.encode()), self.target.ipv4(self.target.worker)
        if workers is not None:
            payload[_WORKERS] = workers.to_bytes(2, "big")
        return Datagram(kind, what, src, dst, (aggregation.UDP_PORT, self.target.worker_port), bytes(payload))

    # hellos

    def _hellos(self) -> Iterator[Datagram]:
        own = self.target.ipv4(self.target.attacker)
        for node_id in self.target.switches():
            for port in (1, 2, 3):
                for state in State:
                    yours = 0 if state in (State.ADMIN_DOWN, State.DOWN) else hellos.discriminator(node_id, port)
                    hello = Bfd(state, 3, hellos.discriminator(node_id, port), yours, 10_000, 10_000)
                    frame = hellos.encode(node_id, port, hello)
                    what = f"hello, {state.name.lower()}"
                    yield Datagram(Kind.HELLO, what, own, own, (0, 0), frame[hellos.PACKET_OFFSET :], frame=frame)

    # damage

    def _claimed(self, host: str) -> Sequence[IPv4Address]:
        """Return the addresses that a datagram may come from: another's, and its own."""
        return self.target.ipv4(host), self.target.ipv4(self.target.attacker)

    def _damaged(self, datagram: Datagram) -> Datagram:
        data, chance = bytearray(datagram.frame or datagram.payload), self._chance
        for _ in range(chance.randint(1, 6)):
            at = chance.randrange(len(data)) if data else 0
            match chance.randrange(4):
                case 0:
                    del data[at:]
                case 1:
                    data[at:at] = chance.randbytes(chance.randrange(9))
                case _ if data:
                    data[at] ^= 1 << chance.randrange(8)
        changed = bytes(data)
        return replace(
            datagram,
            what=f"damaged {datagram.what}",
            payload=changed,
            frame=None if datagram.frame is None else changed,
        )


def _mapped(address: IPv4Address) -> IPv6Address:
    """Return an IPv4 address in IPv6 (RFC 4291, 2.5.5.2)."""
    return IPv6Address(0xFFFF << 32 | int(address))


def frame_of(target: Target, datagram: Datagram) -> bytes:
    """Return the attacker's frame around a datagram, from its own device; sums and names have no UDP checksum."""
    frame = udp_frame(
        src_mac=target.topology.host[target.attacker].mac,
        dst_mac=gateway_mac(target.topology, target.attacker),
        src=datagram.src,
        dst=datagram.dst,
        src_port=datagram.ports[0],
        dst_port=datagram.ports[1],
        payload=datagram.payload,
        dscp=datagram.dscp,
    )
    return frame if datagram.kind in (Kind.REPORT, Kind.INT) else frame[:40] + b"\0\0" + frame[42:]
