"""Reports of tracked flows without news are not sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.switch.switch import PipelineFactory, PortSettings
from dataplane.wire.drop_reasons import DropReason
from tests.p4.builtin_target import BuiltinTarget
from tests.p4.entries import COLLECTOR_PORT, DOWN_PORT, UP_PORT, Entry, sink, transit, watch_drops
from tests.p4.frames import Shape, build
from tests.p4.targets import Target
from tests.p4.telemetry import DROPPED, HOP_BY_HOP_FLAG, OUR_DOMAIN, TRACKED, IntHeaders, decode_report, with_int

HEADERS = IntHeaders(0xFF00, 8, domain_id=OUR_DOMAIN, domain_flags=HOP_BY_HOP_FLAG)
FOREVER_US = 0xFFFFFFFF


def packet(flow: int = 0, version: int = 4) -> bytes:
    """Return a packet that a switch in the middle reports."""
    return with_int(build(Shape(version=version), src_port=4000 + flow), HEADERS)


def flow_filter(quantum_ns: int, refresh_us: int, **match: tuple[int, int]) -> tuple[Entry, ...]:
    return tuple(
        Entry(f"ipv{version}_flow_filter", match, "filter_reports", (quantum_ns, refresh_us), priority=1)
        for version in (4, 6)
    )


def reports(target: Target, *frames: bytes, port: int = UP_PORT, expect: int) -> int:
    """Return how many reports the frames cause; wait for `expect`."""
    sent = target.send(port, *frames, expect=len(frames) + expect)
    return sum(out == COLLECTOR_PORT for out, _ in sent)


def filtering(target: Target, *filters: Entry) -> Target:
    target.write(replace(transit(), extra=filters).items())
    return target


@pytest.fixture(params=["builtin", "compiled"])
def timed(request: pytest.FixtureRequest) -> BuiltinTarget:
    """Return a switch with a manual clock."""
    switch: BuiltinTarget = request.getfixturevalue(request.param)
    switch.reset()
    return switch


def test_without_a_filter_every_report_is_sent(target: Target) -> None:
    assert reports(filtering(target), *[packet()] * 3, expect=3) == 3


@pytest.mark.parametrize("version", [4, 6])
def test_a_flow_is_reported_once_as_long_as_nothing_changes(target: Target, version: int) -> None:
    filtering(target, *flow_filter(1_000_000_000, FOREVER_US))
    # A bmv2's registers outlive the test: flows of its own.
    flow = 10 * version
    assert reports(target, *[packet(flow, version)] * 5, expect=1) == 1
    assert reports(target, packet(flow + 1, version), packet(flow, version), expect=1) == 1
    assert target.count("flow_reports_filtered") == 5


@pytest.mark.parametrize(("reason", "expected"), [(DropReason.NO_ROUTE, 1), (DropReason.INT_DISCARD, 5)])
def test_unwatched_drop_carries_no_report_past_the_filter(target: Target, reason: DropReason, expected: int) -> None:
    probe = with_int(build(src_port=4100 + reason), replace(HEADERS, discard=1))
    extra = (*watch_drops(reason=reason), *flow_filter(1_000_000_000, FOREVER_US))
    target.write(replace(sink(), extra=extra).items())
    sent = target.send(UP_PORT, *[probe] * 5, expect=expected)
    flags = [decode_report(data).flags for _, data in sent]
    assert flags == [TRACKED if reason == DropReason.NO_ROUTE else DROPPED | TRACKED] * expected
    assert target.count("flow_reports_filtered") == 4


def test_another_way_through_the_switch_is_news(timed: BuiltinTarget) -> None:
    filtering(timed, *flow_filter(1_000_000_000, FOREVER_US))
    assert reports(timed, packet(), expect=1) == 1
    assert reports(timed, packet(), port=DOWN_PORT, expect=1) == 1
    assert reports(timed, packet(), port=DOWN_PORT, expect=0) == 0
    assert reports(timed, packet(), expect=1) == 1


def test_each_flow_is_reported_again_after_its_refresh_time(timed: BuiltinTarget) -> None:
    filtering(timed, *flow_filter(1_000_000_000, 5_000))
    # A send takes a millisecond: packets at 1, 2, ... ms.
    assert [reports(timed, packet(), expect=0) for _ in range(11)] == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("factory", [None, compiled_pipeline], ids=["interpreter", "compiled"])
@pytest.mark.parametrize(
    ("quantum_us", "reported_us"), [(141, [0, 141, 282, 423, 564, 705]), (142, [0, 282, 564]), (283, [0, 423])]
)
def test_latency_is_news_when_it_differs_by_a_quantum(
    quantum_us: int, reported_us: list[int], factory: PipelineFactory | None
) -> None:
    # 117 bytes and 24 of gap take 141 us at 8 Mbit/s: each packet of a burst waits so much longer.
    ports = [PortSettings(UP_PORT), PortSettings(COLLECTOR_PORT), PortSettings(DOWN_PORT, rate_bps=8_000_000)]
    switch = BuiltinTarget(ports, pipeline_factory=factory)
    filtering(switch, *flow_filter(quantum_us * 1000, FOREVER_US))
    sent = switch.send(UP_PORT, *[packet()] * 6, expect=0)
    latencies = [decode_report(frame).metadata[2] for port, frame in sent if port == COLLECTOR_PORT]
    assert latencies == [latency * 1000 for latency in reported_us]


def test_a_filter_is_for_the_flows_that_it_names(timed: BuiltinTarget) -> None:
    filtering(timed, *flow_filter(1_000_000_000, FOREVER_US, src_port=(4001, 0xFFFF)))
    assert reports(timed, *[packet(0)] * 3, *[packet(1)] * 3, expect=4) == 4


def test_a_thousand_flows_do_not_disturb_each_other(timed: BuiltinTarget) -> None:
    filtering(timed, *flow_filter(1_000_000_000, FOREVER_US))
    frames = [packet(flow) for flow in range(500)]
    assert reports(timed, *frames, expect=500) == 500
    again = reports(timed, *frames, expect=0)
    assert again <= 2, "only flows that share both cells"
