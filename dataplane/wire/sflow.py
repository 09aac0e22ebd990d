"""sFlow version 5 datagrams (sflow.org, "sFlow Version 5", 2004; XDR, RFC 4506): counters, sampled and dropped packets.

Datagram: Version32 (5) | AgentAddressType32 AgentAddress | SubAgent32 Sequence32 Uptime32 (ms) | samples. A sample or a
record within one is Format32 (enterprise 20 bits, format 12) Length32 and its data, so that unknown ones are skipped.

| format | sample | |
| --- | --- | --- |
| 1, 3 | flow sample, plain and expanded | a packet, one in `rate` |
| 2, 4 | counter sample, plain and expanded | counters of an interface |
| 5 | discarded packet (sflow.org, "sFlow Dropped Packet Notification Structures", 2020) | a packet, and why it went |
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import IpAddress, fit, need

HEADER: Final = "sflow"
UDP_PORT: Final = 6343
VERSION: Final = 5

FLOW_SAMPLE, COUNTER_SAMPLE, EXPANDED_FLOW_SAMPLE, EXPANDED_COUNTER_SAMPLE, DISCARDED_PACKET = range(1, 6)
SAMPLED_HEADER: Final = 1
EXTENDED_EGRESS_QUEUE: Final = 1036
EXTENDED_TRANSIT: Final = 1039
EXTENDED_QUEUE: Final = 1040
INTERFACE_COUNTERS: Final = 1
ETHERNET: Final = 1
"""Protocol of a sampled header that begins with Ethernet; 11 and 12 are IPv4 and IPv6."""
IPV4: Final = 11
IPV6: Final = 12

_WORD: Final = struct.Struct("!I")
_DATAGRAM: Final = struct.Struct("!IIII")
_FLOW: Final = struct.Struct("!IIIIIIII")
_EXPANDED_FLOW: Final = struct.Struct("!IIIIIIIIIII")
_COUNTERS: Final = struct.Struct("!III")
_EXPANDED_COUNTERS: Final = struct.Struct("!IIII")
_DISCARD: Final = struct.Struct("!IIIIIIII")
_PACKET: Final = struct.Struct("!IIII")
_ABOUT: Final = struct.Struct("!IIQII")
_COUNTED: Final = struct.Struct("!QIIIIII")
_NO_INTERFACE: Final = 0
_INTERNAL: Final = 0x3FFF_FFFF
"""The device itself."""
_ABSENT: Final = 0xFFFF_FFFF
_ADMIN_UP, _OPERATIONAL = 1, 2
_ETHERNET_TYPE: Final = 6
_FULL_DUPLEX: Final = 1


@dataclass(frozen=True, slots=True)
class SampledPacket:
    """The beginning of a packet: `protocol` of its outermost header, and its length on the wire in bytes.

    `stripped` bytes had been removed from it, such as the frame check sequence.
    """

    protocol: int
    frame_bytes: int
    stripped: int
    header: bytes


@dataclass(frozen=True, slots=True)
class PacketSample:
    """One packet of about `rate`; interfaces are ifIndex, None where there is none or more than one.

    `transit_ns` is the packet's time in the device, `queue_bytes` what was queued before it.
    """

    sequence: int
    rate: int
    input: int | None
    output: int | None
    packet: SampledPacket | None = None
    transit_ns: int | None = None
    queue_id: int | None = None
    queue_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class InterfaceCounters:
    """Counters of an interface since it came up; octets have 64 bits and packets 32, all wrap."""

    interface: int
    speed_bps: int
    is_up: bool
    in_octets: int
    in_packets: int
    in_discards: int
    in_errors: int
    out_octets: int
    out_packets: int
    out_discards: int
    out_errors: int


@dataclass(frozen=True, slots=True)
class CounterSample:
    """Counters of an interface at the datagram's uptime."""

    sequence: int
    counters: InterfaceCounters


@dataclass(frozen=True, slots=True)
class DiscardedPacket:
    """A packet that was dropped; `reason` is the document's number, `unreported` counts notices left out before it."""

    sequence: int
    unreported: int
    input: int | None
    output: int | None
    reason: int
    packet: SampledPacket | None = None


Sample = PacketSample | CounterSample | DiscardedPacket


@dataclass(frozen=True, slots=True)
class Datagram:
    """A datagram of an agent; `uptime_ms` wraps after 49 days, `skipped` counts samples of no known format."""

    agent: IpAddress | None
    sub_agent: int
    sequence: int
    uptime_ms: int
    samples: tuple[Sample, ...]
    skipped: int = 0


def decode(data: bytes) -> Datagram:
    """Return a datagram; raise WireError if it is malformed or of another version."""
    reader = _Reader(data)
    if (version := reader.word()) != VERSION:
        raise WireError(HEADER, f"version {version} is not {VERSION}")
    agent = reader.address()
    sub_agent, sequence, uptime_ms, count = reader.take(_DATAGRAM)
    samples: list[Sample] = []
    skipped = 0
    for _ in range(reader.count(count)):
        sample = _sample(*reader.record())
        if sample is None:
            skipped += 1
        else:
            samples.append(sample)
    return Datagram(agent, sub_agent, sequence, uptime_ms, tuple(samples), skipped)


def encode(datagram: Datagram) -> bytes:
    """Return a datagram's bytes, in expanded formats; raise WireError for a value that does not fit."""
    agent = datagram.agent
    address = _words(0) if agent is None else _words(1 if agent.version == 4 else 2) + agent.packed
    head = _words(datagram.sub_agent, datagram.sequence, datagram.uptime_ms, len(datagram.samples))
    return _words(VERSION) + address + head + b"".join(map(_encoded, datagram.samples))


class _Reader:
    """Reads numbers and records one after another."""

    def __init__(self, data: bytes, offset: int = 0, end: int | None = None) -> None:
        self._data, self._at = data, offset
        self._end = len(data) if end is None else end

    def take(self, form: struct.Struct) -> tuple[int, ...]:
        self._need(form.size)
        numbers = form.unpack_from(self._data, self._at)
        self._at += form.size
        return numbers

    def word(self) -> int:
        return self.take(_WORD)[0]

    def address(self) -> IpAddress | None:
        kind = self.word()
        if kind not in {0, 1, 2}:
            raise WireError(HEADER, f"address type {kind} is neither IPv4 (1) nor IPv6 (2)", offset=self._at - 4)
        packed = self.opaque(16 if kind == 2 else 4) if kind else b""
        if not packed:
            return None
        return IPv4Address(packed) if kind == 1 else IPv6Address(packed)

    def opaque(self, size: int) -> bytes:
        self._need(size)
        begin, self._at = self._at, self._at + size
        return self._data[begin : self._at]

    def count(self, count: int) -> int:
        """Return a number of records that this much data can hold."""
        if 8 * count > self._end - self._at:
            raise WireError(HEADER, f"{count} records do not fit {self._end - self._at} bytes", offset=self._at)
        return count

    def record(self) -> tuple[int, _Reader]:
        """Return a record's format, and a reader of its data."""
        form, size = self.word(), self.word()
        self._need(size)
        begin, self._at = self._at, self._at + size
        return form, _Reader(self._data, begin, self._at)

    def _need(self, size: int) -> None:
        if self._end - self._at < size:
            need(HEADER, self._data[: self._end], self._at, size)


def _sample(form: int, reader: _Reader) -> Sample | None:
    match form:
        case 1:  # the formats of the module's table
            sequence, _, rate, _, _, inward, outward, count = reader.take(_FLOW)
            output = None if outward >> 30 else _interface(outward)  # else dropped, or sent to several
            return _packet_sample(sequence, rate, (_interface(inward), output), _records(reader, count))
        case 3:
            sequence, _, _, rate, _, _, in_form, inward, out_form, outward, count = reader.take(_EXPANDED_FLOW)
            ends = None if in_form else _interface(inward), None if out_form else _interface(outward)
            return _packet_sample(sequence, rate, ends, _records(reader, count))
        case 2:
            sequence, _, count = reader.take(_COUNTERS)
            return _counter_sample(sequence, reader, count)
        case 4:
            sequence, _, _, count = reader.take(_EXPANDED_COUNTERS)
            return _counter_sample(sequence, reader, count)
        case 5:
            sequence, _, _, unreported, inward, outward, reason, count = reader.take(_DISCARD)
            packet = _records(reader, count).get(SAMPLED_HEADER)
            header = None if packet is None else _sampled_packet(packet)
            return DiscardedPacket(sequence, unreported, _interface(inward), _interface(outward), reason, header)
    return None


def _interface(number: int) -> int | None:
    return None if number in {_NO_INTERFACE, _INTERNAL} else number


def _records(reader: _Reader, count: int) -> dict[int, _Reader]:
    """Return the records of a sample by format; of several of one format, the first."""
    records: dict[int, _Reader] = {}
    for _ in range(reader.count(count)):
        form, record = reader.record()
        records.setdefault(form, record)
    return records


def _packet_sample(
    sequence: int, rate: int, ends: tuple[int | None, int | None], records: Mapping[int, _Reader]
) -> PacketSample:
    packet = records.get(SAMPLED_HEADER)
    transit, queue, depth = (
        None if (record := records.get(form)) is None else record.word()
        for form in (EXTENDED_TRANSIT, EXTENDED_EGRESS_QUEUE, EXTENDED_QUEUE)
    )
    sampled = None if packet is None else _sampled_packet(packet)
    return PacketSample(sequence, rate, *ends, sampled, transit, queue, depth)


def _sampled_packet(reader: _Reader) -> SampledPacket:
    protocol, frame_bytes, stripped, size = reader.take(_PACKET)
    return SampledPacket(protocol, frame_bytes, stripped, reader.opaque(size))


def _counter_sample(sequence: int, reader: _Reader, count: int) -> CounterSample | None:
    interface = _records(reader, count).get(INTERFACE_COUNTERS)
    if interface is None:
        return None
    index, _, speed_bps, _, status = interface.take(_ABOUT)
    in_octets, in_unicast, in_multicast, in_broadcast, in_discards, in_errors, _ = interface.take(_COUNTED)
    out_octets, out_unicast, out_multicast, out_broadcast, out_discards, out_errors, _ = interface.take(_COUNTED)
    counters = InterfaceCounters(
        index,
        speed_bps,
        status & (_ADMIN_UP | _OPERATIONAL) == _ADMIN_UP | _OPERATIONAL,
        in_octets,
        _sum(in_unicast, in_multicast, in_broadcast),
        _sum(in_discards),
        _sum(in_errors),
        out_octets,
        _sum(out_unicast, out_multicast, out_broadcast),
        _sum(out_discards),
        _sum(out_errors),
    )
    return CounterSample(sequence, counters)


def _sum(*counters: int) -> int:
    """Return the sum of counters of 32 bits; those that the device does not have are all ones."""
    return sum(counter for counter in counters if counter != _ABSENT) & 0xFFFF_FFFF


def _words(*numbers: int) -> bytes:
    fit(HEADER, **{f"number {place}": (number, 32) for place, number in enumerate(numbers, 1)})
    return struct.pack(f"!{len(numbers)}I", *numbers)


def _record(form: int, data: bytes) -> bytes:
    return _words(form, len(data)) + data


def _encoded(sample: Sample) -> bytes:
    match sample:
        case CounterSample(sequence, counters):
            body = _words(sequence, 0, counters.interface, 1) + _record(INTERFACE_COUNTERS, _interface_record(counters))
            return _record(EXPANDED_COUNTER_SAMPLE, body)
        case PacketSample():
            extended = (
                (EXTENDED_EGRESS_QUEUE, sample.queue_id),
                (EXTENDED_TRANSIT, sample.transit_ns),
                (EXTENDED_QUEUE, sample.queue_bytes),
            )
            records = [_record(form, _words(number)) for form, number in extended if number is not None]
            records += _packet_records(sample.packet)
            ends = _words(0, sample.input or _NO_INTERFACE, 0, sample.output or _NO_INTERFACE)
            head = _words(sample.sequence, 0, sample.input or 0, sample.rate, 0, 0) + ends + _words(len(records))
            return _record(EXPANDED_FLOW_SAMPLE, head + b"".join(records))
        case DiscardedPacket():
            records = _packet_records(sample.packet)
            ends = _words(sample.input or _NO_INTERFACE, sample.output or _NO_INTERFACE)
            head = _words(sample.sequence, 0, sample.input or 0, sample.unreported) + ends
            head += _words(sample.reason, len(records))
            return _record(DISCARDED_PACKET, head + b"".join(records))


def _packet_records(packet: SampledPacket | None) -> list[bytes]:
    if packet is None:
        return []
    head = _words(packet.protocol, packet.frame_bytes, packet.stripped, len(packet.header))
    return [_record(SAMPLED_HEADER, head + packet.header + bytes(-len(packet.header) % 4))]


def _interface_record(counters: InterfaceCounters) -> bytes:
    status = _ADMIN_UP | _OPERATIONAL if counters.is_up else _ADMIN_UP
    fit(HEADER, in_octets=(counters.in_octets, 64), out_octets=(counters.out_octets, 64))
    fit(HEADER, **{name: (getattr(counters, name), 32) for name in _IN_32_BITS}, speed_bps=(counters.speed_bps, 64))
    inward = counters.in_octets, counters.in_packets, 0, 0, counters.in_discards, counters.in_errors, 0
    outward = counters.out_octets, counters.out_packets, 0, 0, counters.out_discards, counters.out_errors, 0
    about = _ABOUT.pack(counters.interface, _ETHERNET_TYPE, counters.speed_bps, _FULL_DUPLEX, status)
    return about + _COUNTED.pack(*inward) + _COUNTED.pack(*outward)


_IN_32_BITS: Final = (
    *("interface", "in_packets", "in_discards", "in_errors"),
    *("out_packets", "out_discards", "out_errors"),
)
