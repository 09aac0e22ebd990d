"""Health of parts of a stack, from what they leave behind."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

from controller.apps.up.health import check_fabric
from dataplane.fabric.live.values import FabricCounters, ReportCounters, TrafficCounters


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
