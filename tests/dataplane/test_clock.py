"""The machine's clocks."""

from __future__ import annotations

import time

import pytest

from dataplane.clock import UtcClock


def test_utc_clock_ignores_changes_of_the_system_time(monkeypatch: pytest.MonkeyPatch) -> None:
    wall_ns, monotonic_ns = 1_790_000_000_000_000_000, 77
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns)
    monkeypatch.setattr(time, "monotonic_ns", lambda: monotonic_ns)
    clock = UtcClock()
    assert clock.now_ns() == wall_ns
    began_ns, wall_ns, monotonic_ns = wall_ns, 0, 99
    assert clock.now_ns() == began_ns + 22
