"""Telemetry Report v2.0: the specification's four examples, truncations, round trips, fuzz."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import WireError
from dataplane.wire import inner, report, report_group, report_individual, report_int, report_tlv
from dataplane.wire.inner import InnerPacket
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_shim import IntShim, IntType
from dataplane.wire.marking import Marking
from dataplane.wire.report import Report, ReportPacket
from dataplane.wire.report_group import ReportGroup
from dataplane.wire.report_individual import IndividualHeader, InnerType, ReportType
from dataplane.wire.report_int import IntReport
from dataplane.wire.report_tlv import Tlv, TlvType

INT_TBD = 0x5678
BY_PORT = Marking(dscp=None, udp_port=INT_TBD)

# Assembled by hand from the drawings in section 4 of the specification.
GROUP = "21412345 0000002a"
TCP = "1f900050 01020304 05060708 50120000 00000000"
IPV4_TCP = "45000028 00004000 40066ccd 0a000001 0a000002"
IPV4_UDP = "4500004c 00004000 40116c9e 0a000001 0a000002"

EXAMPLE_1 = GROUP + "140e0220 50000000 00000000 00030007 02000100" + IPV4_TCP + TCP
EXAMPLE_2 = (
    # The text's "MD Length = 2" forgets the drawing's domain metadata, which section 3.3 counts in.
    GROUP + "11120320 50000001 80000005 00030007 02000100 dddddddd"
    + "00010009 eeeeeeee"
    + "200a0000" + IPV4_TCP + TCP
)  # fmt: skip
INT_MD = "20000206 90000000 00000000 00000002 05000011 00000001 00000003"
EXAMPLE_3 = GROUP + "14170120 10000000 00000000 06000022" + IPV4_UDP + "abcd5678 00380000 18070006" + INT_MD + TCP
OUTER = "45000084 00004000 40115f99 c0a80101 c0a80202"
STACK_3 = "00000003 00030004 00000002 00030004 00000001 00030004"
VXLAN = "08000000 00006400" + "020000000002 020000000001 0800"
EXAMPLE_4 = (
    GROUP + "04210020" + OUTER + "ddd55678 00700000" + "140912b5" + "20000205 c0000000 00000000"
    + STACK_3 + VXLAN + "45000028 00004000 40066ccd 0a0a0101 0a0a0202" + TCP + "0000"
)  # fmt: skip
GROUP_VALUE = ReportGroup(hw_id=5, sequence=0x12345, node_id=42)


def decoded(text: str) -> Report:
    packet = report.decode(bytes.fromhex(text))
    assert packet.group == GROUP_VALUE
    assert packet.encode() == bytes.fromhex(text)
    assert len(packet.reports) == 1
    return packet.reports[0]


def test_example_1_has_baseline_metadata_and_a_truncated_packet() -> None:
    individual = decoded(EXAMPLE_1)
    assert individual == Report(
        ReportType.INT,
        InnerType.IPV4,
        IntReport(0x5000, HopMetadata(ingress_interface=3, egress_interface=7, queue_id=2, queue_occupancy=256)),
        bytes.fromhex(IPV4_TCP + TCP),
        tracked=True,
    )
    assert inner.decode_ipv4(individual.inner, Marking()) == InnerPacket(
        IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 6, 8080, 80, packet_id=0x01020304 << 16, ip_bytes=0x28
    )


def test_example_2_has_domain_metadata_and_tlvs() -> None:
    individual = decoded(EXAMPLE_2)
    assert individual.main is not None
    assert (individual.main.domain_id, individual.main.domain_bits, individual.main.domain_status) == (1, 0x8000, 5)
    assert individual.main.metadata.domain.hex() == "dddddddd"
    assert report_tlv.decode_all(individual.inner) == (
        Tlv(TlvType.DOMAIN, bytes.fromhex("eeeeeeee"), template=9),
        Tlv(TlvType.IPV4, bytes.fromhex(IPV4_TCP + TCP)),
    )


def test_example_3_has_int_md_behind_a_new_udp_header_before_tcp() -> None:
    individual = decoded(EXAMPLE_3)
    assert individual.main == IntReport(0x1000, HopMetadata(queue_id=6, queue_occupancy=0x22))
    inner_packet = inner.decode_ipv4(individual.inner, BY_PORT)
    assert (inner_packet.protocol, inner_packet.src_port, inner_packet.dst_port) == (6, 8080, 80)
    assert inner_packet.int_md is not None
    assert inner_packet.int_md.remaining_hops == 6
    assert inner_packet.hops == (
        HopMetadata(node_id=2, queue_id=5, queue_occupancy=0x11),
        HopMetadata(node_id=1, queue_id=0, queue_occupancy=3),
    )


def test_example_4_has_all_hops_and_the_original_port() -> None:
    individual = decoded(EXAMPLE_4)
    assert individual.main is None
    assert individual.report_type is ReportType.INNER_ONLY
    inner_packet = inner.decode_ipv4(individual.inner, BY_PORT)
    assert (inner_packet.protocol, inner_packet.src_port, inner_packet.dst_port) == (17, 56789, 4789)
    assert [hop.node_id for hop in inner_packet.hops] == [3, 2, 1]
    assert {(hop.ingress_interface, hop.egress_interface) for hop in inner_packet.hops} == {(3, 4)}


@pytest.mark.parametrize("text", [EXAMPLE_1, EXAMPLE_2, EXAMPLE_3, EXAMPLE_4])
def test_every_truncation_of_a_report_is_a_wire_error(text: str) -> None:
    data = bytes.fromhex(text)
    for size in range(len(data)):
        with pytest.raises(WireError):
            report.decode(data[:size])


@pytest.mark.parametrize("text", [EXAMPLE_1, EXAMPLE_3])
def test_every_truncation_of_the_packet_within_is_a_wire_error(text: str) -> None:
    packet = decoded(text).inner
    for size in range(len(packet)):
        with pytest.raises(WireError):
            inner.decode_ipv4(packet[:size], BY_PORT)


def test_a_group_holds_several_reports() -> None:
    data = bytes.fromhex(EXAMPLE_1) + bytes.fromhex(EXAMPLE_3)[8:]
    packet = report.decode(data)
    assert [individual.inner_type for individual in packet.reports] == [InnerType.IPV4, InnerType.IPV4]
    assert packet.encode() == data
    assert report.decode(b"\xee" * 8 + data, 8) == packet


@pytest.mark.parametrize("types", [0x30, 0x06, 0xFF])
@pytest.mark.parametrize("words", [0, 3, 200])
def test_reports_of_reserved_types_are_passed_over(types: int, words: int) -> None:
    whole = bytes.fromhex(EXAMPLE_3)
    original = report.decode(whole)
    odd = bytes((types, words, 7, 0xFF)) + bytes(4 * words)
    for wanted, data in ((original.reports, whole[:8] + odd + whole[8:]), ((), whole[:8] + odd)):
        decoded = report.decode(data)
        assert (decoded.reports, decoded.reserved) == (wanted, 1)
    to_the_end = whole[:8] + bytes((types, 0xFF, 0, 0)) + whole[8:]
    assert report.decode(to_the_end) == ReportPacket(original.group, (), 1)


def test_a_report_of_255_words_or_more_runs_to_the_end() -> None:
    long = Report(ReportType.INNER_ONLY, InnerType.DOMAIN, None, bytes(1021))
    packet = ReportPacket(GROUP_VALUE, (long,))
    data = packet.encode()
    assert data[9] == 0xFF
    assert report.decode(data) == packet
    with pytest.raises(WireError, match="runs to the end"):
        ReportPacket(GROUP_VALUE, (long, long)).encode()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("11412345 0000002a 140e0220", "report group at byte 0: version is 1, not 2"),
        ("21412345 0000002a", "report at byte 8: needs 4 bytes, 0 left"),
        ("21412345 0000002a 300100", "report at byte 8: needs 4 bytes, 3 left"),
        ("21412345 0000002a 30010000 123456", "report at byte 12: needs 4 bytes, 3 left"),
        ("21412345 0000002a 14020120 50000000 00000000", "INT metadata at byte 20: needs 4 bytes, 0 left"),
        ("21412345 0000002a 10030120 50000000 00000000 00000000", "INT metadata at byte 20: 4 bytes a hop are not"),
    ],
)
def test_what_breaks_the_rules_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        report.decode(bytes.fromhex(text))


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(WireError, match="no report"):
        ReportPacket(GROUP_VALUE, ()).encode()
    with pytest.raises(WireError, match="whole words"):
        Report(ReportType.INNER_ONLY, InnerType.DOMAIN, None, b"abc").encode()
    with pytest.raises(WireError, match="main contents"):
        Report(ReportType.INT, InnerType.NONE, None, b"").encode()
    with pytest.raises(WireError, match="sequence"):
        ReportGroup(0, 1 << 22, 0).encode()
    with pytest.raises(WireError, match="whole words"):
        Tlv(TlvType.IPV4, b"abc").encode()
    with pytest.raises(WireError, match="length_words"):
        IndividualHeader(ReportType.INT, InnerType.NONE, 256, 0).encode()
    with pytest.raises(WireError, match="domain_id"):
        IntReport(0, HopMetadata(), domain_id=1 << 16).encode()


def test_flags_and_sequence_have_their_bits() -> None:
    assert ReportGroup(0x3F, (1 << 22) - 1, 1).encode().hex() == "2fffffff00000001"
    assert report_group.decode(bytes.fromhex("2fffffff00000001")) == ReportGroup(63, 4194303, 1)
    for flags, name in ((0x80, "dropped"), (0x40, "congested"), (0x20, "tracked"), (0x10, "intermediate")):
        header = report_individual.decode(bytes((0x25, 0, 0, flags | 0x0F)))
        assert isinstance(header, IndividualHeader)
        assert header.report_type is ReportType.IOAM
        assert getattr(header, name)
        assert header.encode() == bytes((0x25, 0, 0, flags))


def test_int_main_contents_stand_alone() -> None:
    data = bytes.fromhex("60000000 00000000 00030007 000003e8")
    value = IntReport(0x6000, HopMetadata(ingress_interface=3, egress_interface=7, hop_latency=1000))
    assert report_int.decode(data, 0, 2) == value
    assert value.encode() == data
    assert value.size == 16


@given(st.binary(max_size=120))
def test_any_bytes_decode_or_raise_wire_error(junk: bytes) -> None:
    for head in (b"", bytes.fromhex(GROUP), bytes.fromhex(GROUP + "14ff0220 50000000 00000000")):
        try:
            packet = report.decode(head + junk)
        except WireError:
            continue
        assert packet.reports or packet.reserved


@given(junk=st.binary(max_size=40), at=st.integers(0, 91), flip=st.integers(1, 255))
def test_a_damaged_report_decodes_or_raises_wire_error(junk: bytes, at: int, flip: int) -> None:
    data = bytearray(bytes.fromhex(EXAMPLE_3) + junk)
    data[at] ^= flip
    try:
        for individual in report.decode(bytes(data)).reports:
            for decode in (inner.decode_ipv4, inner.decode_ipv6, inner.decode_ethernet):
                decode(individual.inner, BY_PORT)
            report_tlv.decode_all(individual.inner)
    except WireError:
        return


def test_the_dscp_marks_int_and_the_shim_keeps_the_original_one() -> None:
    marked = (
        "455c0030 00004000 40110000 0a000001 0a000002" + "13881771 00180000" + "10030028 20000208 90000000 00000000"
    )
    decoded = inner.decode_ipv4(bytes.fromhex(marked), Marking())
    assert decoded.shim == IntShim(IntType.MD, 3, original_dscp=0x0A)
    assert decoded.hops == ()
    unmarked = inner.decode_ipv4(bytes.fromhex(marked), Marking(dscp=0x18))
    assert (unmarked.shim, unmarked.dst_port) == (None, 6001)


def test_ipv6_extensions_are_walked_and_fragments_lack_ports() -> None:
    addresses = IPv6Address("2001:db8::1").packed + IPv6Address("2001:db8::2").packed
    options = bytes.fromhex("1101010401000000 0000000000000000")  # next: UDP, 16 bytes
    udp = bytes.fromhex("1388177100080000")
    packet = bytes.fromhex("65c00000 00200040") + addresses
    packet = packet[:6] + b"\x3c" + packet[7:] + options + udp + bytes.fromhex("1003 0000 20000008 80000000 00000000")
    decoded = inner.decode_ipv6(packet, Marking())
    assert (str(decoded.src), decoded.protocol, decoded.src_port, decoded.dst_port) == ("2001:db8::1", 17, 5000, 6001)
    assert decoded.int_md is not None
    fragment = packet[:6] + b"\x2c" + packet[7:40] + bytes.fromhex("11000008 00000001") + udp
    assert inner.decode_ipv6(fragment, Marking()).src_port == 0
    for size in range(40, 56):
        with pytest.raises(WireError):
            inner.decode_ipv6(packet[:size], Marking())


def test_an_ethernet_packet_may_have_a_vlan_tag_and_must_be_ip() -> None:
    frame = bytes(12) + bytes.fromhex("8100 000a 0800" + IPV4_TCP + TCP)
    assert inner.decode_ethernet(frame, Marking()).src_port == 8080
    with pytest.raises(WireError, match="EtherType 0x0806 is not IP"):
        inner.decode_ethernet(bytes(12) + bytes.fromhex("0806") + bytes(40), Marking())


def test_other_protocols_have_no_ports() -> None:
    icmp = bytes.fromhex("45000054 12344000 40010000 0a000001 0a000002")
    decoded = inner.decode_ipv4(icmp, Marking())
    assert (decoded.protocol, decoded.src_port, decoded.dst_port, decoded.packet_id) == (1, 0, 0, 0x1234 << 48)
