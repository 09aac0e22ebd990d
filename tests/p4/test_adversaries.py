"""Packets with false headers, and harm that telemetry must not do to packets that carry it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scapy.layers.l2 import GRE

from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.switch.switch import PipelineFactory, PortSettings
from dataplane.wire import report
from tests.p4.builtin_target import BuiltinTarget
from tests.p4.entries import (
    COLLECTOR_PORT,
    DOWN_PORT,
    HOST_PORT,
    NEXT_HOP_MAC,
    SWITCH_MAC,
    UP_PORT,
    XD,
    DefaultAction,
    Entry,
    Watch,
    sink,
    source,
    transit,
    watch_drops,
)
from tests.p4.frames import Shape, build, routed
from tests.p4.markers import ByDscp, ByProbe, ByUdpPort, InTunnel, Marker, Parts, cut, finish, mark
from tests.p4.targets import Target, frame_on, pass_through
from tests.p4.telemetry import (
    CONGESTED,
    INTERMEDIATE,
    OUTER_BYTES,
    TRACKED,
    TYPE_MX,
    IntHeaders,
    decode_report,
    hop_words,
)
from tests.p4.test_modes import CASES, FEW, after_hops, gre, vxlan

DSCP = 0x17


def after_hop(frame: bytes) -> bytes:
    return routed(frame, src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC)


def with_dscp(frame: bytes, dscp: int) -> bytes:
    parts = cut(frame)
    ip = bytearray(parts.ip)
    if ip[0] >> 4 == 4:
        ip[1] = dscp << 2 | ip[1] & 3
    else:
        ip[0:2] = bytes([0x60 | dscp >> 2, (dscp & 3) << 6 | ip[1] & 0x3F])
    return finish(replace(parts, ip=bytes(ip)), keep_checksum=True)


TUNNELS = {"gre": gre(4, GRE()), "vxlan": vxlan(4, 4789), "vxlan-gpe-ipv6": vxlan(6, 4790, flags=12, next_protocol=3)}


@pytest.mark.parametrize("frame", TUNNELS.values(), ids=TUNNELS)
@pytest.mark.parametrize("tunnels", [(), InTunnel().items], ids=["no-tunnels", "tunnels"])
def test_no_tunnel_of_a_host_brings_the_mark_into_the_domain(
    target: Target, tunnels: tuple[DefaultAction, ...], frame: bytes
) -> None:
    """INT v2.1, "INT over TCP/UDP", 2: packets entering without INT must not have the value that marks INT."""
    role = replace(transit(), extra=(*ByDscp().items, *tunnels))
    assert pass_through(target, role, HOST_PORT, with_dscp(frame, DSCP), expect=0) == []
    assert target.count("drop_int_at_edge") == 1
    assert len(target.send(HOST_PORT, with_dscp(frame, 0x16), expect=1)) == 1


def lookalike(npt: int, value: int) -> bytes:
    """Return a payload that reads like INT with an L4 header behind it."""
    return IntHeaders(0x8000, 5, bytes(4), npt=npt, value=value).encode() + bytes(range(60))


@pytest.mark.parametrize("protocol", [6, 17])
def test_a_payload_that_reads_like_npt_2_stays_out_of_reports(target: Target, protocol: int) -> None:
    frame = build(Shape(payload=lookalike(2, protocol)))
    role = replace(source(Watch(0xE000, mode=XD)), extra=ByDscp().items)
    sent = pass_through(target, role, HOST_PORT, frame, expect=2)
    told = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert told.inner.hex() == after_hop(frame)[14:42].hex()


def with_udp_length(frame: bytes, length: int) -> bytes:
    parts = cut(frame)
    return parts.link + parts.ip + parts.body[:4] + length.to_bytes(2, "big") + parts.body[6:]


def cut_off(frame: bytes, body_bytes: int) -> bytes:
    """Return the frame with an IP length that covers this many bytes; the rest looks like Ethernet's padding."""
    parts = cut(frame)
    short = finish(replace(parts, body=parts.body[:body_bytes]), keep_checksum=True)
    return short + parts.body[body_bytes:]


LIARS = {
    "udp-length-0": with_udp_length(build(Shape(checksum=False)), 0),
    "udp-length-7": with_udp_length(build(Shape(checksum=False)), 7),
    "udp-cut-off": cut_off(build(Shape(checksum=False)), 4),
    "tcp-options-cut-off": cut_off(build(Shape(l4="tcp", l4_options=True)), 24),
    "tcp-cut-off-ipv6": cut_off(build(Shape(version=6, l4="tcp")), 8),
}
MARKERS: list[Marker] = [ByDscp(), ByProbe(), ByUdpPort()]


@pytest.mark.parametrize("frame", LIARS.values(), ids=LIARS)
@pytest.mark.parametrize("marker", MARKERS, ids=["dscp", "probe", "port"])
def test_inconsistent_headers_get_no_int_that_a_hop_would_drop(target: Target, marker: Marker, frame: bytes) -> None:
    out = frame
    for role, port in ((source(Watch(0xF000)), HOST_PORT), (transit(), UP_PORT)):
        sent = pass_through(target, replace(role, extra=marker.items), port, out, expect=1)
        out = frame_on(sent, DOWN_PORT)
    sent = pass_through(target, replace(sink(), extra=marker.items), UP_PORT, out, expect=1)
    assert cut(frame_on(sent, HOST_PORT)).body.hex() == cut(frame).body.hex()


STACK = bytes(range(1, 25))


@pytest.mark.parametrize("reason", ["hops", "skipped"])
def test_a_stack_never_costs_the_packet_its_way(target: Target, reason: str) -> None:
    """Even if a hop may push nothing, earlier hops' words can make the packet too long."""
    headers = IntHeaders(0xE000, 0 if reason == "hops" else 5, STACK, hop_ml=3 if reason == "hops" else 6)
    marked = mark(ByDscp(), build(), headers)
    role = replace(transit(), mtu_bytes=len(marked) - 14 - 1)
    sent = pass_through(target, role, UP_PORT, marked, expect=2)
    left = replace(headers, stack=b"", hops_exceeded=int(reason == "hops"))
    assert frame_on(sent, DOWN_PORT).hex() == mark(ByDscp(), after_hop(build()), left).hex()
    told = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert told.flags == TRACKED | INTERMEDIATE
    assert told.inner_int().stack == STACK


def test_a_report_has_the_new_udp_header_as_it_came(target: Target) -> None:
    """Ours has no checksum; another source may write one, valid for the packet in the report."""
    marked = mark(ByUdpPort(), build(Shape(l4="tcp")), IntHeaders(0xE000, 5, STACK))
    parts = cut(marked)
    frame = finish(Parts(parts.link, parts.ip, parts.body[:6] + b"\0\1" + parts.body[8:]))
    sent = pass_through(target, replace(sink(), extra=ByUdpPort().items), UP_PORT, frame, expect=2)
    told = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert told.inner[20:28].hex() == cut(frame).body[:8].hex()


QUEUE_WATCH = Entry("queue_watch", {"egress_port": DOWN_PORT, "queue_id": 0}, "watch_queue", (1, 0, 1, 0, 9))
SLOW = [PortSettings(HOST_PORT), PortSettings(UP_PORT), PortSettings(COLLECTOR_PORT, queue_frames=64)]
SLOW_PIPELINES: dict[str, PipelineFactory | None] = {"interpreter": None, "compiled": compiled_pipeline}


@pytest.fixture(scope="module", params=list(SLOW_PIPELINES))
def slow_switch(request: pytest.FixtureRequest) -> BuiltinTarget:
    """Return a switch whose port down sends a frame in a millisecond or so: the second one finds a queue."""
    ports = [*SLOW, PortSettings(DOWN_PORT, rate_bps=8_000_000)]
    return BuiltinTarget(ports, pipeline_factory=SLOW_PIPELINES[request.param])


@pytest.fixture
def slow(slow_switch: BuiltinTarget) -> BuiltinTarget:
    """Return that switch, fresh."""
    slow_switch.reset()
    return slow_switch


@pytest.mark.parametrize("instructions", [0xE07E, 0xF001], ids=["sum", "complement"])
@pytest.mark.parametrize(("marker", "plain"), [CASES[name] for name in FEW], ids=FEW)
def test_report_without_int_carries_the_original_packet(
    slow: BuiltinTarget, marker: Marker, plain: bytes, instructions: int
) -> None:
    """Telemetry Report v2.0, "Embedded Telemetry Metadata": without F there is none. At the source and behind it."""
    marked = mark(marker, plain, IntHeaders(instructions, 5, bytes(range(4 * hop_words(instructions)))))
    for role, port, frame in ((source(Watch(instructions)), HOST_PORT, plain), (transit(), UP_PORT, marked)):
        slow.reset()
        slow.write(replace(role, extra=(*marker.items, QUEUE_WATCH)).items())
        sent = slow.send(port, frame, frame, expect=0)
        slow.clock.advance_to(slow.clock.now_ns() + 10_000_000)
        report = decode_report(frame_on(sent, COLLECTOR_PORT))
        assert report.flags == CONGESTED
        parts = cut(after_hops(plain, 1))
        assert (parts.ip + parts.body).hex().startswith(report.inner.hex())
        assert len(report.inner) >= len(parts.ip) + (8 if parts.protocol in (6, 17) else 0)


def test_report_with_nothing_new_does_not_leave_with_a_group(slow: BuiltinTarget) -> None:
    """Any packet passing when the oldest is due is copied, even one whose own report was withdrawn."""
    filters = [Entry("ipv4_flow_filter", {}, "filter_reports", (1_000_000_000, 0xFFFFFFFF), priority=1)]
    gather = DefaultAction("gather", "gather_reports", (4, 1_000))
    slow.write(replace(transit(), extra=(*filters, *watch_drops(), gather)).items())
    marked = mark(ByDscp(), build(), IntHeaders(0xE000, type=TYPE_MX))
    slow.send(UP_PORT, marked, expect=0)
    assert slow.send(UP_PORT, build(ttl=1), expect=0) == []
    slow.clock.advance_to(slow.clock.now_ns() + 20_000_000)
    sent = [frame for port, frame in slow.send(UP_PORT, marked, expect=0) if port == COLLECTOR_PORT]
    (group,) = [report.decode(frame[OUTER_BYTES:]) for frame in sent]
    assert [(individual.dropped, individual.tracked) for individual in group.reports] == [(True, False)]
    assert slow.count("flow_reports_filtered") == 1
