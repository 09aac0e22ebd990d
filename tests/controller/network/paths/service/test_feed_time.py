"""The collector's clock mapped to the path server's."""

from __future__ import annotations

from collectors.feed.states.feed_time import FeedTime

MS = 1_000_000
UTC_NS = 1_790_000_000_000 * MS


def test_fastest_snapshot_sets_the_time() -> None:
    time = FeedTime()
    assert time.offset_ns == 0
    for taken_ms, late_ms, wanted_ms in ((100, 5, 5), (200, 2, 2), (300, 9, 2), (400, 1, 1)):
        time.observe(taken_ms * MS, UTC_NS + (taken_ms + late_ms) * MS)
        assert time.offset_ns == UTC_NS + wanted_ms * MS


def test_restart_of_the_collectors_machine_resets_the_clock() -> None:
    time = FeedTime()
    time.observe(5_000 * MS, UTC_NS)
    time.observe(20 * MS, UTC_NS + 9_000 * MS)
    assert time.offset_ns == UTC_NS + 8_980 * MS


def test_longer_uptime_of_a_collector_counts_at_once() -> None:
    time = FeedTime()
    time.observe(20 * MS, UTC_NS)
    time.observe(5_000 * MS, UTC_NS + 100 * MS)
    assert time.offset_ns == UTC_NS - 4_900 * MS


def test_delayed_snapshots_do_not_shift_the_offset() -> None:
    time = FeedTime()
    for number in range(10):
        time.observe(100 * number * MS, UTC_NS + 100 * number * MS)
    time.observe(1_000 * MS, UTC_NS + 13_000 * MS)
    time.observe(1_100 * MS, UTC_NS + 13_000 * MS)
    assert time.offset_ns == UTC_NS


def test_clocks_that_drift_apart_are_followed() -> None:
    time = FeedTime()
    for second in range(100):
        time.observe(second * 1000 * MS, UTC_NS + second * 1001 * MS)
    assert time.offset_ns - UTC_NS >= (99 - 22) * MS


def test_a_collector_on_another_machine_counts_before_long() -> None:
    time = FeedTime()
    time.observe(5_000 * MS, UTC_NS)
    for second in range(25):
        time.observe((6_000 + 1000 * second) * MS, UTC_NS + (60_000 + 1000 * second) * MS)
    assert time.offset_ns == UTC_NS + 54_000 * MS
