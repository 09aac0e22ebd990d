"""Packets that a full queue refuses are reported as drops: the built-in switch hands them over, bmv2 does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.switch.switch import PortSettings
from dataplane.switch.traffic import DEFLECT_SESSION
from dataplane.wire.drop_reasons import DropReason
from tests.p4.builtin_target import BuiltinTarget
from tests.p4.drop_cases import MARKED, with_ip
from tests.p4.entries import (
    COLLECTOR,
    COLLECTOR_PORT,
    COLLECTOR_UDP_PORT,
    DOWN_PORT,
    HOST_PORT,
    UP_PORT,
    CloneTo,
    Watch,
    source,
    transit,
    watch_drops,
)
from tests.p4.frames import Shape, build
from tests.p4.telemetry import DROPPED, TRACKED, Report, decode_report

FRAME = build()
ROOM = 4
DEFLECT = CloneTo(COLLECTOR_PORT, DEFLECT_SESSION)


@pytest.fixture(params=["interpreter", "compiled"])
def switch(request: pytest.FixtureRequest) -> BuiltinTarget:
    """Return a switch with a slow port down that has room for a few frames."""
    ports = [PortSettings(HOST_PORT), PortSettings(UP_PORT), PortSettings(COLLECTOR_PORT, queue_frames=64)]
    slow = PortSettings(DOWN_PORT, rate_bps=8_000, queue_frames=ROOM)
    return BuiltinTarget([*ports, slow], pipeline_factory=compiled_pipeline if request.param == "compiled" else None)


def reports_of(switch: BuiltinTarget, *frames: bytes, port: int = UP_PORT) -> list[Report]:
    return [decode_report(data) for out, data in switch.send(port, *frames, expect=0) if out == COLLECTOR_PORT]


def test_each_packet_without_room_has_its_report(switch: BuiltinTarget) -> None:
    switch.write(replace(transit(), extra=(*watch_drops(), DEFLECT)).items())
    began_ns = switch.clock.now_ns() + 1_000_000
    reports = reports_of(switch, *[FRAME] * (ROOM + 3))
    assert [report.flags for report in reports] == [DROPPED] * 3
    assert {report.metadata_bits for report in reports} == {0x5801}
    for report in reports:
        assert report.metadata[1] == UP_PORT << 16 | DOWN_PORT
        assert report.metadata[3] == ROOM, "queue 0, and what it held"
        assert report.metadata[15] == DropReason.QUEUE_FULL << 16
        assert report.metadata[4] == began_ns
    assert switch.switch.counters().ports[DOWN_PORT].drops == {"queue_full": 3}


@pytest.mark.parametrize("extra", [watch_drops(), (*watch_drops(reason=DropReason.NO_ROUTE), DEFLECT)])
def test_nobody_who_did_not_ask_is_told(switch: BuiltinTarget, extra: tuple[CloneTo, ...]) -> None:
    switch.write(replace(transit(), extra=extra).items())
    assert reports_of(switch, *[FRAME] * (ROOM + 3)) == []


def test_a_quota_holds_for_full_queues_too(switch: BuiltinTarget) -> None:
    switch.write(replace(transit(), extra=(*watch_drops(quota=2), DEFLECT)).items())
    assert len(reports_of(switch, *[FRAME] * (ROOM + 9))) == 2


def test_a_packet_with_telemetry_keeps_it_in_the_report(switch: BuiltinTarget) -> None:
    switch.write(replace(transit(), extra=(*watch_drops(), DEFLECT)).items())
    (report,) = reports_of(switch, *[MARKED] * (ROOM + 1))
    assert report.flags == DROPPED | TRACKED
    assert report.inner_int().stack == bytes(8)


def test_a_packet_that_was_to_be_measured_is_reported_as_it_is(switch: BuiltinTarget) -> None:
    switch.write(replace(source(Watch()), extra=(*watch_drops(), DEFLECT)).items())
    (report,) = reports_of(switch, *[FRAME] * (ROOM + 1), port=HOST_PORT)
    assert (report.flags, len(report.inner)) == (DROPPED, 28)


def test_a_report_that_finds_no_room_is_not_reported(switch: BuiltinTarget) -> None:
    """Neither a forwarded one, nor the switch's own."""
    switch.write(replace(transit(), extra=(*watch_drops(), DEFLECT)).items())
    report = with_ip(build(Shape(checksum=False), dst_port=COLLECTOR_UDP_PORT), dst=COLLECTOR)
    assert reports_of(switch, *[report] * (ROOM + 5)) == []
    assert switch.count("drop_report_about_report") == 5
    to_a_slow_port = (*watch_drops(), CloneTo(DOWN_PORT), CloneTo(DOWN_PORT, DEFLECT_SESSION))
    switch.reset()
    switch.write(replace(transit(), extra=to_a_slow_port).items())
    switch.send(UP_PORT, *[FRAME] * (ROOM + 5), expect=0)
    assert switch.count("int_reports") == 0
