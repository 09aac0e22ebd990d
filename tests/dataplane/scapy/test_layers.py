"""Scapy layers against golden packets and our codecs: dissected, built, mangled; the .uts campaign, too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.config import conf
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from dataplane.errors import WireError
from dataplane.scapy.int_telemetry import INSTRUCTIONS, INTMD, INTMX, INTHop, INTShim, metadata_words
from dataplane.scapy.telemetry_report import REPORT_PORT, IndividualReport, TelemetryReport
from dataplane.wire import int_metadata, report
from dataplane.wire.inner import decode_ipv4
from dataplane.wire.int_md import IntMd, encode_stack
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_mx import IntMx
from dataplane.wire.marking import Marking
from dataplane.wire.packet import link_header
from dataplane.wire.report import Report, ReportPacket
from dataplane.wire.report_group import ReportGroup
from dataplane.wire.report_individual import InnerType, ReportType
from dataplane.wire.report_int import IntReport
from dataplane.wire.udp import Udp
from tests.dataplane.wire.golden_frames import FRAMES
from tests.dataplane.wire.golden_reports import REPORTS
from tests.waiting import HANG_S

CAMPAIGN = Path(__file__).with_name("int_telemetry.uts")


@pytest.fixture(autouse=True)
def default_marks() -> Iterator[None]:
    """Restore the marking of INT packets, and Scapy's treatment of malformed ones."""
    marks, debug = dict(conf.contribs["INT"]), conf.debug_dissector
    yield
    conf.contribs["INT"] = marks
    conf.debug_dissector = debug


def mark(marking: Marking) -> None:
    conf.contribs["INT"] = {
        "dscp": marking.dscp,
        "dscp_mask": marking.dscp_mask,
        "dport": marking.udp_port,
        "marker": marking.probe_marker,
    }


def dissect(packet: bytes) -> Packet:
    return IPv6(packet) if packet[0] >> 4 == 6 else IP(packet)


def layers(packet: Packet) -> list[str]:
    return [layer.__name__ for layer in packet.layers()]


BEHIND = {
    "MD_TCP": ["IP", "TCP", "INTShim", "INTMD", "Raw"],
    "MD_TCP_OPTIONS_V6": ["IPv6", "TCP", "INTShim", "INTMD", "Raw"],
    "MD_UDP_PORT": ["IP", "UDP", "INTShim", "INTMD", "Raw"],
    "MD_NEW_UDP": ["IP", "UDP", "INTShim", "INTMD", "TCP", "Raw"],
    "MX_TCP": ["IP", "TCP", "INTShim", "INTMX", "Raw"],
    "MX_UDP_PORT": ["IPv6", "UDP", "INTShim", "INTMX", "Raw"],
    "MX_NEW_UDP_SOURCE_INSERTED": ["IP", "UDP", "INTShim", "INTMX", "TCP", "Raw"],
    "MX_NEW_IP_UDP": ["IP", "UDP", "INTShim", "INTMX", "IP"],  # and AH, where Scapy has its layer loaded
    "MD_PROBE_MARKER": ["IP", "UDP", "INTMarker", "INTShim", "INTMD", "Raw"],
    "MD_GRE": ["IP", "GRE", "INTShimGRE", "INTMD", "IP", "UDP", "Raw"],
    "MX_GRE_BRIDGED": ["IP", "GRE", "INTShimGRE", "INTMX", "Ether", "IP", "UDP", "Raw"],
    "MD_VXLAN_GPE": ["IP", "UDP", "VXLAN", "INTShimVXLAN", "INTMD", "Ether", "IP", "UDP", "Raw"],
    "MX_VXLAN": ["IPv6", "UDP", "VXLAN", "INTShimVXLAN", "INTMX", "Ether", "IP", "UDP", "Raw"],
    "MD_GENEVE": ["IP", "UDP", "GENEVE", "Ether", "IP", "UDP", "Raw"],
    "MX_GENEVE": ["IP", "UDP", "GENEVE", "Ether", "IP", "UDP", "Raw"],
    "MD_ALL_INSTRUCTIONS": ["IP", "UDP", "INTShim", "INTMD", "Raw"],
    "XD_UDP": ["IP", "UDP", "Raw"],
    "HOP_BY_HOP": ["IP", "UDP", "INTShim", "INTMD", "Raw"],
}


@pytest.mark.parametrize("name", FRAMES)
def test_golden_frames_dissect_fully_and_rebuild_exactly(name: str) -> None:
    conf.debug_dissector = True
    mark(FRAMES[name].marking)
    packet = dissect(FRAMES[name].packet)
    assert layers(packet)[: len(BEHIND[name])] == BEHIND[name]
    packet.clear_cache()
    assert bytes(packet) == FRAMES[name].packet


@pytest.mark.parametrize("name", ["MD_GENEVE", "MX_GENEVE"])
def test_a_geneve_option_holds_the_int_header(name: str) -> None:
    header = dissect(FRAMES[name].packet)["GENEVE"].options[0].header
    assert isinstance(header, INTMD if name == "MD_GENEVE" else INTMX)
    assert [hop.node_id for hop in getattr(header, "stack", [])] == ([3, 2, 1] if name == "MD_GENEVE" else [])


@pytest.mark.parametrize("name", REPORTS)
def test_golden_reports_are_dissected_and_built_again(name: str) -> None:
    conf.debug_dissector = True
    mark(REPORTS[name].marking)
    dissected = TelemetryReport(REPORTS[name].payload)
    expected = report.decode(REPORTS[name].payload)
    assert (dissected.hw_id, dissected.sequence, dissected.node_id) == (
        expected.group.hw_id,
        expected.group.sequence,
        expected.group.node_id,
    )
    assert len(dissected.reports) == len(expected.reports)
    for theirs, ours in zip(dissected.reports, expected.reports, strict=True):
        assert (ours.dropped, ours.congested, ours.tracked, ours.intermediate) == (
            theirs.D,
            theirs.Q,
            theirs.F,
            theirs.I,
        )
        assert ours.main is not None
        assert (theirs.drop_reason, theirs.ingress_interface) == (
            ours.main.metadata.drop_reason,
            ours.main.metadata.ingress_interface,
        )
        assert bytes(theirs.data) == ours.inner
    dissected.clear_cache()
    assert bytes(dissected) == REPORTS[name].payload


WORD, HALF, LONG = st.integers(0, 2**32 - 2), st.integers(0, 2**16 - 2), st.integers(0, 2**64 - 2)
HOPS = st.builds(
    HopMetadata,
    node_id=WORD,
    ingress_interface=HALF,
    egress_interface=HALF,
    hop_latency=st.none() | WORD,
    queue_id=st.integers(0, 254),
    queue_occupancy=st.integers(0, 2**24 - 2),
    ingress_timestamp=LONG,
    egress_timestamp=st.none() | LONG,
    level2_ingress_interface=WORD,
    level2_egress_interface=WORD,
    tx_utilisation=WORD,
    buffer_id=st.integers(0, 254),
    buffer_occupancy=st.integers(0, 2**24 - 2),
    reserved=st.tuples(*[st.none() | WORD] * 6),
    checksum_complement=st.none() | WORD,
    drop_queue_id=st.integers(0, 254),
    drop_reason=st.integers(0, 254),
)
SPELLED = {"tx_utilization": "tx_utilisation"}
ASKED_BY = {
    "node_id": 0x8000,
    "ingress_interface": 0x4000,
    "egress_interface": 0x4000,
    "hop_latency": 0x2000,
    "queue_id": 0x1000,
    "queue_occupancy": 0x1000,
    "ingress_timestamp": 0x0800,
    "egress_timestamp": 0x0400,
    "level2_ingress_interface": 0x0200,
    "level2_egress_interface": 0x0200,
    "tx_utilization": 0x0100,
    "buffer_id": 0x0080,
    "buffer_occupancy": 0x0080,
}


def requested_fields(bits: int, hop: HopMetadata, *, in_report: bool = False) -> dict[str, Any]:
    """Return the Scapy fields that a bitmap asks for; fields that the hop lacks keep their defaults."""
    asked_for = {name: getattr(hop, SPELLED.get(name, name)) for name, bit in ASKED_BY.items() if bits & bit}
    asked_for |= {f"reserved{9 + index}": hop.reserved[index] for index in range(6) if bits & 0x40 >> index}
    if bits & 1 and in_report:
        asked_for |= {"drop_queue_id": hop.drop_queue_id, "drop_reason": hop.drop_reason}
    elif bits & 1:
        asked_for["checksum_complement"] = hop.checksum_complement
    return {name: value for name, value in asked_for.items() if value is not None}


def trimmed(bits: int, hop: HopMetadata) -> HopMetadata:
    """Return a hop with only the reserved words that a bitmap asks for."""
    return replace(hop, reserved=tuple(word for index, word in enumerate(hop.reserved) if bits & 0x40 >> index))


@settings(max_examples=60)
@given(bits=st.integers(1, 0xFFFF), hops=st.lists(HOPS, max_size=3), remaining=st.integers(0, 255))
def test_md_headers_match_our_codec_both_ways(bits: int, hops: list[HopMetadata], remaining: int) -> None:
    header = IntMd(int_metadata.baseline_words(bits), remaining, bits)
    ours = header.encode() + encode_stack(header, tuple(trimmed(bits, hop) for hop in hops))
    stack = [INTHop(**requested_fields(bits, hop)) for hop in hops]
    crafted = INTShim() / INTMD(remaining_hops=remaining, instructions=bits, stack=stack) / Raw(b"payload")
    assert bytes(crafted)[4:] == ours + b"payload"
    dissected = INTShim(bytes(crafted))[INTMD]
    assert [asked_of(hop, bits) for hop in dissected.stack] == [asked_of(hop, bits) for hop in stack]
    assert bytes(dissected.payload) == b"payload"


def asked_of(hop: Packet, bits: int) -> dict[str, int]:
    return {name: hop.getfieldval(name) for name, bit in ASKED_BY.items() if bits & bit}


@settings(max_examples=60)
@given(bits=st.integers(0, 0xFFFF), hop=HOPS, domain=st.integers(0, 2), flags=st.integers(0, 15))
def test_reports_are_built_as_our_codec_has_them(bits: int, hop: HopMetadata, domain: int, flags: int) -> None:
    words = b"\xab\xcd\xef\x01" * domain
    inner = FRAMES["MD_TCP"].packet[:72]
    trimmed_hop = trimmed(bits, hop)
    main = IntReport(bits, replace(trimmed_hop, domain=words), 1, 2, 3)
    on = [bool(flags & bit) for bit in (8, 4, 2, 1)]
    ours = ReportPacket(ReportGroup(5, 6, 7), (Report(ReportType.INT, InnerType.IPV4, main, inner, *on),)).encode()
    flag_fields: dict[str, Any] = dict(zip("DQFI", map(int, on), strict=True))
    individual = IndividualReport(
        metadata_bits=bits,
        domain_id=1,
        domain_bits=2,
        domain_status=3,
        domain=words,
        data=IP(inner),
        **flag_fields,
        **requested_fields(bits, hop, in_report=True),
    )
    assert bytes(TelemetryReport(hw_id=5, sequence=6, node_id=7, reports=[individual])) == ours
    assert TelemetryReport(ours).reports[0].domain == words


def test_a_crafted_packet_is_read_by_the_codecs() -> None:
    hops = [INTHop(node_id=2, hop_latency=900), INTHop(node_id=1, hop_latency=800)]
    header = INTMD(remaining_hops=6, instructions="node_id+hop_latency", stack=hops)
    packet = IP(src="10.0.0.1", dst="10.0.0.2", tos=0x5C) / TCP(sport=5, dport=6) / INTShim(dscp=3) / header / Raw(b"x")
    decoded = decode_ipv4(bytes(packet), Marking())
    assert decoded.hops == (HopMetadata(node_id=2, hop_latency=900), HopMetadata(node_id=1, hop_latency=800))
    mx = INTMX(instructions="node_id", domain_id=9, domain_instructions=0x8000, source_inserted=b"1234", D=1)
    packet = IP(tos=0x5C) / UDP(sport=4000, dport=6001) / INTShim() / mx
    assert decode_ipv4(bytes(packet), Marking()).int_mx == IntMx(0x8000, 9, 0x8000, 0, b"1234", discard=True)


def test_the_tables_are_the_codecs() -> None:
    assert all(metadata_words(bits) == int_metadata.baseline_words(bits) for bits in range(1 << 16))
    assert len(INSTRUCTIONS) == 16


@pytest.mark.parametrize("name", [*FRAMES, *REPORTS])
def test_mangled_packets_dissect_and_rebuild_to_their_bytes(name: str) -> None:
    golden = FRAMES.get(name)
    data = golden.packet if golden else REPORTS[name].payload
    mark(golden.marking if golden else REPORTS[name].marking)
    version = data[0] >> 4
    outer = link_header(1, 2, version) if golden else Udp(4000, REPORT_PORT, 8 + len(data)).encode()
    for at in range(len(data)):
        for mangled in (data[:at], data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]):
            dissected = (Ether if golden else UDP)(outer + mangled)
            assert bytes(dissected) == outer + mangled


def test_what_our_codec_reads_the_layers_read_alike() -> None:
    """Mangled reports that still decode have the same individual reports in Scapy."""
    data = REPORTS["group"].payload
    for at in range(8, len(data)):
        mangled = data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :]
        try:
            ours = report.decode(mangled)
        except WireError:
            continue
        reports = TelemetryReport(mangled).reports
        assert [(individual.D, individual.Q, individual.F, individual.I) for individual in reports] == [
            (individual.dropped, individual.congested, individual.tracked, individual.intermediate)
            for individual in ours.reports
        ]


def test_the_campaign_passes_in_scapys_runner() -> None:
    command = [sys.executable, "-m", "scapy.tools.UTscapy", "-t", str(CAMPAIGN), "-f", "text"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "failed" not in done.stdout
    assert done.stdout.count("[passed]") >= 11
