"""The hop by hop variant: each hop reports its own metadata at once, and the packet does not grow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.p4.entries import (
    COLLECTOR_PORT,
    DOWN_PORT,
    HOP_BY_HOP,
    HOST_PORT,
    NEXT_HOP_MAC,
    SWITCH_MAC,
    UP_PORT,
    Watch,
    sink,
    source,
    transit,
)
from tests.p4.frames import PAYLOAD, Shape, build, routed
from tests.p4.targets import Target, frame_on, pass_through
from tests.p4.telemetry import (
    HOP_BY_HOP_FLAG,
    INTERMEDIATE,
    OUR_DOMAIN,
    TRACKED,
    IntHeaders,
    Report,
    decode_report,
    with_int,
)

HEADERS = IntHeaders(0xFF00, 8, domain_id=OUR_DOMAIN, domain_flags=HOP_BY_HOP_FLAG)


def after_hops(frame: bytes, hops: int) -> bytes:
    return routed(frame, src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC, hops=hops)


def assert_report(report: Report, *, node_id: int, ports: tuple[int, int], status: int, last: bool) -> None:
    in_port, out_port = ports
    assert (report.node_id, report.domain_id, report.domain_status) == (node_id, OUR_DOMAIN, status)
    assert (report.report_type, report.metadata_bits, report.domain_metadata_bits) == (1, 0x7F00, 0)
    assert report.flags == (TRACKED if last else TRACKED | INTERMEDIATE)
    assert report.metadata[1] == in_port << 16 | out_port
    assert report.metadata[6] == in_port << 32 | out_port
    assert report.metadata[5] - report.metadata[4] == report.metadata[2]


@pytest.mark.parametrize("shape", [Shape(), Shape(l4="tcp", l4_options=True, vlan=True), Shape(version=6)], ids=str)
def test_path_of_three_switches(target: Target, shape: Shape) -> None:
    original = build(shape)
    sent = pass_through(target, source(Watch(mode=HOP_BY_HOP)), HOST_PORT, original, expect=2)
    after_source = with_int(after_hops(original, 1), replace(HEADERS, remaining_hops=7))
    assert frame_on(sent, DOWN_PORT).hex() == after_source.hex()
    first = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert_report(first, node_id=101, ports=(HOST_PORT, DOWN_PORT), status=0x8007, last=False)
    start = 18 if shape.vlan else 14
    assert first.inner.hex() == after_source[start : -len(PAYLOAD)].hex(), "the packet as it left, less its payload"

    sent = pass_through(target, transit(), UP_PORT, after_source, expect=2)
    after_transit = with_int(after_hops(original, 2), replace(HEADERS, remaining_hops=6))
    assert frame_on(sent, DOWN_PORT).hex() == after_transit.hex()
    second = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert_report(second, node_id=102, ports=(UP_PORT, DOWN_PORT), status=0x8006, last=False)
    assert second.inner_int() == replace(HEADERS, remaining_hops=6, hop_ml=11, length=3, value=0x28)

    sent = pass_through(target, sink(), UP_PORT, after_transit, expect=2)
    assert frame_on(sent, HOST_PORT).hex() == after_hops(original, 3).hex()
    last = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert_report(last, node_id=103, ports=(UP_PORT, HOST_PORT), status=0xC005, last=True)
    assert last.inner_int() == replace(HEADERS, remaining_hops=6, hop_ml=11, length=3, value=0x28)


def test_no_hops_remain_in_transit(target: Target) -> None:
    headers = replace(HEADERS, remaining_hops=0)
    sent = pass_through(target, transit(), UP_PORT, with_int(build(), headers), expect=1)
    expected = with_int(after_hops(build(), 1), replace(headers, hops_exceeded=1))
    assert [(port, frame.hex()) for port, frame in sent] == [(DOWN_PORT, expected.hex())]
    assert (target.count("int_hops_exceeded"), target.count("int_reports")) == (1, 0)


def test_no_hops_remain_at_the_sink(target: Target) -> None:
    marked = with_int(build(), replace(HEADERS, remaining_hops=0))
    sent = pass_through(target, sink(), UP_PORT, marked, expect=2)
    assert frame_on(sent, HOST_PORT) == after_hops(build(), 1)
    assert decode_report(frame_on(sent, COLLECTOR_PORT)).domain_status == 0xC000
