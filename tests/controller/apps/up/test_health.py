"""Health of a fabric: what it lost, and not ok while too many events are late, with their share."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest

from controller.apps.up.health import check_fabric
from dataplane.fabric.live.values import FabricCounters, PaceCounters, ReportCounters, TrafficCounters
from dataplane.fabric.live.virtual import note_recent


@pytest.mark.parametrize(
    ("pace", "ok", "says"),
    [
        (PaceCounters(events=1000), True, "0 reports"),
        (PaceCounters(1000, 900, recent_events=500), True, "no event late now (900 of 1000 since its start)"),
        (PaceCounters(1000, 900, recent_events=500, recent_late_events=25), True, "5 % of events late (900 of 1000"),
        (
            PaceCounters(1000, 900, recent_events=500, recent_late_events=75),
            False,
            "15 % of events late, more than 5 %: this machine is too slow or too busy for it (900 of 1000",
        ),
    ],
)
def test_late_events_are_told_and_bounded(tmp_path: Path, pace: PaceCounters, ok: bool, says: str) -> None:
    file = tmp_path / "fabric.json"
    file.write_bytes(FabricCounters(os.getpid(), time.monotonic_ns(), 0, pace=pace).encode())
    health = asyncio.run(check_fabric(file, {}))
    assert health.ok is ok
    assert says in health.text


def test_share_of_late_events_is_of_the_last_seconds() -> None:
    now, past = PaceCounters(), deque([PaceCounters()], maxlen=3)
    shares = []
    for late in (90, 0, 0, 10):
        now.events, now.late_events = now.events + 100, now.late_events + late
        note_recent(now, past)
        shares.append((now.recent_events, now.recent_late_events))
    assert shares == [(100, 90), (200, 90), (200, 0), (200, 10)]


def test_a_fabrics_health_names_what_it_lost(tmp_path: Path) -> None:
    file = tmp_path / "stats.json"
    counters = FabricCounters(7, time.monotonic_ns(), 0)
    file.write_bytes(counters.encode())
    assert asyncio.run(check_fabric(file, {})).text == "0 of 0 switches serve; 0 packets sent, 0 received, 0 reports"
    lossy = replace(
        counters,
        reports=ReportCounters(forwarded=9, refused=3, forged=2),
        traffic=TrafficCounters(sent=5, refused=4, skipped=6, received=1),
    )
    file.write_bytes(lossy.encode())
    health = asyncio.run(check_fabric(file, {}))
    for part in ("6 packets skipped", "4 packets found a full uplink", "3 reports lost", "2 forged reports dropped"):
        assert part in health.text
