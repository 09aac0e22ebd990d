"""Flow rates from measured packets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.statistics.rate import SLOTS, RateMeter

SECOND = 1_000_000_000
MS = 1_000_000
WINDOW = 2 * SECOND


@pytest.mark.parametrize("packets_per_s", [100, 10_000])
def test_a_steady_flow_has_its_rate(packets_per_s: int) -> None:
    meter = RateMeter(WINDOW)
    for number in range(3 * packets_per_s):
        meter.add(number * SECOND // packets_per_s, 125)
    assert meter.rate_bps(3 * SECOND) == pytest.approx(1000 * packets_per_s, rel=0.02)


def test_young_flow_is_overestimated_and_a_silent_one_is_zero() -> None:
    meter = RateMeter(WINDOW)
    assert meter.rate_bps(0) is None
    meter.add(0, 1500)
    assert meter.rate_bps(0) == 1500 * 8 * 8
    assert meter.rate_bps(SECOND // 4) == 48_000
    assert meter.rate_bps(SECOND) == 12_000
    assert meter.rate_bps(WINDOW) == 0


def test_memory_is_bounded_at_any_rate() -> None:
    meter = RateMeter(WINDOW)
    for number in range(100_000):
        meter.add(number * 100_000, 1)
    assert len(meter._slots) <= SLOTS


@given(st.lists(st.tuples(st.integers(0, SECOND), st.integers(0, 9000)), min_size=1, max_size=50))
def test_the_sum_is_that_of_a_plain_reference(steps: list[tuple[int, int]]) -> None:
    meter, now_ns, seen = RateMeter(WINDOW), 0, []
    for gap_ns, size in steps:
        now_ns += gap_ns
        meter.add(now_ns, size)
        seen.append((now_ns, size))
    rate = meter.rate_bps(now_ns)
    slot_ns = WINDOW // SLOTS
    begins_ns = (now_ns // slot_ns - SLOTS + 1) * slot_ns
    span_ns = max(now_ns - max(seen[0][0], begins_ns), WINDOW // 16)
    assert rate == sum(size for at, size in seen if at >= begins_ns) * 8 * SECOND // span_ns


def test_rate_behind_a_growing_queue_is_the_sending_rate() -> None:
    """Packets are sent each 10 ms and come each 12.5 ms: 1.25 times the output rate."""
    meter, stamp_ns, came_ns = RateMeter(WINDOW), 0, 0
    for _ in range(300):
        before, after = (stamp_ns, came_ns), (stamp_ns + 10 * MS, came_ns + 12_500_000)
        sent_ns = meter.window.sent_ns(after[1], meter.newest_ns, after[0] - before[0], after[1] - before[1])
        meter.add(sent_ns, 1250)
        stamp_ns, came_ns = after
    assert meter.rate_bps(meter.newest_ns) == pytest.approx(1_000_000, rel=0.02)
    assert not meter.is_young(meter.newest_ns)


@pytest.mark.parametrize("jump_ns", [-2 * SECOND, 2 * SECOND, 10**15])
def test_a_clock_that_was_set_counts_as_of_now(jump_ns: int) -> None:
    window = RateMeter(WINDOW).window
    assert window.sent_ns(5 * SECOND, 5 * SECOND - 7, jump_ns, 10 * MS) == 5 * SECOND


def test_no_stamps_lead_far_from_now() -> None:
    window = RateMeter(WINDOW).window
    assert window.sent_ns(5 * SECOND, 6 * SECOND, 900 * MS, 0) == 5 * SECOND


def test_late_packet_counts_at_its_sending_time_in_the_window() -> None:
    meter = RateMeter(WINDOW)
    meter.add(4 * SECOND, 100)
    meter.add(3 * SECOND, 20)
    meter.add(SECOND, 3)
    assert (meter.nbytes(4 * SECOND), meter.newest_ns) == (120, 4 * SECOND)
    assert meter.nbytes(5 * SECOND) == 100
