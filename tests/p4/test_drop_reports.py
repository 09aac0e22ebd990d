"""Drop reports: every packet dropped in the pipeline is reported with its reason, if watched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dataplane.wire.drop_reasons import DropReason
from tests.p4.builtin_target import BuiltinTarget
from tests.p4.drop_cases import CASES, MARKED, DropCase, with_ip
from tests.p4.entries import (
    COLLECTOR,
    COLLECTOR_PORT,
    COLLECTOR_UDP_PORT,
    HOST_PORT,
    UP_PORT,
    Role,
    sink,
    source,
    watch_drops,
)
from tests.p4.entries import Watch as IntWatch
from tests.p4.frames import Shape, build
from tests.p4.targets import Sent, Target, frame_on, pass_through
from tests.p4.telemetry import DROPPED, TRACKED, IntHeaders, decode_report, with_int

INNER_NONE, INNER_ETHERNET, INNER_IPV4, INNER_IPV6 = 0, 3, 4, 5
NO_ROUTE = CASES["no-route"]
WINDOW_NS = (1 << 20) * 1000


def reporting(role: Role, quota: int = 0, reason: int = 0) -> Role:
    return replace(role, extra=watch_drops(quota, reason=reason))


def source_role(quota: int = 0, reason: int = 0) -> Role:
    return reporting(source(IntWatch()), quota, reason)


def inner_type(frame: bytes) -> int:
    """Return what the parser recognised in a frame before the drop."""
    at = 16 if frame[12:14] == b"\x81\x00" else 12
    kinds = {b"\x08\x00": (INNER_IPV4, 20), b"\x86\xdd": (INNER_IPV6, 40)}
    kind, header_bytes = kinds.get(frame[at : at + 2], (INNER_ETHERNET, 2))
    whole = len(frame) >= at + 2 + header_bytes
    return kind if whole else INNER_ETHERNET if len(frame) >= at + 4 else INNER_NONE


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_drop_has_its_report(target: Target, case: DropCase) -> None:
    if len(case.frame) < target.shortest_frame:
        pytest.skip(f"a frame of {len(case.frame)} bytes cannot reach {target.name}")
    sent = pass_through(target, source_role(), case.port, case.frame, expect=1)
    report = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert len(sent) == 1
    reason = DropReason[case.counter.removeprefix("drop_").upper()]
    assert (report.flags, report.inner_type) == (DROPPED, inner_type(case.frame))
    assert report.metadata_bits == 0x4801
    assert report.metadata[1] == case.port << 16 | 0xFFFF
    assert report.metadata[15] == 0xFF << 24 | reason << 16
    start = 0 if report.inner_type == INNER_ETHERNET else 18 if case.frame[12:14] == b"\x81\x00" else 14
    assert case.frame[start:].startswith(report.inner), "the packet as it came in"
    assert bool(report.inner) == (report.inner_type != INNER_NONE)


@pytest.mark.parametrize("shape", [Shape(l4="tcp", l4_options=True, ip_options=True, vlan=True), Shape(version=6)])
def test_the_report_goes_as_far_as_l4(target: Target, shape: Shape) -> None:
    frame = build(shape, ttl=1)
    sent = pass_through(target, source_role(), UP_PORT, frame, expect=1)
    report = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert report.inner == frame[18 if shape.vlan else 14 : -len(shape.payload)]


def test_a_packet_with_telemetry_is_reported_with_it(target: Target) -> None:
    frame = with_int(build(ttl=1), IntHeaders(0x8000, 4, bytes(8)))
    sent = pass_through(target, reporting(sink()), UP_PORT, frame, expect=1)
    report = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert report.flags == DROPPED | TRACKED
    assert report.inner_int().stack == bytes(8)


@pytest.mark.parametrize(("port", "frame"), [(HOST_PORT, MARKED), (UP_PORT, CASES["int-beyond-udp"].frame)])
def test_telemetry_that_nobody_should_believe_is_left_out(target: Target, port: int, frame: bytes) -> None:
    sent = pass_through(target, source_role(), port, frame, expect=1)
    report = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert (report.flags, report.inner) == (DROPPED, frame[14:42])


def test_a_discarded_probe_has_one_report_that_says_so(target: Target) -> None:
    marked = with_int(build(), IntHeaders(0x8000, 4, bytes(8), discard=1))
    sent = pass_through(target, reporting(sink()), UP_PORT, marked, expect=1)
    report = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert report.flags == DROPPED | TRACKED
    assert report.metadata[15] == DropReason.INT_DISCARD << 16
    assert report.metadata[1] == UP_PORT << 16 | HOST_PORT
    assert report.inner_int().stack == bytes(8)


def test_discarded_probe_is_reported_without_drop_watch(target: Target) -> None:
    marked = with_int(build(), IntHeaders(0x8000, 4, bytes(8), discard=1))
    sent = pass_through(target, reporting(sink(), reason=DropReason.NO_ROUTE), UP_PORT, marked, expect=1)
    report = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert (report.flags, report.metadata_bits) == (TRACKED, 0)


def test_only_watched_reasons_are_reported(target: Target) -> None:
    ttl = CASES["ttl-1"]
    role = source_role(reason=DropReason.NO_ROUTE)
    assert pass_through(target, role, ttl.port, ttl.frame, expect=0) == []
    assert target.count("drop_report_not_watched") == 1
    assert len(target.send(NO_ROUTE.port, NO_ROUTE.frame, expect=1)) == 1


def test_without_the_default_action_there_are_no_copies(target: Target) -> None:
    role = replace(source(IntWatch()), extra=watch_drops()[1:])
    assert pass_through(target, role, NO_ROUTE.port, NO_ROUTE.frame, expect=0) == []
    assert target.count("drop_report_not_watched") == 0


def test_reports_about_reports_are_not_sent(target: Target) -> None:
    to_collector = {"dst": COLLECTOR, "ttl": 1}
    frame = with_ip(build(Shape(checksum=False), dst_port=COLLECTOR_UDP_PORT), **to_collector)
    assert pass_through(target, source_role(), UP_PORT, frame, expect=0) == []
    assert target.count("drop_report_about_report") == 1
    other_port = with_ip(build(Shape(checksum=False), dst_port=COLLECTOR_UDP_PORT + 1), **to_collector)
    assert len(target.send(UP_PORT, other_port, expect=1)) == 1


def send_dropped(target: BuiltinTarget, frames: int) -> Sent:
    return target.send(NO_ROUTE.port, *[NO_ROUTE.frame] * frames, expect=0)


@pytest.mark.parametrize("name", ["builtin", "compiled"])
def test_a_flood_of_drops_has_as_many_reports_as_the_quota(name: str, request: pytest.FixtureRequest) -> None:
    target: BuiltinTarget = request.getfixturevalue(name)
    target.reset()
    target.write(source_role(quota=3).items())
    assert len(send_dropped(target, 50)) == 3
    assert target.count("drop_report_over_quota") == 47
    target.clock.advance_to(target.clock.now_ns() + WINDOW_NS)
    assert len(send_dropped(target, 2)) == 2
    assert [decode_report(frame).sequence for _, frame in send_dropped(target, 9)] == [5]
