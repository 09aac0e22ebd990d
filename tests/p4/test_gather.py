"""Several individual reports in one packet: which wait, their form, and when they leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dataplane.wire import report
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.report import ReportPacket
from tests.p4.builtin_target import BuiltinTarget
from tests.p4.drop_cases import CASES, MARKED
from tests.p4.entries import (
    COLLECTOR_PORT,
    HOST_PORT,
    UP_PORT,
    DefaultAction,
    Item,
    sink,
    transit,
    watch_drops,
)
from tests.p4.frames import Shape, build
from tests.p4.targets import Sent, Target
from tests.p4.telemetry import OUTER_BYTES, IntHeaders, with_int

AGE_US = 10_000
"""Ten sends of the built-in target."""
TTL = build(ttl=1)


def gathering(most: int, age_us: int = AGE_US) -> tuple[Item, ...]:
    return (*watch_drops(), DefaultAction("gather", "gather_reports", (most, age_us)))


def groups(sent: Sent) -> list[ReportPacket]:
    """Return the report packets; the codec checks that reports and lengths add up."""
    frames = [frame for port, frame in sent if port == COLLECTOR_PORT]
    for frame in frames:
        assert int.from_bytes(frame[16:18], "big") == len(frame) - 14
        assert int.from_bytes(frame[38:40], "big") == len(frame) - 34
    return [report.decode(frame[OUTER_BYTES:]) for frame in frames]


def inners(sent: Sent) -> list[list[bytes]]:
    """Return the truncated packets by report packet."""
    return [[individual.inner for individual in group.reports] for group in groups(sent)]


@pytest.mark.parametrize("most", [2, 3, 4])
def test_as_many_reports_as_asked_for_share_a_packet(target: Target, most: int) -> None:
    target.write(replace(transit(), extra=gathering(most, 0xFFFFFFFF)).items())
    frames = [build(ttl=1, src_port=4000 + flow) for flow in range(2 * most)]
    expected = [frame[14:42] for frame in frames]
    assert inners(target.send(UP_PORT, *frames, expect=2)) == [expected[:most], expected[most:]]
    assert (target.count("int_reports"), target.count("reports_gathered")) == (2, 2 * (most - 1))


def test_a_group_has_one_number(target: Target) -> None:
    target.write(replace(transit(), extra=gathering(2, 0xFFFFFFFF)).items())
    reports = groups(target.send(UP_PORT, *[TTL] * 6, expect=3))
    first = reports[0].group.sequence
    assert [group.group.sequence for group in reports] == [first, first + 1, first + 2]


@pytest.mark.parametrize("most", [0, 1])
def test_one_report_a_packet_is_no_gathering(target: Target, most: int) -> None:
    target.write(replace(transit(), extra=gathering(most)).items())
    assert [len(group.reports) for group in groups(target.send(UP_PORT, *[TTL] * 3, expect=3))] == [1, 1, 1]


SHAPES = {
    "udp": Shape(),
    "tcp": Shape(l4="tcp"),
    "ipv6-udp": Shape(version=6),
    "ipv6-tcp": Shape(version=6, l4="tcp", vlan=True),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_what_waited_leaves_as_it_would_have_left_alone(target: Target, shape: Shape) -> None:
    frame = build(shape, ttl=1)
    target.write(replace(transit(), extra=watch_drops()).items())
    ((alone,),) = [group.reports for group in groups(target.send(UP_PORT, frame, expect=1))]
    target.reset()
    target.write(replace(transit(), extra=gathering(2, 0xFFFFFFFF)).items())
    ((waited, last),) = [group.reports for group in groups(target.send(UP_PORT, frame, frame, expect=1))]
    assert waited.inner == last.inner == alone.inner
    for individual in (waited, last):
        assert individual.main is not None
        assert alone.main is not None
        assert individual.main.bits == alone.main.bits
        assert individual.main.metadata.drop_reason == DropReason.TTL_EXPIRED
        assert individual.dropped


LONG = {
    "options": build(Shape(l4="tcp", l4_options=True), ttl=1),
    "ip-options": build(Shape(ip_options=True), ttl=1),
    "ethernet": CASES["second-vlan-tag"].frame,
    "telemetry": with_int(build(ttl=1), IntHeaders(0x8000, 4, bytes(8))),
}


@pytest.mark.parametrize("frame", LONG.values(), ids=LONG.keys())
def test_what_cannot_wait_takes_along_what_does(target: Target, frame: bytes) -> None:
    target.write(replace(transit(), extra=gathering(4, 0xFFFFFFFF)).items())
    ((first, second, third),) = inners(target.send(UP_PORT, TTL, TTL, frame, expect=1))
    assert first == second == TTL[14:42]
    assert frame.find(third) in (0, 14)


def test_the_report_of_a_stack_comes_last(target: Target) -> None:
    target.write(replace(sink(), extra=gathering(4, 0xFFFFFFFF)).items())
    (group,) = groups(target.send(UP_PORT, TTL, MARKED, expect=2))
    assert [(individual.dropped, individual.tracked) for individual in group.reports] == [(True, False), (False, True)]


@pytest.fixture(params=["builtin", "compiled"])
def timed(request: pytest.FixtureRequest) -> BuiltinTarget:
    """Return a switch with a manual clock, a millisecond later at each send."""
    switch: BuiltinTarget = request.getfixturevalue(request.param)
    switch.reset()
    return switch


@pytest.mark.parametrize("port", [UP_PORT, HOST_PORT])
def test_any_packet_sends_what_has_waited_too_long(timed: BuiltinTarget, port: int) -> None:
    timed.write(replace(transit(), extra=gathering(4, 5_000)).items())
    assert groups(timed.send(UP_PORT, TTL, expect=0)) == []
    waits = [len(groups(timed.send(port, build(), expect=0))) for _ in range(8)]
    assert waits == [0, 0, 0, 0, 1, 0, 0, 0], "once, and only once"
    assert timed.count("int_reports") == 1


def test_age_counts_from_the_oldest(timed: BuiltinTarget) -> None:
    timed.write(replace(transit(), extra=gathering(4, 5_000)).items())
    sizes = [[len(group.reports) for group in groups(timed.send(UP_PORT, TTL, expect=0))] for _ in range(3)]
    assert sizes == [[], [], []]
    late = [[len(group.reports) for group in groups(timed.send(UP_PORT, build(), expect=0))] for _ in range(4)]
    assert late == [[], [], [3], []]


def test_burst_copies_once_per_packet_and_drops_all_but_one(timed: BuiltinTarget) -> None:
    timed.write(replace(transit(), extra=gathering(4, 5_000)).items())
    timed.send(UP_PORT, TTL, expect=0)
    timed.clock.advance_to(timed.clock.now_ns() + 10_000_000)
    assert [len(group.reports) for group in groups(timed.send(UP_PORT, *[build()] * 5, expect=0))] == [1]


def test_the_number_may_change_while_reports_wait(timed: BuiltinTarget) -> None:
    timed.write(replace(transit(), extra=gathering(4, 0xFFFFFFFF)).items())
    assert groups(timed.send(UP_PORT, TTL, TTL, TTL, expect=0)) == []
    timed.write([DefaultAction("gather", "gather_reports", (1, 0))])
    assert [len(group.reports) for group in groups(timed.send(UP_PORT, TTL, TTL, expect=0))] == [4, 1]
