"""Every mode with every mark: a packet over three switches, every byte of it at every hop, and every report of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from scapy.compat import raw
from scapy.layers.inet import ICMP, IP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import GRE, Ether
from scapy.packet import Packet, Raw

from tests.p4.entries import (
    COLLECTOR_PORT,
    DOWN_PORT,
    HOP_BY_HOP,
    HOST_PORT,
    MD,
    MX,
    NEXT_HOP_MAC,
    SWITCH_MAC,
    UP_PORT,
    XD,
    Role,
    Watch,
    sink,
    source,
    transit,
)
from tests.p4.frames import DST4, DST6, HOST_MAC, PAYLOAD, ROUTER_MAC, SRC4, SRC6, Shape, build, routed
from tests.p4.markers import ByDscp, ByProbe, ByUdpPort, InTunnel, Marker, cut, finish, mark, read
from tests.p4.targets import Target, frame_on, pass_through
from tests.p4.telemetry import (
    FORWARDING,
    HOP_BY_HOP_FLAG,
    INTERMEDIATE,
    OUR_DOMAIN,
    SOURCE_NUMBER,
    TRACKED,
    TYPE_MD,
    TYPE_MX,
    IntHeaders,
    decode_report,
)

INSTRUCTIONS = 0xFF80
BY_ROUTE = 3


def tunnel(version: int, *layers: Packet) -> bytes:
    """Return a host's frame with a tunnel in it, ECN bits 1."""
    inner = Ether(src=HOST_MAC, dst=ROUTER_MAC) / IP(src="192.168.0.1", dst="192.168.0.2") / Raw(PAYLOAD)
    ip = IP(src=SRC4, dst=DST4, tos=41, id=7) if version == 4 else IPv6(src=SRC6, dst=DST6, tc=41)
    frame = Ether(src=HOST_MAC, dst=ROUTER_MAC) / ip
    for layer in layers:
        frame = frame / layer
    return raw(frame / inner)


def vxlan(version: int, port: int, *, flags: int = 8, next_protocol: int = 0, checksum: bool = True) -> bytes:
    """Return a frame with VXLAN or VXLAN-GPE over UDP."""
    header = bytes([flags, 0, 0, next_protocol, 0x12, 0x34, 0x56, 0])
    udp = (50000).to_bytes(2, "big") + port.to_bytes(2, "big") + bytes(2) + (b"\0\1" if checksum else b"\0\0")
    parts = cut(tunnel(version, Raw(udp + header)))
    ip = bytearray(parts.ip)
    ip[9 if version == 4 else 6] = 17
    return finish(replace(parts, ip=bytes(ip)))


def gre(version: int, header: GRE) -> bytes:
    """Return a frame with GRE that carries Ethernet."""
    header.proto = 0x6558
    return tunnel(version, header)


def echo(version: int) -> bytes:
    """Return a ping."""
    if version == 4:
        return raw(Ether(src=HOST_MAC, dst=ROUTER_MAC) / IP(src=SRC4, dst=DST4) / ICMP(id=1, seq=2) / Raw(PAYLOAD))
    ping = ICMPv6EchoRequest(id=1, seq=2, data=PAYLOAD)
    return raw(Ether(src=HOST_MAC, dst=ROUTER_MAC) / IPv6(src=SRC6, dst=DST6) / ping)


UDP4, TCP6 = Shape(), Shape(version=6, l4="tcp", l4_options=True)
ODD_TCP4 = Shape(l4="tcp", ip_options=True, vlan=True)
CASES: dict[str, tuple[Marker, bytes]] = {
    "dscp-udp": (ByDscp(), build(UDP4)),
    "dscp-other-value": (ByDscp(0x2A, 0x3F), build(TCP6)),
    "dscp-bit": (ByDscp(0x20, 0x20), build(Shape(dscp=0x0B))),
    "dscp-bit-ipv6": (ByDscp(0x01, 0x01), build(replace(TCP6, dscp=0x2A))),
    "probe-udp": (ByProbe(), build(UDP4)),
    "probe-udp-no-checksum": (ByProbe(), build(Shape(checksum=False))),
    "probe-tcp": (ByProbe(), build(ODD_TCP4)),
    "probe-tcp-ipv6": (ByProbe(), build(TCP6)),
    "port-udp": (ByUdpPort(), build(UDP4)),
    "port-udp-ipv6": (ByUdpPort(), build(Shape(version=6))),
    "port-udp-no-checksum": (ByUdpPort(), build(Shape(checksum=False))),
    "port-tcp": (ByUdpPort(), build(ODD_TCP4)),
    "port-tcp-ipv6": (ByUdpPort(), build(TCP6)),
    "port-ping": (ByUdpPort(), echo(4)),
    "port-ping-ipv6": (ByUdpPort(), echo(6)),
    "port-gre": (ByUdpPort(), gre(4, GRE(chksum_present=1))),
    "port-new-udp": (ByUdpPort(always_new_udp=True), build(UDP4)),
    "port-new-udp-ipv6": (ByUdpPort(always_new_udp=True), build(Shape(version=6, checksum=True))),
    "gre": (InTunnel(), gre(4, GRE())),
    "gre-checksum": (InTunnel(), gre(4, GRE(chksum_present=1))),
    "gre-key-sequence": (InTunnel(), gre(4, GRE(key_present=1, key=0xDEADBEEF, seqnum_present=1, sequence_number=9))),
    "gre-all-ipv6": (InTunnel(0xFFFE), gre(6, GRE(chksum_present=1, key_present=1, key=5, seqnum_present=1))),
    "vxlan": (InTunnel(), vxlan(4, 4789)),
    "vxlan-no-checksum": (InTunnel(), vxlan(4, 4789, checksum=False)),
    "vxlan-gpe": (InTunnel(), vxlan(4, 4790, flags=12, next_protocol=3)),
    "vxlan-gpe-ipv6": (InTunnel(), vxlan(6, 4790, flags=12, next_protocol=3)),
    "vxlan-as-udp": (ByDscp(), vxlan(4, 4789)),
    "gpe-as-udp": (ByUdpPort(), vxlan(6, 4790, flags=12, next_protocol=3)),
}


def after_hops(frame: bytes, hops: int) -> bytes:
    """Return a frame after this many routers."""
    at = 22 if frame[12:14] != b"\x81\x00" else 26
    data = bytearray(NEXT_HOP_MAC.to_bytes(6, "big") + SWITCH_MAC.to_bytes(6, "big") + frame[12:])
    data[at - (frame[at - 8] >> 4 == 6)] -= hops
    return finish(cut(bytes(data)), keep_checksum=True)


def walk(target: Target, marker: Marker, watch: Watch, original: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
    """Send a packet over source, transit and sink; yield each one's forwarded frame and reports."""
    roles: list[tuple[Role, int, int]] = [
        (source(watch), HOST_PORT, DOWN_PORT),
        (transit(), UP_PORT, DOWN_PORT),
        (sink(), UP_PORT, HOST_PORT),
    ]
    frame = original
    for number, (role, port, out) in enumerate(roles):
        reports = 1 if watch.mode != MD or number == 2 else 0
        extra = (*marker.items, *(watch.entries() if watch.mode == XD and number else ()))
        sent = pass_through(target, replace(role, extra=extra), port, frame, expect=1 + reports)
        frame = frame_on(sent, out)
        yield frame, [data for to_port, data in sent if to_port == COLLECTOR_PORT]


def inner_of(marked: bytes, marker: Marker) -> bytes:
    """Return what a report has of a marked packet: IP through INT, with NPT 2 through TCP or UDP."""
    parts = cut(marked)
    end = marker.place(parts) + 4 + 4 * parts.body[marker.place(parts) + 1]
    if parts.body[marker.place(parts)] >> 2 & 3 == 2:
        end += {6: parts.body[end + 12] >> 4 << 2, 17: 8}.get(parts.body[marker.place(parts) + 3], 0)
    return parts.ip + parts.body[:end]


@pytest.mark.parametrize(("marker", "original"), CASES.values(), ids=CASES.keys())
def test_md(target: Target, marker: Marker, original: bytes) -> None:
    steps = list(walk(target, marker, Watch(INSTRUCTIONS), original))
    stack = b""
    for hops, (frame, reports) in enumerate(steps[:2], start=1):
        decoded = read(marker, frame)
        expected = IntHeaders(INSTRUCTIONS, 8 - hops, decoded.stack)
        assert frame.hex() == mark(marker, after_hops(original, hops), expected, like=frame).hex()
        assert decoded.stack.endswith(stack)
        assert len(decoded.hops()) == hops
        assert reports == []
        stack = decoded.stack
    frame, (report,) = steps[2]
    assert frame.hex() == after_hops(original, 3).hex(), "the sink gives back what the host sent"
    arrived = mark(marker, after_hops(original, 3), IntHeaders(INSTRUCTIONS, 6, stack), like=steps[1][0])
    told = decode_report(report)
    assert told.inner.hex() == inner_of(arrived, marker).hex()
    assert (told.flags, told.metadata_bits, told.node_id) == (TRACKED, 0x7F80, 103)


FEW = ("dscp-bit-ipv6", "probe-tcp", "port-udp", "port-tcp-ipv6", "port-ping", "gre-all-ipv6", "vxlan", "vxlan-gpe")
HOP_BY_HOP_CASES = [(HOP_BY_HOP, *CASES[name]) for name in FEW]
MX_CASES = [(MX, *case) for case in CASES.values()]


@pytest.mark.parametrize(("mode", "marker", "original"), [*MX_CASES, *HOP_BY_HOP_CASES], ids=[*CASES, *FEW])
def test_instructions_travel_and_every_hop_reports(target: Target, mode: int, marker: Marker, original: bytes) -> None:
    by_hop = IntHeaders(INSTRUCTIONS, 8, domain_id=OUR_DOMAIN, domain_flags=HOP_BY_HOP_FLAG)
    headers = IntHeaders(INSTRUCTIONS, type=TYPE_MX) if mode == MX else by_hop
    marked = original
    for number, (frame, (report,)) in enumerate(walk(target, marker, Watch(INSTRUCTIONS, mode=mode), original)):
        travels = headers if mode == MX else replace(headers, remaining_hops=7 - min(number, 1))
        marked = mark(marker, after_hops(original, number + 1), travels, like=frame if number < 2 else marked)
        assert frame.hex() == (marked if number < 2 else after_hops(original, 3)).hex()
        told = decode_report(report)
        assert told.inner.hex() == inner_of(marked, marker).hex()
        assert (told.node_id, told.metadata_bits) == (101 + number, 0x7F80)
        assert told.flags == (TRACKED | INTERMEDIATE if mode == HOP_BY_HOP and number < 2 else TRACKED)
        assert told.domain_status == (0 if mode == MX else (0x8007, 0x8006, 0xC005)[number])
        assert told.domain_id == (0 if mode == MX else OUR_DOMAIN)


@pytest.mark.parametrize("original", [build(UDP4), build(TCP6), build(ODD_TCP4), echo(4)], ids=range(4))
def test_xd_reports_at_every_hop_and_leaves_the_packet_alone(target: Target, original: bytes) -> None:
    for number, (frame, (report,)) in enumerate(walk(target, ByDscp(), Watch(INSTRUCTIONS, mode=XD), original)):
        assert frame.hex() == after_hops(original, number + 1).hex()
        told = decode_report(report)
        parts = cut(frame)
        assert told.inner.hex() == (parts.ip + parts.body[: {6: parts.head_bytes, 17: 8}.get(parts.protocol, 0)]).hex()
        assert (told.node_id, told.flags, told.metadata_bits) == (101 + number, TRACKED, 0x7F80)
        assert (told.domain_id, told.domain_metadata_bits, told.domain_status) == (0, 0, 0)


WITH_CHECKSUMS = ("dscp-udp", "dscp-other-value", *FEW, "gre-checksum", "probe-udp-no-checksum", "vxlan-no-checksum")


@pytest.mark.parametrize(("marker", "original"), [CASES[name] for name in WITH_CHECKSUMS], ids=WITH_CHECKSUMS)
def test_a_checksum_complement_leaves_the_checksum_alone(target: Target, marker: Marker, original: bytes) -> None:
    """It is valid with the pushed words, and unchanged from the host's."""
    steps = list(walk(target, marker, Watch(0x8001), original))
    before = cut(original)
    at = {6: 16, 17: 6, 47: 4}.get(before.protocol, 0)
    has_checksum = before.protocol != 47 or before.body[0] >> 7 == 1
    for frame, _ in steps[:2]:
        parts = cut(frame)
        assert finish(parts).hex() == frame.hex(), "right"
        if has_checksum and parts.protocol == before.protocol and parts.body[6:8] != b"\0\0":
            assert parts.body[at : at + 2] == before.body[at : at + 2]
    assert steps[2][0].hex() == after_hops(original, 3).hex()


DOMAIN = SOURCE_NUMBER | FORWARDING


@pytest.mark.parametrize(("marker", "original"), [CASES["dscp-udp"], CASES["port-tcp"], CASES["gre-checksum"]])
def test_domain_metadata_of_md(target: Target, marker: Marker, original: bytes) -> None:
    watch = Watch(0x8000, domain_instructions=DOMAIN, watch_id=31)
    steps = list(walk(target, marker, watch, original))
    decoded = read(marker, steps[1][0])
    ttls = [64 - 2, 64 - 1]
    words = [decoded.stack[at : at + 4] for at in range(0, len(decoded.stack), 4)]
    assert [int.from_bytes(word, "big") for word in words[0:4:2]] == [102, 101]
    assert [word.hex() for word in words[1:4:2]] == [f"{BY_ROUTE:02x}{ttl:02x}0000" for ttl in ttls]
    expected = IntHeaders(0x8000, 6, decoded.stack, domain_id=OUR_DOMAIN, domain_instructions=DOMAIN, hop_ml=2)
    assert steps[1][0].hex() == mark(marker, after_hops(original, 2), expected, like=steps[1][0]).hex()
    assert steps[2][0].hex() == after_hops(original, 3).hex()
    told = decode_report(steps[2][1][0])
    assert (told.domain_id, told.domain_metadata_bits) == (OUR_DOMAIN, FORWARDING)
    assert told.domain_metadata.hex() == f"{BY_ROUTE:02x}{64 - 3:02x}0000"
    role = replace(source(watch), extra=marker.items)
    sent = pass_through(target, role, HOST_PORT, original, original, expect=2)
    numbers = [int.from_bytes(read(marker, frame).stack[-4:], "big") for _, frame in sent]
    assert numbers[1] == numbers[0] + 1, "the source counts"


@pytest.mark.parametrize(("marker", "original"), [CASES["probe-udp"], CASES["port-tcp-ipv6"], CASES["vxlan"]])
def test_domain_metadata_of_mx(target: Target, marker: Marker, original: bytes) -> None:
    watch = Watch(0xC000, mode=MX, domain_instructions=DOMAIN, watch_id=32)
    steps = list(walk(target, marker, watch, original))
    decoded = read(marker, steps[0][0])
    assert len(decoded.stack) == 4, "the source's number, and nothing of any hop"
    expected = IntHeaders(0xC000, 0, decoded.stack, type=TYPE_MX, domain_id=OUR_DOMAIN, domain_instructions=DOMAIN)
    for hops, (frame, (report,)) in enumerate(steps, start=1):
        like = frame if hops < 3 else steps[1][0]
        marked = mark(marker, after_hops(original, hops), expected, like=like)
        assert frame.hex() == (marked if hops < 3 else after_hops(original, 3)).hex()
        told = decode_report(report)
        assert told.inner.hex() == inner_of(marked, marker).hex()
        assert (told.metadata_bits, told.domain_metadata_bits) == (0x4000, FORWARDING)
        assert told.domain_metadata.hex() == f"{BY_ROUTE:02x}{64 - hops:02x}0000"


@pytest.mark.parametrize("mode", [MD, MX])
def test_probes_end_at_the_sink(target: Target, mode: int) -> None:
    watch = Watch(INSTRUCTIONS, mode=mode, discard=1)
    sent = pass_through(target, source(watch), HOST_PORT, build(), expect=1 + (mode == MX))
    marked = frame_on(sent, DOWN_PORT)
    assert read(ByDscp(), marked).discard == 1
    sent = pass_through(target, sink(), UP_PORT, marked, expect=1)
    assert [port for port, _ in sent] == [COLLECTOR_PORT]
    assert target.count("drop_int_discard") == 1


LOOKALIKES = {
    "unmarked-shim": Shape(payload=IntHeaders(0x8000, 4, bytes(8)).encode() + PAYLOAD),
    "unmarked-mx": Shape(l4="tcp", payload=IntHeaders(0x8000, 4, type=3).encode()),
    "unmarked-source-number": Shape(payload=IntHeaders(0, 4, bytes(8), 0, domain_id=OUR_DOMAIN).encode()),
    "unmarked-probe": Shape(payload=bytes(8) + IntHeaders(0x8000, 4, bytes(8)).encode()),
    "unmarked-npt-2": Shape(payload=IntHeaders(0x8000, 4, npt=2, value=6).encode() + build()[34:] + bytes(20)),
}


@pytest.mark.parametrize("marker", [ByDscp(), ByProbe(), ByUdpPort(), ByUdpPort(always_new_udp=True)])
@pytest.mark.parametrize("shape", LOOKALIKES.values(), ids=LOOKALIKES.keys())
def test_a_payload_that_looks_like_int_is_payload(target: Target, marker: Marker, shape: Shape) -> None:
    """It is carried unchanged, with INT inserted before it; a watch cannot tell the difference."""
    original = build(shape)
    steps = list(walk(target, marker, Watch(0x8000), original))
    decoded = read(marker, steps[1][0])
    expected = IntHeaders(0x8000, 6, decoded.stack)
    assert steps[1][0].hex() == mark(marker, after_hops(original, 2), expected, like=steps[1][0]).hex()
    assert decoded.stack.hex() == "0000006600000065"
    assert steps[2][0].hex() == after_hops(original, 3).hex()
    plain = pass_through(target, replace(transit(), extra=marker.items), UP_PORT, original, expect=1)
    assert frame_on(plain, DOWN_PORT) == routed(original, src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC)


FORGED = {
    "dscp": (ByDscp(0x2A), build(Shape(dscp=0x2A))),
    "dscp-bit": (ByDscp(0x20, 0x20), build(Shape(dscp=0x2A))),
    "udp-port": (ByUdpPort(), build(dst_port=5599)),
    "gre": (InTunnel(), mark(InTunnel(), gre(4, GRE()), IntHeaders(0x8000, 3))),
    "vxlan-gpe": (InTunnel(), mark(InTunnel(), vxlan(4, 4789), IntHeaders(0x8000, 3))),
}


@pytest.mark.parametrize(("marker", "frame"), FORGED.values(), ids=FORGED.keys())
def test_hosts_cannot_forge_the_mark(target: Target, marker: Marker, frame: bytes) -> None:
    """Except probe markers, which mark payload: test_payloads.py."""
    role = replace(source(Watch()), extra=marker.items)
    assert pass_through(target, role, HOST_PORT, frame, expect=0) == []
    assert target.count("drop_int_at_edge") == 1


def test_with_another_mark_the_default_dscp_is_free(target: Target) -> None:
    frame = build(Shape(dscp=0x17))
    sent = pass_through(target, Role(101, DOWN_PORT, extra=ByProbe().items), HOST_PORT, frame, expect=1)
    assert frame_on(sent, DOWN_PORT) == routed(frame, src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC)
    assert (TYPE_MD, TYPE_MX) == (1, 3)
