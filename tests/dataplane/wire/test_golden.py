"""Golden packets and reports against the codecs: values both ways, recomputed checksums, truncation, mangling."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address

import pytest

from collectors.decode import reports as collector_decode
from collectors.values import RecordKind
from dataplane.errors import WireError
from dataplane.wire import ipv4, ipv6, report, tcp, udp
from dataplane.wire.checksum import internet_checksum
from dataplane.wire.checksum_complement import holds
from dataplane.wire.fields import IpAddress
from dataplane.wire.geneve import GeneveOption
from dataplane.wire.inner import InnerPacket, decode_ipv4, decode_ipv6
from dataplane.wire.int_md import encode_stack
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.int_mx import IntMx
from dataplane.wire.int_shim import IntShim, IntType, NextProtocol
from dataplane.wire.int_shim_gre import ETHER_BRIDGED, GreShim
from dataplane.wire.int_shim_vxlan_gpe import VxlanGpeShim
from dataplane.wire.ipv4 import PROTOCOL_TCP, PROTOCOL_UDP
from tests.dataplane.wire import golden_frames
from tests.dataplane.wire.golden_frames import FRAMES, Golden
from tests.dataplane.wire.golden_reports import REPORTS

HOP1 = HopMetadata(node_id=1, queue_id=0, queue_occupancy=3)
HOP2 = HopMetadata(node_id=2, queue_id=5, queue_occupancy=0x11)
HOP3 = HopMetadata(node_id=3, queue_id=0, queue_occupancy=0)
PLAIN_MX = IntMx(0x9000)

HOSTS, TUNNEL, HOSTS_V6 = ("10.0.0.1", "10.0.0.2"), ("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")
TO_APP = (5000, 6001)

# Name: addresses, protocol, ports, hops, MX header, shim.
EXPECTED: dict[str, tuple[tuple[str, str], int, tuple[int, int], tuple[HopMetadata, ...], IntMx | None, object]] = {
    "MD_TCP": (HOSTS, 6, TO_APP, (HOP2, HOP1), None, IntShim(IntType.MD, 7, original_dscp=0x0A)),
    "MD_TCP_OPTIONS_V6": (HOSTS_V6, 6, TO_APP, (HOP1,), None, IntShim(IntType.MD, 5, original_dscp=2)),
    "MD_UDP_PORT": (
        HOSTS,
        17,
        TO_APP,
        (HOP2, HOP1),
        None,
        IntShim(IntType.MD, 7, NextProtocol.UDP_PAYLOAD, original_udp_port=6001),
    ),
    "MD_NEW_UDP": (
        HOSTS,
        6,
        TO_APP,
        (HOP2, HOP1),
        None,
        IntShim(IntType.MD, 7, NextProtocol.NEW_UDP, original_protocol=6),
    ),
    "MX_TCP": (HOSTS, 6, TO_APP, (), PLAIN_MX, IntShim(IntType.MX, 3, original_dscp=0x0A)),
    "MX_UDP_PORT": (
        HOSTS_V6,
        17,
        TO_APP,
        (),
        IntMx(0x9000, discard=True),
        IntShim(IntType.MX, 3, NextProtocol.UDP_PAYLOAD, original_udp_port=6001),
    ),
    "MX_NEW_UDP_SOURCE_INSERTED": (
        HOSTS,
        6,
        TO_APP,
        (),
        IntMx(0x9000, 0xABCD, 0xC000, 0, bytes.fromhex("0000000f12345678")),
        IntShim(IntType.MX, 5, NextProtocol.NEW_UDP, original_protocol=6),
    ),
    "MX_NEW_IP_UDP": (
        HOSTS,
        51,
        (0, 0),
        (),
        PLAIN_MX,
        IntShim(IntType.MX, 3, NextProtocol.NEW_UDP, original_protocol=4),
    ),
    "MD_PROBE_MARKER": (HOSTS, 17, TO_APP, (HOP2, HOP1), None, IntShim(IntType.MD, 7)),
    "MD_GRE": (HOSTS, 17, TO_APP, (HOP2, HOP1), None, GreShim(IntType.MD, 7, 0x0800, gre_inserted=True)),
    "MX_GRE_BRIDGED": (TUNNEL, 47, (0, 0), (), PLAIN_MX, GreShim(IntType.MX, 3, ETHER_BRIDGED)),
    "MD_VXLAN_GPE": (TUNNEL, 17, (0xD431, 4790), (HOP3, HOP2, HOP1), None, VxlanGpeShim(IntType.MD, 9, 3)),
    "MX_VXLAN": (HOSTS_V6, 17, (0xD431, 4789), (), PLAIN_MX, VxlanGpeShim(IntType.MX, 3, 3, was_vxlan=True)),
    "MD_GENEVE": (
        TUNNEL,
        17,
        (0xD431, 6081),
        (HOP3, HOP2, HOP1),
        None,
        GeneveOption(0x0103, 1, golden_frames.MD_GENEVE.packet[40:76]),
    ),
    "MX_GENEVE": (TUNNEL, 17, (0xD431, 6081), (), PLAIN_MX, GeneveOption(0x0103, 3, PLAIN_MX.encode())),
    "MD_ALL_INSTRUCTIONS": (
        HOSTS,
        17,
        TO_APP,
        (
            HopMetadata(
                node_id=1,
                ingress_interface=1,
                egress_interface=2,
                hop_latency=1000,
                queue_id=0,
                queue_occupancy=3,
                ingress_timestamp=4096,
                egress_timestamp=5096,
                level2_ingress_interface=101,
                level2_egress_interface=102,
                tx_utilisation=100_000,
                buffer_id=0,
                buffer_occupancy=42,
                domain=bytes.fromhex("023f0000"),
                checksum_complement=0x82D6,
            ),
        ),
        None,
        IntShim(IntType.MD, 17),
    ),
    "XD_UDP": (HOSTS, 17, TO_APP, (), None, None),
    "HOP_BY_HOP": (HOSTS, 17, TO_APP, (), None, IntShim(IntType.MD, 3)),
}


def decode(golden: Golden, packet: bytes | None = None) -> InnerPacket:
    data = golden.packet if packet is None else packet
    return decode_ipv6(data, golden.marking) if golden.packet[0] >> 4 == 6 else decode_ipv4(data, golden.marking)


def test_every_golden_frame_has_an_expectation() -> None:
    assert set(FRAMES) == set(EXPECTED)


@pytest.mark.parametrize("name", FRAMES)
def test_a_golden_frame_says_what_its_remarks_say(name: str) -> None:
    addresses, protocol, ports, hops, mx, shim = EXPECTED[name]
    decoded = decode(FRAMES[name])
    assert (str(decoded.src), str(decoded.dst)) == addresses
    assert (decoded.protocol, (decoded.src_port, decoded.dst_port)) == (protocol, ports)
    assert (decoded.hops, decoded.int_mx, decoded.shim) == (hops, mx, shim)


@pytest.mark.parametrize("name", FRAMES)
def test_int_of_a_golden_frame_encodes_to_its_bytes(name: str) -> None:
    packet, decoded = FRAMES[name].packet, decode(FRAMES[name])
    if decoded.shim is None:
        return
    int_header = b""
    if decoded.int_md is not None:
        int_header = decoded.int_md.encode() + encode_stack(decoded.int_md, decoded.hops)
    elif decoded.int_mx is not None:
        int_header = decoded.int_mx.encode()
    shim = decoded.shim.encode()
    whole = shim if isinstance(decoded.shim, GeneveOption) else shim + int_header
    assert packet.count(whole) == 1
    assert int_header in whole


def test_the_flags_of_the_golden_headers() -> None:
    headers = {name: decode(golden).int_md for name, golden in FRAMES.items()}
    assert [name for name, header in headers.items() if header and header.mtu_exceeded] == ["MD_TCP_OPTIONS_V6"]
    hop_by_hop, all_bits = headers["HOP_BY_HOP"], headers["MD_ALL_INSTRUCTIONS"]
    assert hop_by_hop is not None
    assert (hop_by_hop.domain_id, hop_by_hop.domain_flags, hop_by_hop.remaining_hops) == (0x4D52, 0x8000, 6)
    assert all_bits is not None
    assert (all_bits.hop_ml, all_bits.instructions, all_bits.domain_instructions) == (14, 0xFF81, 0x4000)


@pytest.mark.parametrize("name", FRAMES)
def test_golden_frames_have_right_lengths_and_checksums(name: str) -> None:
    checked = check(FRAMES[name].packet)
    # Only the packets behind a new UDP header have theirs checked against addresses in front of it.
    assert checked >= (0 if name == "MX_NEW_IP_UDP" else 1)


def check(packet: bytes) -> int:
    """Check an IP packet's lengths and checksums, and those of the packets within; return how many of TCP or UDP."""
    ip: ipv4.Ipv4 | ipv6.Ipv6
    if packet[0] >> 4 == 4:
        ip = ipv4.decode(packet)
        assert internet_checksum(packet[: ip.size]) == 0
        assert ip.total_length == len(packet)
        protocol = ip.protocol
    else:
        ip = ipv6.decode(packet)
        assert ip.payload_length == len(packet) - ip.size
        protocol = ip.next_header
    segment = packet[ip.size :]
    within = inner_ipv4(segment)
    return (check(within) if within else 0) + check_segment(ip.src, ip.dst, protocol, segment)


def check_segment(src: IpAddress, dst: IpAddress, protocol: int, segment: bytes) -> int:
    if protocol == PROTOCOL_TCP:
        tcp.decode(segment)
        assert holds(src, dst, protocol, segment)
        return 1
    if protocol != PROTOCOL_UDP:
        return 0
    header = udp.decode(segment)
    assert header.length == len(segment)
    if header.checksum:
        assert holds(src, dst, protocol, segment)
        return 1
    at = segment.find(bytes.fromhex("13881771"))  # a TCP header behind a new UDP header
    behind_tcp = at > 0 and header.dst_port == 0x5678
    return check_segment(src, dst, PROTOCOL_TCP, segment[at:]) if behind_tcp else 0


def inner_ipv4(segment: bytes) -> bytes:
    """Return the IPv4 packet within, by its first bytes."""
    at = segment.find(bytes.fromhex("4500"))
    return segment[at:] if at >= 0 and IPv4Address("10.0.0.1").packed in segment[at:] else b""


def test_the_checksum_under_a_complement_is_the_one_without_int() -> None:
    decoded, plain = decode(golden_frames.MD_ALL_INSTRUCTIONS), golden_frames.MD_ALL_INSTRUCTIONS.packet
    bare = udp.segment(ip_address("10.0.0.1"), ip_address("10.0.0.2"), 5000, 6001, b"Millrace")
    assert plain[26:28] == bare[6:8]
    assert decoded.packet_id & 0xFFFF == int.from_bytes(bare[6:8], "big")


@pytest.mark.parametrize("name", [name for name in FRAMES if name != "XD_UDP"])
def test_truncated_golden_frame_has_no_hops_or_is_a_wire_error(name: str) -> None:
    whole = decode(FRAMES[name])
    complete = False
    for size in range(len(FRAMES[name].packet) + 1):
        try:
            decoded = decode(FRAMES[name], FRAMES[name].packet[:size])
        except WireError:
            assert not complete
            continue
        # Readable prefixes are either not recognised as INT yet (a cut tunnel or marker), or complete.
        complete = complete or decoded.shim is not None
        assert (decoded.hops, decoded.int_mx) == ((whole.hops, whole.int_mx) if complete else ((), None))
    assert complete


@pytest.mark.parametrize("name", FRAMES)
def test_mangled_golden_frame_decodes_or_is_a_wire_error(name: str) -> None:
    packet = FRAMES[name].packet
    for at in range(len(packet)):
        for flip in (0x01, 0x80, 0xFF):
            mangled = packet[:at] + bytes([packet[at] ^ flip]) + packet[at + 1 :]
            try:
                decoded = decode(FRAMES[name], mangled)
            except WireError:
                continue
            assert 0 <= decoded.packet_id < 1 << 63


KINDS = {
    "xd": (RecordKind.XD, [1]),
    "mx": (RecordKind.MX, [2]),
    "sink": (RecordKind.STACK, [1, 2, 3]),
    "intermediate": (RecordKind.INTERMEDIATE, [1, 2]),
    "hop by hop": (RecordKind.HOP_BY_HOP, [2]),
    "queue": (RecordKind.QUEUE, [1]),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_golden_report_is_of_its_kind_and_has_its_hops(name: str) -> None:
    kind, nodes = KINDS[name]
    decoded = collector_decode.decode(REPORTS[name].payload, REPORTS[name].marking)
    (packet,) = decoded.packets
    assert (packet.kind, [hop.node_id for hop in packet.hops]) == (kind, nodes)
    assert (decoded.drops, decoded.skipped) == ((), 0)
    if name == "sink":
        assert (decoded.group.hw_id, decoded.group.sequence) == (0, 0x100003)
    assert packet.flow.dst_port == 6001


def test_the_golden_drop_report_has_queue_and_reason() -> None:
    decoded = collector_decode.decode(REPORTS["drop"].payload, REPORTS["drop"].marking)
    (drop,) = decoded.drops
    assert (drop.metadata.drop_queue_id, drop.metadata.drop_reason) == (3, 9)
    assert drop.metadata.ingress_timestamp == 4096
    assert decoded.packets == ()


def test_the_golden_group_has_four_reports_of_hardware_five() -> None:
    packet = report.decode(REPORTS["group"].payload)
    assert (packet.group.hw_id, packet.group.sequence, packet.group.node_id) == (5, 0x12345, 42)
    assert [(individual.dropped, individual.congested, individual.tracked) for individual in packet.reports] == [
        (False, False, True),
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    last = packet.reports[-1].main
    assert last is not None
    assert (last.metadata.hop_latency, last.metadata.domain.hex()) == (1000, "023f0000")


@pytest.mark.parametrize("name", REPORTS)
def test_golden_reports_agree_both_ways(name: str) -> None:
    payload = REPORTS[name].payload
    if name != "group":  # its last report says "to the end" where its length would do
        assert report.decode(payload).encode() == payload


@pytest.mark.parametrize("name", REPORTS)
def test_mangled_golden_report_decodes_or_is_a_wire_error(name: str) -> None:
    golden = REPORTS[name]
    for size in range(len(golden.payload)):
        try:
            decoded = collector_decode.decode(golden.payload[:size], golden.marking)
        except WireError:
            continue
        # Only a group can end at a border between reports, or in the packet of a report that runs to the end.
        assert name == "group"
        assert len(decoded.packets) + len(decoded.drops) < 4 or size >= len(golden.payload) - 8
    for at in range(len(golden.payload)):
        for flip in (0x01, 0x10, 0xFF):
            mangled = bytearray(golden.payload)
            mangled[at] ^= flip
            try:
                collector_decode.decode(bytes(mangled), golden.marking)
            except WireError:
                continue
