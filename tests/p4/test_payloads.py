"""Payloads that look like headers, through a source, a transit switch and a sink, on every available target."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import reduce
from ipaddress import IPv6Address
from operator import truediv

import pytest
from scapy.compat import raw
from scapy.layers.inet import UDP
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from dataplane.wire.drop_reasons import DropReason
from tests.p4.drop_cases import with_ip
from tests.p4.entries import (
    COLLECTOR,
    COLLECTOR6,
    COLLECTOR_PORT,
    COLLECTOR_UDP_PORT,
    DOWN_PORT,
    HOP_BY_HOP,
    HOST_PORT,
    MD,
    MX,
    NEXT_HOP_MAC,
    SWITCH_MAC,
    UP_PORT,
    Entry,
    Role,
    Watch,
    sink,
    source,
    transit,
    watch_drops,
)
from tests.p4.frames import HOST_MAC, ROUTER_MAC, SRC6, Shape, build, routed
from tests.p4.markers import ByDscp, ByProbe, ByUdpPort, Marker, mark
from tests.p4.targets import Target, frame_on, pass_through
from tests.p4.telemetry import OUR_DOMAIN, IntHeaders, decode_int
from tests.p4.test_modes import after_hops
from tests.payloads import shapes

MARKER = ByProbe().marker
SHIELD_FLAG = 0x4000
MARKS: dict[str, Marker] = {
    "dscp": ByDscp(),
    "bit": ByDscp(0x20, 0x20),
    "probe": ByProbe(),
    "port": ByUdpPort(),
    "new": ByUdpPort(always_new_udp=True),
}
OVERRUN = bytes(8) + bytes.fromhex("11ff000020") + bytes(87)


def lookalikes(seed: str, count: int) -> list[bytes]:
    """Return hosts' frames whose payloads look like something."""
    rng, headers = random.Random(seed), shapes.headers_for((0, MARKER))
    payloads = [OVERRUN, *(shapes.draw(rng, headers) for _ in range(count))]
    kinds = [Shape(), Shape(l4="tcp", l4_options=True), Shape(version=6), Shape(checksum=False), Shape(vlan=True)]
    return [build(replace(rng.choice(kinds), payload=payload)) for payload in payloads]


@pytest.mark.parametrize("mode", [MD, HOP_BY_HOP, MX])
@pytest.mark.parametrize("marker", MARKS.values(), ids=MARKS)
def test_payloads_come_out_as_they_went_in(target: Target, marker: Marker, mode: int) -> None:
    """Reports go nowhere, to spare bmv2, which loses frames that arrive too fast."""
    watch = Watch(0x8000, mode=mode, watch_id=60)
    originals = lookalikes(f"{marker} {mode}", 24)
    on_the_way = originals
    steps = ((source(watch), HOST_PORT), (transit(), UP_PORT), (sink(), UP_PORT))
    for role, port in steps:
        quiet = replace(role, reports=False, extra=marker.items)
        sent = pass_through(target, quiet, port, *on_the_way, expect=len(originals))
        on_the_way = [frame for _, frame in sent]
    assert [frame.hex() for frame in on_the_way] == [after_hops(frame, 3).hex() for frame in originals]


@pytest.mark.parametrize("marker", MARKS.values(), ids=MARKS)
def test_payloads_come_out_where_they_went_in(target: Target, marker: Marker) -> None:
    """Source and sink are one switch."""
    originals = lookalikes(f"{marker}", 24)
    role = replace(sink(), watch=Watch(0xFF00, watch_id=61), reports=False, extra=marker.items)
    sent = pass_through(target, role, HOST_PORT, *originals, expect=len(originals))
    assert [frame.hex() for _, frame in sent] == [after_hops(frame, 1).hex() for frame in originals]


FORGERY = mark(ByProbe(), build(), IntHeaders(0x8000, 3))


@pytest.mark.parametrize("watch", [None, Watch(0x8000, mode=MX, watch_id=62)], ids=["unwatched", "watched"])
@pytest.mark.parametrize("shape", [Shape(), Shape(version=6, l4="tcp", l4_options=True)], ids=str)
def test_a_payload_with_the_marker_gets_int_of_its_own(target: Target, watch: Watch | None, shape: Shape) -> None:
    """This INT requests nothing and is not reported; it keeps the next switch from taking the payload for INT."""
    forgery = mark(ByProbe(), build(shape), IntHeaders(0x8000, 3))
    role = Role(101, DOWN_PORT, watch=watch, extra=ByProbe().items)
    out = frame_on(pass_through(target, role, HOST_PORT, forgery, expect=1), DOWN_PORT)
    shield = IntHeaders(0, 0, hop_ml=0, hops_exceeded=1, domain_id=OUR_DOMAIN, domain_flags=SHIELD_FLAG)
    assert out.hex() == mark(ByProbe(), after_hops(forgery, 1), shield).hex()
    out = frame_on(pass_through(target, replace(transit(), extra=ByProbe().items), UP_PORT, out, expect=1), DOWN_PORT)
    sent = pass_through(target, replace(sink(), extra=ByProbe().items), UP_PORT, out, expect=1)
    assert frame_on(sent, HOST_PORT).hex() == after_hops(forgery, 3).hex()


def test_forgery_without_room_for_int_is_dropped_by_name(target: Target) -> None:
    """A TCP checksum of 0xffff could not be restored."""
    frame = bytearray(mark(ByProbe(), build(Shape(l4="tcp")), IntHeaders(0x8000, 3)))
    frame[50:52] = b"\xff\xff"
    role = Role(101, DOWN_PORT, extra=ByProbe().items)
    assert pass_through(target, role, HOST_PORT, bytes(frame), expect=0) == []
    assert target.count("drop_int_at_edge") == 1


def test_a_forgery_that_would_get_too_long_is_dropped_by_name(target: Target) -> None:
    role = replace(Role(101, DOWN_PORT, extra=ByProbe().items), mtu_bytes=len(FORGERY) - 14 + 23)
    assert pass_through(target, role, HOST_PORT, FORGERY, expect=0) == []
    assert target.count("drop_mtu_exceeded") == 1


def test_false_udp_length_is_not_followed_beyond_the_payload(target: Target) -> None:
    """It reads like NPT 2, whose inner header would be behind the end of the frame."""
    payload = IntHeaders(0x8000, 4, npt=2, value=6).encode()
    frame = build(Shape(checksum=False, payload=payload))
    long = frame[:38] + (0x4000).to_bytes(2, "big") + frame[40:]
    sent = pass_through(target, source(Watch(0x8000)), HOST_PORT, long, expect=1)
    assert frame_on(sent, DOWN_PORT)[-len(payload) :] == payload


def to_collector(frame: bytes, port: int = COLLECTOR_UDP_PORT, **fields: int) -> bytes:
    """Return a host's frame with the collector's address and port."""
    changed = with_ip(frame, dst=COLLECTOR, **fields)
    at = 18 if frame[12:14] == b"\x81\x00" else 14
    at += 4 * (changed[at] & 15) + 2
    return changed[:at] + port.to_bytes(2, "big") + changed[at + 2 :]


def to_collector6(*headers: Packet, dst: int = COLLECTOR6, port: int = COLLECTOR_UDP_PORT, vlan: bool = False) -> bytes:
    """Return a host's frame over IPv6, with headers before UDP."""
    frame: Packet = Ether(src=HOST_MAC, dst=ROUTER_MAC)
    frame = frame / Dot1Q(vlan=7) if vlan else frame
    layers = (IPv6(src=SRC6, dst=str(IPv6Address(dst))), *headers, UDP(sport=9, dport=port), Raw(bytes(40)))
    return raw(reduce(truediv, layers, frame))


PLAIN = build(Shape(checksum=False))
MORE_FRAGMENTS = 1
REPORTS = {
    "plain": to_collector(PLAIN),
    "ip-options": to_collector(build(Shape(checksum=False, ip_options=True))),
    "first-fragment": to_collector(PLAIN, flags=MORE_FRAGMENTS),
    "ipv6": to_collector6(),
    "ipv6-vlan": to_collector6(vlan=True),
    "ipv6-fragment": to_collector6(IPv6ExtHdrFragment(m=1)),
    "ipv6-hop-by-hop": to_collector6(IPv6ExtHdrHopByHop()),
    "ipv6-routing": to_collector6(IPv6ExtHdrRouting()),
    "ipv6-destination-options": to_collector6(IPv6ExtHdrDestOpt()),
}
OTHERS = {
    "another-port": to_collector(PLAIN, 5000),
    "a-later-fragment": to_collector(PLAIN, flags=MORE_FRAGMENTS, frag=2),
    "a-first-fragment-to-another-port": to_collector(PLAIN, 5000, flags=MORE_FRAGMENTS),
    "another-address": build(dst_port=COLLECTOR_UDP_PORT),
    "tcp": with_ip(build(Shape(l4="tcp"), dst_port=COLLECTOR_UDP_PORT), dst=COLLECTOR),
    "ipv6": build(Shape(version=6), dst_port=COLLECTOR_UDP_PORT),
    "ipv6-another-port": to_collector6(port=5000),
    "ipv6-another-address": to_collector6(IPv6ExtHdrFragment(m=1), dst=COLLECTOR6 + 1),
}
ROUTE = Entry("ipv4_destination_paths", {"dst_addr": (COLLECTOR, 32)}, "forward", (DOWN_PORT, NEXT_HOP_MAC))


@pytest.mark.parametrize("frame", REPORTS.values(), ids=REPORTS)
def test_report_sent_by_a_host_is_dropped_unreported(target: Target, frame: bytes) -> None:
    role = replace(source(Watch()), extra=(ROUTE, *watch_drops()))
    assert pass_through(target, role, HOST_PORT, frame, expect=0) == []
    assert target.count("drop_report_at_edge") == 1
    assert DropReason.REPORT_AT_EDGE.name.lower() == "report_at_edge"


@pytest.mark.parametrize("frame", OTHERS.values(), ids=OTHERS)
def test_what_is_no_report_passes(target: Target, frame: bytes) -> None:
    sent = pass_through(target, replace(source(Watch()), watch=None, extra=(ROUTE,)), HOST_PORT, frame, expect=1)
    assert frame_on(sent, DOWN_PORT)[14:] == routed(frame, src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC)[14:]


def test_a_switchs_report_passes(target: Target) -> None:
    role = replace(transit(), extra=(ROUTE,))
    sent = pass_through(target, role, UP_PORT, REPORTS["plain"], expect=1)
    assert [port for port, _ in sent] == [DOWN_PORT]
    assert target.count("drop_report_at_edge") == 0
    assert COLLECTOR_PORT != DOWN_PORT


def test_source_int_goes_before_a_payload_that_looks_like_int(target: Target) -> None:
    frame = build(Shape(payload=OVERRUN))
    out = frame_on(pass_through(target, source(Watch(0x8000)), HOST_PORT, frame, expect=1), DOWN_PORT)
    headers, rest = decode_int(out[42:])
    assert headers.stack.hex() == "00000065"
    assert rest.hex() == OVERRUN.hex()
