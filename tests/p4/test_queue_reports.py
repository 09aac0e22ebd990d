"""Congested queues: packets that meet one are reported, until the episode's quota is spent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.switch.switch import PipelineFactory, PortSettings
from tests.p4.builtin_target import BuiltinTarget
from tests.p4.drop_cases import MARKED, with_ip
from tests.p4.entries import (
    COLLECTOR,
    COLLECTOR_PORT,
    COLLECTOR_UDP_PORT,
    DOWN_PORT,
    HOST_PORT,
    UP_PORT,
    Entry,
    transit,
)
from tests.p4.frames import Shape, build
from tests.p4.targets import Target, frame_on, pass_through
from tests.p4.telemetry import CONGESTED, Report, decode_report

FRAME = build(Shape(payload=bytes(1000 - 24 - 42)))
FRAME_NS = 1_000_000
"""1,000 bytes with their gap, at 8 Mbit/s."""
PIPELINES: dict[str, PipelineFactory | None] = {"interpreter": None, "compiled": compiled_pipeline}


def queue_watch(
    occupancy: int = 0, latency_ns: int = 0, clear_occupancy: int = 1, clear_latency_ns: int = 1, quota: int = 100
) -> Entry:
    arguments = (occupancy, latency_ns, clear_occupancy, clear_latency_ns, quota)
    return Entry("queue_watch", {"egress_port": DOWN_PORT, "queue_id": 0}, "watch_queue", arguments)


@pytest.fixture(params=list(PIPELINES))
def switch(request: pytest.FixtureRequest) -> BuiltinTarget:
    """Return a switch whose port down sends a frame in a millisecond; to the collector it is infinitely fast."""
    ports = [PortSettings(HOST_PORT), PortSettings(UP_PORT), PortSettings(COLLECTOR_PORT, queue_frames=64)]
    factory = PIPELINES[request.param]
    return BuiltinTarget([*ports, PortSettings(DOWN_PORT, rate_bps=8_000_000)], pipeline_factory=factory)


def reports_of(switch: BuiltinTarget, *frames: bytes) -> list[Report]:
    """Return the reports of a burst, after the last of its frames has left."""
    sent = switch.send(UP_PORT, *frames, expect=0)
    switch.clock.advance_to(switch.clock.now_ns() + len(frames) * FRAME_NS)
    return [decode_report(frame) for port, frame in sent if port == COLLECTOR_PORT]


def watched(switch: BuiltinTarget, watch: Entry) -> BuiltinTarget:
    switch.write(replace(transit(), extra=(watch,)).items())
    return switch


def test_packets_from_the_threshold_on_are_reported(switch: BuiltinTarget) -> None:
    reports = reports_of(watched(switch, queue_watch(occupancy=3, clear_occupancy=3)), *[FRAME] * 6)
    assert [report.flags for report in reports] == [CONGESTED] * 3
    assert [report.metadata[3] for report in reports] == [3, 4, 5], "queue 0, and what each found waiting"
    assert [report.metadata[2] for report in reports] == [3 * FRAME_NS, 4 * FRAME_NS, 5 * FRAME_NS]
    assert {report.metadata_bits for report in reports} == {0x7D00}
    assert {report.metadata[1] for report in reports} == {UP_PORT << 16 | DOWN_PORT}
    assert {len(report.inner) for report in reports} == {28}, "the packet as it left, through UDP"


def test_latency_has_a_threshold_of_its_own(switch: BuiltinTarget) -> None:
    watch = queue_watch(latency_ns=3 * FRAME_NS, clear_latency_ns=3 * FRAME_NS)
    reports = reports_of(watched(switch, watch), *[FRAME] * 5)
    assert [report.metadata[2] for report in reports] == [3 * FRAME_NS, 4 * FRAME_NS]


@pytest.mark.parametrize(("clear", "reported", "over_quota"), [(2, 4, 1), (3, 3, 0)], ids=["one", "two"])
def test_an_episode_and_its_quota_last_until_the_lower_threshold(
    switch: BuiltinTarget, clear: int, reported: int, over_quota: int
) -> None:
    watched(switch, queue_watch(occupancy=4, clear_occupancy=clear, quota=4))
    switch.send(UP_PORT, expect=0)
    began_ns = switch.clock.now_ns()
    switch.switch.receive(UP_PORT, [FRAME] * 6)
    switch.clock.advance_to(began_ns + 3 * FRAME_NS)
    switch.switch.receive(UP_PORT, [FRAME] * 3)
    sent = switch.run()
    depths = [decode_report(frame).metadata[3] for port, frame in sent if port == COLLECTOR_PORT]
    # Packets that found 0, 1, 2, 3, 4, 5 waiting, then 2, 3, 4.
    assert depths == ([4, 5, 2, 3] if clear == 2 else [4, 5, 4])
    assert (switch.count("queue_reports"), switch.count("queue_report_over_quota")) == (reported, over_quota)


def test_the_rest_of_a_long_episode_is_counted(switch: BuiltinTarget) -> None:
    reports = reports_of(watched(switch, queue_watch(occupancy=1, quota=5)), *[FRAME] * 30)
    assert len(reports) == 5
    assert (switch.count("queue_reports"), switch.count("queue_report_over_quota")) == (5, 24)
    assert len(reports_of(switch, *[FRAME] * 3)) == 2, "a new episode has a new quota"


def test_reports_on_their_way_are_not_reported_and_cost_no_quota(switch: BuiltinTarget) -> None:
    to_collector = build(Shape(checksum=False), dst_port=COLLECTOR_UDP_PORT)
    report = with_ip(to_collector, dst=COLLECTOR)
    assert reports_of(watched(switch, queue_watch(occupancy=1, quota=2)), *[report] * 9) == []
    assert len(reports_of(switch, FRAME, *[report] * 5, FRAME, FRAME)) == 2


def test_telemetry_in_the_packet_is_left_to_its_own_reports(switch: BuiltinTarget) -> None:
    reports = reports_of(watched(switch, queue_watch(occupancy=1)), FRAME, MARKED)
    assert [(report.flags, len(report.inner)) for report in reports] == [(CONGESTED, 28)]


def test_other_ports_are_not_watched(switch: BuiltinTarget) -> None:
    watch = queue_watch(occupancy=1)
    assert (
        reports_of(watched(switch, replace(watch, match={"egress_port": UP_PORT, "queue_id": 0})), *[FRAME] * 9) == []
    )


@pytest.mark.parametrize("target", [pytest.param("bmv2", marks=[pytest.mark.bmv2, pytest.mark.root])], indirect=True)
def test_bmv2_reports_latency_too(target: Target) -> None:
    role = replace(transit(), extra=(queue_watch(latency_ns=1, clear_latency_ns=1, quota=1),))
    sent = pass_through(target, role, UP_PORT, FRAME, expect=2)
    report = decode_report(frame_on(sent, COLLECTOR_PORT))
    assert (report.flags, report.metadata_bits) == (CONGESTED, 0x7D00)
    assert report.metadata[2] > 0
