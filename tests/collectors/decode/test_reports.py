"""Report payloads to measured packets: every mode, hop order, damage."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.decode import reports as decode
from collectors.decode.reports import DecodedReport
from dataplane.errors import WireError
from dataplane.wire import report
from dataplane.wire.int_md import IntMd, encode_stack
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.marking import Marking
from dataplane.wire.report import Report, ReportPacket
from dataplane.wire.report_group import ReportGroup
from dataplane.wire.report_individual import InnerType, ReportType
from dataplane.wire.report_int import IntReport
from dataplane.wire.report_tlv import Tlv, TlvType
from tests.collectors.reports import Hop, Reporter, long_way, short_way


def read(payload: bytes) -> DecodedReport:
    return decode.decode(payload, Marking())


@pytest.mark.parametrize(("src", "dst"), [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")])
@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_a_stacked_report_has_its_hops_in_travelling_order(src: str, dst: str, count: int) -> None:
    reporter = Reporter(src, dst)
    hops = [Hop(100 + i, 1000 * i, 1000 * i + 500, 1, 2, queue=i) for i in range(count)]
    decoded = read(reporter.stacked(hops))
    assert decoded.group == ReportGroup(0, 0, 100 + count - 1)
    (packet,) = decoded.packets
    assert packet.flow == reporter.flow
    assert [hop.node_id for hop in packet.hops] == [hop.node_id for hop in hops]
    assert [hop.metadata.queue_occupancy for hop in packet.hops] == list(range(count))
    assert [hop.metadata.ingress_timestamp for hop in packet.hops] == [hop.arrived_ns for hop in hops]
    assert packet.last_hop
    assert packet.remaining_hops is None


def test_a_hop_by_hop_report_has_one_hop_and_what_remains() -> None:
    packets = [read(payload).packets[0] for payload in Reporter().hop_by_hop(long_way(), max_hops=5)]
    assert [packet.hops[0].node_id for packet in packets] == [11, 12, 13]
    assert [packet.remaining_hops for packet in packets] == [4, 3, 2]
    assert [packet.last_hop for packet in packets] == [False, False, True]


def test_packet_id_is_equal_at_every_hop_and_unique_per_packet() -> None:
    reporter = Reporter()
    first = [read(payload).packets[0].packet_id for payload in reporter.hop_by_hop(long_way(), payload=b"number 1")]
    two = [read(payload).packets[0].packet_id for payload in reporter.hop_by_hop(long_way(), payload=b"number 2")]
    assert len(set(first)) == len(set(two)) == 1
    assert first[0] != two[0]


def test_a_sink_that_pushed_its_own_hop_is_not_counted_twice() -> None:
    reporter = Reporter(bits=0x8000)
    header = IntMd(1, 5, 0x8000)
    stack = encode_stack(header, (HopMetadata(node_id=13), HopMetadata(node_id=12), HopMetadata(node_id=11)))
    inner = reporter.inner(header, stack)
    for main in (None, IntReport(0, HopMetadata())):
        kind = ReportType.INNER_ONLY if main is None else ReportType.INT
        payload = ReportPacket(ReportGroup(0, 0, 13), (Report(kind, InnerType.IPV4, main, inner),)).encode()
        assert [hop.node_id for hop in read(payload).packets[0].hops] == [11, 12, 13]


def test_a_sink_with_nothing_but_its_node_id_is_a_hop() -> None:
    reporter = Reporter(bits=0x8000)
    assert [hop.node_id for hop in read(reporter.stacked(long_way())).packets[0].hops] == [11, 12, 13]


def test_exceeded_hops_are_said_to_be_missing() -> None:
    reporter = Reporter()
    assert read(reporter.stacked(long_way(), exceeded=True)).packets[0].missing_hops
    assert not read(reporter.stacked(long_way())).packets[0].missing_hops


def test_a_group_of_reports_and_a_report_without_packet() -> None:
    reporter = Reporter()
    individual = report.decode(reporter.stacked(long_way())).reports[0]
    other = report.decode(reporter.stacked(short_way())).reports[0]
    nameless = Report(ReportType.INT, InnerType.NONE, IntReport(0, HopMetadata()), b"")
    ioam = Report(ReportType.IOAM, InnerType.IPV4, None, bytes(8))
    domain = Report(ReportType.INT, InnerType.DOMAIN, IntReport(0, HopMetadata()), bytes(4))
    decoded = read(ReportPacket(ReportGroup(0, 7, 13), (individual, nameless, other, ioam, domain)).encode())
    assert [len(packet.hops) for packet in decoded.packets] == [3, 2]
    assert decoded.skipped == 3


def test_a_packet_in_a_tlv_or_behind_ethernet_is_found() -> None:
    individual = report.decode(Reporter().stacked(long_way())).reports[0]
    tlvs = Tlv(TlvType.DOMAIN, b"1234").encode() + Tlv(TlvType.IPV4, individual.inner).encode()
    in_tlv = replace(individual, inner_type=InnerType.TLV, inner=tlvs)
    framed = bytes(12) + b"\x08\x00" + individual.inner + b"\0\0"
    in_frame = replace(individual, inner_type=InnerType.ETHERNET, inner=framed)
    expected = read(ReportPacket(ReportGroup(0, 0, 13), (individual,)).encode())
    for variant in (in_tlv, in_frame):
        assert read(ReportPacket(ReportGroup(0, 0, 13), (variant,)).encode()) == expected


def test_what_a_hop_lacks_is_none() -> None:
    individual = report.decode(Reporter().stacked(long_way())).reports[0]
    assert individual.main is not None
    words = individual.main.encode()
    blank = individual.encode().replace(words[8:], b"\xff" * (len(words) - 8))
    last = read(ReportGroup(0, 0, 13).encode() + blank).packets[0].hops[-1]
    assert last.metadata == HopMetadata()
    assert last.node_id == 13


@pytest.mark.parametrize("payload", [Reporter().stacked(long_way()), Reporter().hop_by_hop(long_way())[1]])
def test_every_truncation_is_a_wire_error(payload: bytes) -> None:
    for size in range(len(payload)):
        with pytest.raises(WireError):
            read(payload[:size])


@given(at=st.integers(0, 200), flip=st.integers(1, 255), cut=st.integers(0, 40), junk=st.binary(max_size=20))
def test_damage_decodes_or_raises_wire_error(at: int, flip: int, cut: int, junk: bytes) -> None:
    payload = bytearray(Reporter().stacked(long_way()))
    payload[at % len(payload)] ^= flip
    try:
        decoded = read(bytes(payload[: len(payload) - cut]) + junk)
    except WireError:
        return
    assert len(decoded.packets) + decoded.skipped + len(decoded.drops) + decoded.reserved >= 1
