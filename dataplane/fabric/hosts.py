"""Host traffic and measurements without sockets or clocks: the same code runs in virtual time and in the kernel.

A flow is a series of UDP datagrams whose payload begins with a probe (all numbers big-endian, 28 bytes):
    Magic64 'millrace' | Flow32 | Sequence64 | SentNs64, followed by zeros.
Sequences count from 0. Times are of the sender's clock, so one-way delay is meaningful only if both hosts read the same
clock (as all of ours do). Rates and throughputs count whole frames, from the Ethernet header to the payload's end.
"""

from __future__ import annotations

import random
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from math import ceil
from typing import Final

from dataplane.clock import NS_PER_S
from dataplane.errors import FabricError, WireError
from dataplane.topology.addressing import gateway_mac
from dataplane.topology.values import Topology
from dataplane.wire import ethernet, ipv4, ipv6, udp
from dataplane.wire.checksum import update
from dataplane.wire.fields import IpAddress
from dataplane.wire.packet import decode_udp_frame, udp_frame

MAGIC: Final = b"millrace"
PROBE_BYTES: Final = 28
FLOW_UDP_PORT: Final = 20000
"""Flow n uses this port plus n modulo 10000 as source and destination, so that flows differ in their 5-tuple."""
KEEP_PACKETS: Final = 1 << 18
"""Number of packets per flow that a receiver remembers; older ones leave the measurements but not the totals."""
MAX_FLOWS: Final = 1 << 16
_REMEMBERED_GAPS: Final = 4096
_MOST_GAPS: Final = 32
"""Up to this many gaps are drawn one by one: a sample is then sent when the same seed sends that packet."""
_PROBE: Final = struct.Struct("!8sIQQ")
_FLOW_PORTS: Final = 10_000


class Arrivals(StrEnum):
    """Spacing of a flow's packets: constant or exponentially distributed."""

    CONSTANT = "constant"
    POISSON = "poisson"


@dataclass(frozen=True, slots=True)
class Flow:
    """A series of UDP packets from one host to another, from `start_ns` until before `stop_ns` (None: no end)."""

    flow_id: int
    src_mac: int
    dst_mac: int
    src: IpAddress
    dst: IpAddress
    rate_bps: int
    frame_bytes: int = 1000
    src_port: int = FLOW_UDP_PORT
    dst_port: int = FLOW_UDP_PORT
    arrivals: Arrivals = Arrivals.CONSTANT
    start_ns: int = 0
    stop_ns: int | None = None
    dscp: int = 0

    def __post_init__(self) -> None:
        least = self.header_bytes + PROBE_BYTES
        if not least <= self.frame_bytes <= ethernet.SIZE + 9000:
            raise FabricError(f"flow {self.flow_id}: frames of {self.frame_bytes} bytes are not {least} to 9014")
        if self.rate_bps <= 0:
            raise FabricError(f"flow {self.flow_id}: a rate of {self.rate_bps} bit/s is not positive")
        if not 0 <= self.flow_id < 1 << 32:
            raise FabricError(f"flow {self.flow_id}: a flow's number has 32 bits")

    @property
    def header_bytes(self) -> int:
        """Ethernet, IP and UDP headers."""
        return ethernet.SIZE + (ipv4.MIN_SIZE if self.src.version == 4 else ipv6.SIZE) + udp.SIZE


def flow_between(
    topology: Topology,
    flow_id: int,
    src: str,
    dst: str,
    rate_bps: int,
    *,
    frame_bytes: int = 1000,
    arrivals: Arrivals = Arrivals.CONSTANT,
    start_ns: int = 0,
    stop_ns: int | None = None,
    dscp: int = 0,
    ip_version: int = 4,
) -> Flow:
    """Return a flow between two hosts of a topology, by way of the switch that the sender is attached to."""
    for name in (src, dst):
        if name not in topology.host:
            raise FabricError(f"{topology.name}: there is no host {name!r}")
    sender, receiver = topology.host[src], topology.host[dst]
    addresses = (sender.ipv4, receiver.ipv4) if ip_version == 4 else (sender.ipv6, receiver.ipv6)
    if addresses[0] is None or addresses[1] is None:
        raise FabricError(f"{topology.name}: {src!r} or {dst!r} has no IPv{ip_version} address")
    port = FLOW_UDP_PORT + flow_id % _FLOW_PORTS
    return Flow(
        flow_id,
        sender.mac,
        gateway_mac(topology, src),
        addresses[0],
        addresses[1],
        rate_bps,
        frame_bytes=frame_bytes,
        src_port=port,
        dst_port=port,
        arrivals=arrivals,
        start_ns=start_ns,
        stop_ns=stop_ns,
        dscp=dscp,
    )


@dataclass(frozen=True, slots=True)
class Probe:
    """Header that each packet of a flow carries in its payload."""

    flow_id: int
    sequence: int
    sent_ns: int

    def encode(self) -> bytes:
        """Return the probe's 28 bytes."""
        return _PROBE.pack(MAGIC, self.flow_id, self.sequence, self.sent_ns)


def decode_probe(payload: bytes) -> Probe | None:
    """Return the probe at the start of a UDP payload, or None if there is none."""
    if len(payload) < PROBE_BYTES or not payload.startswith(MAGIC):
        return None
    _, flow_id, sequence, sent_ns = _PROBE.unpack_from(payload)
    return Probe(flow_id, sequence, sent_ns)


def find_probe(frame: bytes) -> Probe | None:
    """Find the probe anywhere in a frame: after an INT stack, the payload does not start where UDP says."""
    start = frame.find(MAGIC)
    return None if start < 0 else decode_probe(frame[start:])


class Sender:
    """Makes the packets of one flow; `rng` draws the gaps of Poisson arrivals.

    The caller sends `frame(now_ns)` (or `payload`, through a UDP socket) whenever `next_send_ns()` is reached. A late
    caller sends several at once to keep the rate, or skips packets (`skip`). With `sample_every` it makes one packet
    in this many, at the time that it has among the others; sequence numbers count only those made.
    """

    def __init__(self, flow: Flow, rng: random.Random, *, sample_every: int = 1) -> None:
        self.flow = flow
        self.sample_every = sample_every
        self.sent_frames = 0
        self.skipped_frames = 0
        self._rng = rng
        self._frame_bits = flow.frame_bytes * 8
        self._padding = bytes(flow.frame_bytes - flow.header_bytes - PROBE_BYTES)
        self._headers: bytes | None = None
        # Flows that start together do not sample the same packet of each.
        self._before = 0 if sample_every == 1 else rng.randrange(sample_every)
        self._next_ns: int = flow.start_ns
        if flow.arrivals is Arrivals.POISSON:
            self._next_ns += self._gaps_ns(self._before + 1)
        else:
            self._next_ns += self._before * self._frame_bits * NS_PER_S // flow.rate_bps

    def next_send_ns(self) -> int | None:
        """Return when the next packet is due, or None after the flow's end."""
        stop_ns = self.flow.stop_ns
        return None if stop_ns is not None and self._next_ns >= stop_ns else self._next_ns

    def payload(self, now_ns: int) -> bytes:
        """Return the next packet's UDP payload, stamped with the current time."""
        probe = Probe(self.flow.flow_id, self.sent_frames, now_ns)
        self.sent_frames += 1
        self._advance()
        return probe.encode() + self._padding

    def skip(self) -> None:
        """Skip the next packet; it gets no sequence number, because no network lost it."""
        self.skipped_frames += 1
        self._advance()

    def frame(self, now_ns: int) -> bytes:
        """Return the next packet as an Ethernet frame, stamped with the current time."""
        payload = self.payload(now_ns)
        if self._headers is None:
            self._headers = self._make_headers(len(payload))
        # Everything but the checksum is the same in all packets of a flow.
        headers = self._headers
        checksum = update(int.from_bytes(headers[-2:], "big"), b"", payload) or 0xFFFF
        return b"".join((headers[:-2], checksum.to_bytes(2, "big"), payload))

    def _advance(self) -> None:
        """Move on to the next packet."""
        if self.flow.arrivals is Arrivals.POISSON:
            self._next_ns += self._gaps_ns(self.sample_every)
            return
        # Compute from the start, not from the last packet, so that rounding errors do not accumulate.
        packets = self._before + (self.sent_frames + self.skipped_frames) * self.sample_every
        self._next_ns = self.flow.start_ns + packets * self._frame_bits * NS_PER_S // self.flow.rate_bps

    def _make_headers(self, payload_bytes: int) -> bytes:
        """Return the headers of a packet with an all-zero payload, ending with the UDP checksum."""
        flow = self.flow
        frame = udp_frame(
            src_mac=flow.src_mac,
            dst_mac=flow.dst_mac,
            src=flow.src,
            dst=flow.dst,
            src_port=flow.src_port,
            dst_port=flow.dst_port,
            payload=bytes(payload_bytes),
            dscp=flow.dscp,
        )
        return frame[: flow.header_bytes]

    def _gaps_ns(self, count: int) -> int:
        """Draw the time of so many gaps."""
        packets_per_s = self.flow.rate_bps / self._frame_bits
        if count > _MOST_GAPS:
            return round(self._rng.gammavariate(count, 1 / packets_per_s) * NS_PER_S)
        return sum(round(self._rng.expovariate(packets_per_s) * NS_PER_S) for _ in range(count))


@dataclass(frozen=True, slots=True)
class FlowMeasurement:
    """Measurements of a flow at a receiver in [start_ns, end_ns); delays are None when nothing arrived.

    `missing` counts sequence numbers that were skipped, `late` those that arrived after a higher one (reordered, RFC
    4737 section 3; each was counted missing before), `duplicates` those that arrived again.
    """

    flow_id: int
    start_ns: int
    end_ns: int
    packets: int
    bytes: int
    missing: int
    late: int
    duplicates: int
    delay_mean_ns: float | None
    delay_p50_ns: int | None
    delay_p99_ns: int | None
    delay_max_ns: int | None

    @property
    def throughput_bps(self) -> float:
        """Received bits per second over the measured interval."""
        return self.bytes * 8 * NS_PER_S / (self.end_ns - self.start_ns)

    @property
    def lost(self) -> int:
        """Packets that were missing and have not arrived since."""
        return max(0, self.missing - self.late)

    @property
    def loss(self) -> float:
        """Lost packets as a share of all expected packets, 0 to 1."""
        due = self.packets - self.duplicates + self.lost
        return self.lost / due if due else 0.0


@dataclass(slots=True)
class _Received:
    """Packets of one flow, oldest first: arrival times, delays, sizes, and changes to the sequence counts."""

    arrived_ns: array[int] = field(default_factory=lambda: array("q"))
    delay_ns: array[int] = field(default_factory=lambda: array("q"))
    size: array[int] = field(default_factory=lambda: array("L"))
    missing: array[int] = field(default_factory=lambda: array("Q"))
    late: array[int] = field(default_factory=lambda: array("B"))
    duplicate: array[int] = field(default_factory=lambda: array("B"))
    expected: int = 0
    gaps: dict[int, None] = field(default_factory=dict)
    total: int = 0

    def add(self, probe: Probe, size: int, now_ns: int) -> None:
        missing = late = duplicate = 0
        if probe.sequence >= self.expected:
            missing = probe.sequence - self.expected
            self._remember_gap(probe.sequence)
            self.expected = probe.sequence + 1
        elif probe.sequence in self.gaps:
            del self.gaps[probe.sequence]
            late = 1
        else:
            duplicate = 1
        self.total += 1
        for column, value in (
            (self.arrived_ns, now_ns),
            (self.delay_ns, max(-(1 << 63), now_ns - probe.sent_ns)),
            (self.size, size),
            (self.missing, missing),
            (self.late, late),
            (self.duplicate, duplicate),
        ):
            column.append(value)
            if len(column) > KEEP_PACKETS:
                del column[: KEEP_PACKETS // 2]

    def _remember_gap(self, sequence: int) -> None:
        for number in range(max(self.expected, sequence - _REMEMBERED_GAPS), sequence):
            self.gaps[number] = None
        while len(self.gaps) > _REMEMBERED_GAPS:
            del self.gaps[next(iter(self.gaps))]


class Receiver:
    """Measures the flows that arrive at one host; calls must come in time order.

    `malformed` counts frames that violate a header's rules, `corrupt` those with a wrong UDP checksum, `unmeasured`
    packets of more than `MAX_FLOWS` flows. Other frames are not the receiver's.
    """

    def __init__(self) -> None:
        self.unmeasured = 0
        self.malformed = 0
        self.corrupt = 0
        self._flows: dict[int, _Received] = {}

    def receive(self, frame: bytes, now_ns: int) -> Probe | None:
        """Process a frame from the network; return its probe, or None if it carries none or is not measured."""
        try:
            datagram = decode_udp_frame(frame)
        except WireError:
            self.malformed += 1
            return None
        if datagram is not None and not datagram.checksum_ok:
            self.corrupt += 1
            return None
        return self.receive_payload(b"" if datagram is None else datagram.payload, len(frame), now_ns)

    def receive_payload(self, payload: bytes, frame_bytes: int, now_ns: int) -> Probe | None:
        """Process the payload of a UDP socket, given the size of the frame that carried it; see `receive`."""
        probe = decode_probe(payload)
        if probe is None:
            return None
        if probe.flow_id not in self._flows and len(self._flows) >= MAX_FLOWS:
            self.unmeasured += 1
            return None
        self._flows.setdefault(probe.flow_id, _Received()).add(probe, frame_bytes, now_ns)
        return probe

    @property
    def flow_ids(self) -> tuple[int, ...]:
        """The flows seen so far, in order of first arrival."""
        return tuple(self._flows)

    def received_frames(self, flow_id: int) -> int:
        """Return the number of packets of a flow received since the start, duplicates included."""
        received = self._flows.get(flow_id)
        return 0 if received is None else received.total

    def longest_gap_ns(self, flow_id: int, start_ns: int, end_ns: int) -> int:
        """Return the longest interval in [start_ns, end_ns) in which nothing of a flow arrived."""
        arrived = self._flows.get(flow_id, _Received()).arrived_ns
        part = arrived[bisect_left(arrived, start_ns) : bisect_left(arrived, end_ns)]
        return max(after - before for before, after in pairwise((start_ns, *part, end_ns)))

    def measure(self, flow_id: int, start_ns: int, end_ns: int) -> FlowMeasurement:
        """Measure a flow in [start_ns, end_ns); a flow that was never seen measures as no packets."""
        if end_ns <= start_ns:
            raise FabricError(f"nothing can be measured from {start_ns} ns to {end_ns} ns")
        seen = self._flows.get(flow_id, _Received())
        part = slice(bisect_left(seen.arrived_ns, start_ns), bisect_left(seen.arrived_ns, end_ns))
        delays = sorted(seen.delay_ns[part])
        return FlowMeasurement(
            flow_id,
            start_ns,
            end_ns,
            packets=len(delays),
            bytes=sum(seen.size[part]),
            missing=sum(seen.missing[part]),
            late=sum(seen.late[part]),
            duplicates=sum(seen.duplicate[part]),
            delay_mean_ns=sum(delays) / len(delays) if delays else None,
            delay_p50_ns=_nearest_rank(delays, 0.50),
            delay_p99_ns=_nearest_rank(delays, 0.99),
            delay_max_ns=delays[-1] if delays else None,
        )

    def windows(self, flow_id: int, start_ns: int, end_ns: int, window_ns: int) -> Iterator[FlowMeasurement]:
        """Yield `measure` for each whole window from `start_ns` that ends by `end_ns`."""
        for begin_ns in range(start_ns, end_ns - window_ns + 1, window_ns):
            yield self.measure(flow_id, begin_ns, begin_ns + window_ns)


def _nearest_rank(ordered: Sequence[int], share: float) -> int | None:
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else None
