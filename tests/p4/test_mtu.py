"""Packets that INT would make too long for their port: no INT, M, or the stack in an intermediate report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.p4.entries import (
    COLLECTOR_PORT,
    DOWN_PORT,
    HOST_PORT,
    MX,
    NEXT_HOP_MAC,
    SWITCH_MAC,
    UP_PORT,
    Watch,
    sink,
    source,
    transit,
)
from tests.p4.frames import Shape, build, routed
from tests.p4.markers import ByDscp, ByProbe, ByUdpPort, Marker, cut, mark, read
from tests.p4.targets import Target, frame_on, pass_through
from tests.p4.telemetry import INTERMEDIATE, OUR_DOMAIN, SOURCE_NUMBER, TRACKED, IntHeaders, decode_report

SHAPES = [Shape(), Shape(l4="tcp", l4_options=True), Shape(version=6)]
STACK = bytes(range(1, 25))
WORDS = 0xF000
HOP_BYTES = 16


def after_hop(frame: bytes) -> bytes:
    return routed(frame, src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC)


def ip_bytes(frame: bytes) -> int:
    return len(frame) - 14


def markers() -> list[tuple[Marker, int]]:
    """Return marks, with the bytes that each takes besides shim and header."""
    return [(ByDscp(), 0), (ByProbe(), 8), (ByUdpPort(always_new_udp=True), 8)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("marker", "extra"), markers())
def test_without_room_for_the_fixed_headers_there_is_no_int(
    target: Target, marker: Marker, extra: int, shape: Shape
) -> None:
    fixed = ip_bytes(build(shape)) + 16 + extra
    role = replace(source(Watch(WORDS)), extra=marker.items, mtu_bytes=fixed - 1)
    sent = pass_through(target, role, HOST_PORT, build(shape), expect=1)
    assert frame_on(sent, DOWN_PORT).hex() == after_hop(build(shape)).hex()
    assert (target.count("int_not_sourced"), target.count("int_sourced")) == (1, 0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("marker", "extra"), markers())
def test_with_room_for_the_headers_only_the_source_sets_m(
    target: Target, marker: Marker, extra: int, shape: Shape
) -> None:
    fixed = ip_bytes(build(shape)) + 16 + extra
    for mtu, hops, exceeded in ((fixed, 0, 1), (fixed + HOP_BYTES - 1, 0, 1), (fixed + HOP_BYTES, 1, 0)):
        role = replace(source(Watch(WORDS)), extra=marker.items, mtu_bytes=mtu)
        frame = frame_on(pass_through(target, role, HOST_PORT, build(shape), expect=1), DOWN_PORT)
        decoded = read(marker, frame)
        expected = IntHeaders(WORDS, 8 - hops, decoded.stack, mtu_exceeded=exceeded)
        assert frame.hex() == mark(marker, after_hop(build(shape)), expected, like=frame).hex()
        assert len(decoded.stack) == hops * HOP_BYTES
        assert target.count("int_mtu_exceeded") == exceeded


@pytest.mark.parametrize("exceeded", [0, 1])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_transit_that_lacks_room_sets_m_and_pushes_nothing(target: Target, shape: Shape, exceeded: int) -> None:
    headers = IntHeaders(0xE000, 5, STACK, mtu_exceeded=exceeded)
    marked = mark(ByDscp(), build(shape), headers)
    role = replace(transit(), mtu_bytes=ip_bytes(marked) + 11)
    sent = pass_through(target, role, UP_PORT, marked, expect=1)
    expected = mark(ByDscp(), after_hop(build(shape)), replace(headers, mtu_exceeded=1))
    assert frame_on(sent, DOWN_PORT).hex() == expected.hex()
    assert (target.count("int_mtu_exceeded"), target.count("int_transit")) == (1, 0)


@pytest.mark.parametrize(("marker", "extra"), markers())
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_transit_that_strips_reports_the_stack_and_its_own_hop(
    target: Target, marker: Marker, extra: int, shape: Shape
) -> None:
    headers = IntHeaders(0xE000, 5, STACK)
    marked = mark(marker, build(shape), headers)
    role = replace(transit(), extra=marker.items, mtu_bytes=ip_bytes(marked), strip_at_mtu=True)
    sent = pass_through(target, role, UP_PORT, marked, expect=2)
    stripped = mark(marker, after_hop(build(shape)), replace(headers, stack=b""), like=marked)
    assert frame_on(sent, DOWN_PORT).hex() == stripped.hex()
    report = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert (report.flags, report.node_id, list(report.metadata)) == (TRACKED | INTERMEDIATE, 102, [1, 2])
    arrived = cut(mark(marker, after_hop(build(shape)), headers, like=marked))
    assert (arrived.ip + arrived.body).hex().startswith(report.inner.hex())
    assert target.count("int_stripped") == 1


def test_a_number_of_the_source_stays_with_the_packet(target: Target) -> None:
    headers = IntHeaders(0xE000, 5, STACK[:12] + b"\0\0\0\7", domain_id=OUR_DOMAIN, domain_instructions=SOURCE_NUMBER)
    marked = mark(ByDscp(), build(), headers)
    role = replace(transit(), mtu_bytes=ip_bytes(marked), strip_at_mtu=True)
    sent = pass_through(target, role, UP_PORT, marked, expect=2)
    expected = mark(ByDscp(), after_hop(build()), replace(headers, stack=b"\0\0\0\7"))
    assert frame_on(sent, DOWN_PORT).hex() == expected.hex()
    assert decode_report(frame_on(sent, COLLECTOR_PORT)).inner_int().stack == headers.stack


def test_only_packets_with_int_take_a_number_of_the_source(target: Target) -> None:
    long = build(Shape(payload=bytes(400)))
    watch = Watch(WORDS, domain_instructions=SOURCE_NUMBER, watch_id=77)
    role = replace(source(watch), mtu_bytes=ip_bytes(long))
    sent = pass_through(target, role, HOST_PORT, build(), long, build(), expect=3)
    marked = [data for _, data in sent if len(data) < len(long)]
    numbers = [int.from_bytes(read(ByDscp(), frame).stack[-4:], "big") for frame in marked]
    assert numbers[1] == numbers[0] + 1
    assert (target.count("int_sourced"), target.count("int_not_sourced")) == (2, 1)


def test_what_came_too_long_is_stripped_rather_than_dropped(target: Target) -> None:
    headers = IntHeaders(0xE000, 5, STACK)
    marked = mark(ByDscp(), build(), headers)
    sent = pass_through(target, replace(transit(), mtu_bytes=ip_bytes(marked) - 1), UP_PORT, marked, expect=2)
    expected = mark(ByDscp(), after_hop(build()), replace(headers, stack=b""))
    assert frame_on(sent, DOWN_PORT).hex() == expected.hex()


def test_what_is_too_long_without_int_is_dropped(target: Target) -> None:
    frame = build(Shape(payload=bytes(600)))
    role = replace(transit(), mtu_bytes=ip_bytes(frame) - 1)
    assert pass_through(target, role, UP_PORT, frame, expect=0) == []
    assert target.count("drop_mtu_exceeded") == 1
    sent = pass_through(target, replace(role, mtu_bytes=ip_bytes(frame)), UP_PORT, frame, expect=1)
    assert frame_on(sent, DOWN_PORT) == after_hop(frame)


@pytest.mark.parametrize("mode", [0, MX])
def test_the_sink_needs_no_room_for_int(target: Target, mode: int) -> None:
    """Only the size of the packet that leaves counts."""
    marked = mark(ByDscp(), build(), IntHeaders(0x8000, 5, bytes(4) if not mode else b"", type=3 if mode else 1))
    role = replace(sink(), mtu_bytes=ip_bytes(build()))
    sent = pass_through(target, role, UP_PORT, marked, expect=2)
    assert frame_on(sent, HOST_PORT) == after_hop(build())
