"""A packet over three switches: source, transit, sink; every byte of it at every hop, and the report at the end."""

from __future__ import annotations

import pytest
from scapy.layers.l2 import Ether

from tests.p4.entries import (
    COLLECTOR_PORT,
    DOWN_PORT,
    HOST_PORT,
    NEXT_HOP_MAC,
    REPORT_TARGET,
    SWITCH_MAC,
    UP_PORT,
    DefaultAction,
    Watch,
    sink,
    source,
    transit,
)
from tests.p4.frames import PAYLOAD, SHAPES, Shape, assert_good, build, routed
from tests.p4.targets import Target, frame_on, pass_through
from tests.p4.telemetry import TRACKED, IntHeaders, decode_report, read_int, with_int

INSTRUCTIONS = 0xFF00


def after_hops(frame: bytes, hops: int) -> bytes:
    return routed(frame, src_mac=SWITCH_MAC, dst_mac=NEXT_HOP_MAC, hops=hops)


def assert_hop(metadata: dict[int, int], *, node_id: int | None, in_port: int, out_port: int) -> None:
    """Check everything of a hop except times and loads."""
    if node_id is not None:
        assert metadata[0] == node_id
    assert metadata[1] == in_port << 16 | out_port
    assert metadata[6] == in_port << 32 | out_port
    assert metadata[3] == 0, "queue 0, which nobody was waiting in"
    assert metadata[4] % 1000 == metadata[5] % 1000 == metadata[2] % 1000 == 0, "whole microseconds"
    assert metadata[5] - metadata[4] == metadata[2], "the hop's latency is the difference of its timestamps"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_path_of_three_switches(target: Target, shape: Shape) -> None:
    original = build(shape)
    assert_good(original)

    after_source = frame_on(pass_through(target, source(Watch()), HOST_PORT, original, expect=1), DOWN_PORT)
    assert_good(after_source)
    first = read_int(after_source)
    assert after_source.hex() == with_int(after_hops(original, 1), IntHeaders(INSTRUCTIONS, 7, first.stack)).hex()
    assert_hop(first.hops()[0], node_id=101, in_port=HOST_PORT, out_port=DOWN_PORT)

    after_transit = frame_on(pass_through(target, transit(), UP_PORT, after_source, expect=1), DOWN_PORT)
    assert_good(after_transit)
    second = read_int(after_transit)
    assert after_transit.hex() == with_int(after_hops(original, 2), IntHeaders(INSTRUCTIONS, 6, second.stack)).hex()
    assert second.stack.endswith(first.stack)
    assert len(second.hops()) == 2
    assert_hop(second.hops()[0], node_id=102, in_port=UP_PORT, out_port=DOWN_PORT)

    sent = pass_through(target, sink(), UP_PORT, after_transit, expect=2)
    assert frame_on(sent, HOST_PORT).hex() == after_hops(original, 3).hex()
    assert {counter: target.count(counter) for counter in ("int_sunk", "int_reports", "int_transit")} == {
        "int_sunk": 1,
        "int_reports": 1,
        "int_transit": 0,
    }

    report = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert (report.version, report.hardware_id, report.node_id) == (2, 0, 103)
    assert (report.report_type, report.inner_type, report.flags) == (1, 4 if shape.version == 4 else 5, TRACKED)
    assert (report.metadata_bits, report.domain_id) == (0x7F00, 0)
    assert (report.domain_metadata_bits, report.domain_status) == (0, 0)
    assert_hop(report.metadata, node_id=None, in_port=UP_PORT, out_port=HOST_PORT)
    assert report.inner_int() == read_int(after_transit)
    arrived = with_int(after_hops(original, 3), read_int(after_transit))
    start, end = (18 if shape.vlan else 14), len(arrived) - len(shape.payload)
    assert report.inner.hex() == arrived[start:end].hex(), "the packet as it arrived, less its payload"


def test_report_outer_headers(target: Target) -> None:
    marked = with_int(build(), IntHeaders(0x8000, 3, b"\0\0\0\x65"))
    report = decode_report(frame_on(pass_through(target, sink(), UP_PORT, marked, expect=2), COLLECTOR_PORT))
    src_mac, dst_mac, src_addr, dst_addr, udp_port = REPORT_TARGET
    outer = Ether(report.outer)
    assert report.outer[:12] == dst_mac.to_bytes(6, "big") + src_mac.to_bytes(6, "big")
    assert report.outer[26:34] == src_addr.to_bytes(4, "big") + dst_addr.to_bytes(4, "big")
    assert (outer.sport, outer.dport) == (udp_port, udp_port)


@pytest.mark.parametrize("shape", [Shape(), Shape(version=6, l4="tcp", l4_options=True)], ids=str)
@pytest.mark.parametrize("hop_by_hop", [0, 1])
def test_source_and_sink_in_one_switch(target: Target, shape: Shape, hop_by_hop: int) -> None:
    role = sink(104)
    switch = type(role)(104, HOST_PORT, out_is_edge=True, watch=Watch(0xFF00, max_hops=5, mode=hop_by_hop))
    original = build(shape)
    sent = pass_through(target, switch, HOST_PORT, original, expect=2)
    assert frame_on(sent, HOST_PORT).hex() == after_hops(original, 1).hex()
    report = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert report.node_id == 104
    assert (report.inner_int().stack, report.inner_int().remaining_hops) == (b"", 5)
    assert report.domain_status == (0xC004 if hop_by_hop else 0)
    inserted = with_int(after_hops(original, 1), report.inner_int())
    assert inserted.endswith(PAYLOAD)
    assert report.inner.hex() == inserted[14 : -len(PAYLOAD)].hex()
    assert [target.count(name) for name in ("int_sourced", "int_transit", "int_sunk")] == [1, 0, 1]


def test_reports_are_numbered_without_gaps(target: Target) -> None:
    marked = with_int(build(), IntHeaders(0x8000, 3, b"\0\0\0\x65"))
    sent = pass_through(target, sink(), UP_PORT, *[marked] * 5, expect=10)
    numbers = [decode_report(data).sequence for port, data in sent if port == COLLECTOR_PORT]
    assert numbers == list(range(numbers[0], numbers[0] + 5))


def test_reports_are_numbered_for_each_destination(target: Target) -> None:
    marked = with_int(build(), IntHeaders(0x8000, 3, b"\0\0\0\x65"))
    numbers: dict[int, list[int]] = {}
    target.write(sink().items())
    for port in (32766, 5000, 32766, 5000, 5000, 32766):
        target.write([DefaultAction("report_target", "set_report_target", (*REPORT_TARGET[:4], port))])
        report = frame_on(target.send(UP_PORT, marked, expect=2), COLLECTOR_PORT)
        numbers.setdefault(port, []).append(decode_report(report).sequence)
    assert all(sequence == list(range(sequence[0], sequence[0] + 3)) for sequence in numbers.values())


def test_transit_without_instructions_changes_only_the_ttl(target: Target) -> None:
    """An empty instruction bitmap: a hop adds no words, but it counts."""
    marked = with_int(build(), IntHeaders(0, 3))
    sent = frame_on(pass_through(target, transit(), UP_PORT, marked, expect=1), DOWN_PORT)
    assert sent.hex() == with_int(after_hops(build(), 1), IntHeaders(0, 2)).hex()
