"""Traces of IOAM and IFA in packets, read as INT's stacks are."""

from __future__ import annotations

import pytest

from collectors.decode import reports
from collectors.values import RecordKind
from dataplane.errors import WireError
from dataplane.wire.inner import InnerPacket, decode_ipv4, decode_ipv6
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.ioam import TimestampFormat
from dataplane.wire.ipv4 import PROTOCOL_TCP, PROTOCOL_UDP
from dataplane.wire.marking import Marking
from dataplane.wire.report import Report, ReportPacket
from dataplane.wire.report_group import ReportGroup
from dataplane.wire.report_individual import InnerType, ReportType
from tests.dataplane.wire.golden_traces import IFA_TCP, IFA_UDP, PLACES, PORTS, STAMPED, WITH_ROOM

IOAM = Marking(ioam_namespace=7)
IFA = Marking(ifa_protocol=253)
SECOND_NS, FIRST_NS = 1_796_065_030_563_307_000, 1_796_065_030_563_284_000


def _places(packet: InnerPacket) -> list[tuple[int | None, int | None, int | None]]:
    return [(hop.node_id, hop.level2_ingress_interface, hop.level2_egress_interface) for hop in packet.hops]


@pytest.mark.parametrize("frame", [WITH_ROOM, PORTS, STAMPED], ids=["room", "ports", "stamped"])
def test_routers_of_linux_are_hops_newest_first(frame: bytes) -> None:
    packet = decode_ipv6(frame, IOAM)
    assert (packet.protocol, packet.src_port, packet.dst_port) == (PROTOCOL_UDP, 4000, 5000)
    assert (_places(packet), packet.cut_trace) == ([(2, 12, 22), (1, 11, 21)], False)
    assert packet.ip_bytes == 40 + 13  # without the options


def test_times_of_linux_are_those_of_arrival() -> None:
    hops = decode_ipv6(STAMPED, IOAM).hops
    assert [(hop.ingress_timestamp, hop.hop_latency) for hop in hops] == [(SECOND_NS, None), (FIRST_NS, None)]


@pytest.mark.parametrize(
    ("stamps", "time_ns"),
    [
        (TimestampFormat.POSIX, 3_000_000_000 * 10**9 + 2**31 * 1000),
        (TimestampFormat.PTP, 3_000_000_000 * 10**9 + 2**31),
        (TimestampFormat.NTP, (3_000_000_000 - 2_208_988_800) * 10**9 + 500_000_000),
    ],
)
def test_a_namespace_has_its_format_of_times(stamps: TimestampFormat, time_ns: int) -> None:
    frame = STAMPED.replace(bytes.fromhex("6b0dc7060008986b"), (3_000_000_000 << 32 | 1 << 31).to_bytes(8, "big"))
    hops = decode_ipv6(frame, Marking(ioam_namespace=7, ioam_timestamps=stamps)).hops
    assert hops[0].ingress_timestamp == time_ns


@pytest.mark.parametrize("marking", [Marking(), Marking(ioam_namespace=8)], ids=["none", "another"])
def test_traces_of_no_trusted_namespace_are_not_read(marking: Marking) -> None:
    packet = decode_ipv6(PORTS, marking)
    assert (packet.hops, packet.dst_port) == ((), 5000)


def test_transit_delay_is_the_hop_latency() -> None:
    delays = STAMPED.replace(bytes.fromhex("ffffffff"), bytes.fromhex("00000abc"), 1)
    overflowed = STAMPED.replace(bytes.fromhex("ffffffff"), bytes.fromhex("80000abc"), 1)
    assert [decode_ipv6(frame, IOAM).hops[0].hop_latency for frame in (delays, overflowed)] == [0xABC, None]


def test_nodes_without_room_are_missing() -> None:
    assert decode_ipv6(PORTS.replace(bytes.fromhex("00071802"), bytes.fromhex("00071c02")), IOAM).cut_trace


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("00071802", "00072000", "node length 4 is not the 3 words"),
        ("00071802", "0007187f", "free words reach beyond"),
        ("00071802", "00071803", "needs 12 bytes"),
        ("312a0000", "31ff0000", "reach beyond the header"),
    ],
)
def test_malformed_traces_are_refused(old: str, new: str, problem: str) -> None:
    assert bytes.fromhex(old) in PORTS
    with pytest.raises(WireError, match=problem):
        decode_ipv6(PORTS.replace(bytes.fromhex(old), bytes.fromhex(new)), IOAM)


@pytest.mark.parametrize(("frame", "protocol"), [(IFA_UDP, PROTOCOL_UDP), (IFA_TCP, PROTOCOL_TCP)])
def test_hops_of_ifa_are_those_of_the_stack(frame: bytes, protocol: int) -> None:
    packet = decode_ipv4(frame, IFA)
    assert (packet.protocol, packet.src_port, packet.dst_port) == (protocol, 4000, 5000)
    assert packet.hops == (
        HopMetadata(node_id=2, ingress_interface=1, egress_interface=3, hop_latency=2500, queue_id=5),
        HopMetadata(node_id=1, ingress_interface=4, egress_interface=2, hop_latency=900, queue_id=0),
    )
    assert packet.ip_bytes == len(frame) - 4 - 4 - 64


@pytest.mark.parametrize(
    ("change", "hops", "is_cut"),
    [(b"\x2f\x11\x10", 2, True), (b"\x2f\x11\x08", 0, False), (b"\x3f\x11\x00", 0, False), (b"\x2f\x3a\x00", 0, False)],
    ids=["fragment", "tail stamps", "version", "no TCP or UDP"],
)
def test_other_forms_of_ifa_have_no_hops_or_say_so(change: bytes, hops: int, is_cut: bool) -> None:
    at = IFA_UDP.index(b"\x2f\x11\x00")
    packet = decode_ipv4(IFA_UDP[:at] + change + IFA_UDP[at + 3 :], IFA)
    assert (len(packet.hops), packet.cut_trace) == (hops, is_cut)


@pytest.mark.parametrize(("length", "problem"), [(9, "a stack of 36 bytes"), (200, "needs 800 bytes")])
def test_malformed_stacks_of_ifa_are_refused(length: int, problem: str) -> None:
    at = IFA_UDP.index(PLACES) - 1
    with pytest.raises(WireError, match=problem):
        decode_ipv4(IFA_UDP[:at] + bytes([length]) + IFA_UDP[at + 1 :], IFA)


@pytest.mark.parametrize(
    ("inner_type", "frame", "marking"),
    [(InnerType.IPV6, STAMPED, IOAM), (InnerType.IPV4, IFA_UDP, IFA)],
    ids=["ioam", "ifa"],
)
def test_a_report_of_such_a_packet_is_of_its_stack(inner_type: InnerType, frame: bytes, marking: Marking) -> None:
    report = Report(ReportType.INNER_ONLY, inner_type, None, frame + bytes(-len(frame) % 4), tracked=True)
    payload = ReportPacket(ReportGroup(hw_id=0, sequence=0, node_id=2), (report,)).encode()
    (packet,) = reports.decode(payload, marking).packets
    assert (packet.kind, packet.last_hop, packet.missing_hops) == (RecordKind.STACK, True, False)
    assert [hop.node_id for hop in packet.hops] == [1, 2]
