"""Flow rates from measured packets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.rate import RateMeter

SECOND = 1_000_000_000


def test_a_steady_flow_has_its_rate() -> None:
    meter = RateMeter(2 * SECOND)
    for number in range(400):
        meter.add(number * SECOND // 100, 125)
    # 100 packets of 1000 bit a second; at 4.00 s the window holds those after 2.00 s.
    assert meter.rate_bps(4 * SECOND) == pytest.approx(100_000, rel=0.01)


def test_one_packet_is_no_rate_and_silence_is_none_left() -> None:
    meter = RateMeter(2 * SECOND)
    meter.add(0, 1500)
    assert meter.rate_bps(SECOND // 4) is None
    assert meter.rate_bps(SECOND) == 12_000
    assert meter.rate_bps(2 * SECOND) == 0
    assert meter.is_dry(0)
    meter.add(3 * SECOND, 1500)
    assert not meter.is_dry(3 * SECOND)


@given(st.lists(st.tuples(st.integers(0, SECOND), st.integers(0, 9000)), min_size=1, max_size=50))
def test_the_sum_is_that_of_a_plain_reference(steps: list[tuple[int, int]]) -> None:
    meter, now_ns, seen = RateMeter(2 * SECOND), 0, []
    for gap_ns, size in steps:
        now_ns += gap_ns
        meter.add(now_ns, size)
        seen.append((now_ns, size))
    rate = meter.rate_bps(now_ns)
    span_ns = min(now_ns - seen[0][0], 2 * SECOND)
    if span_ns * 4 < 2 * SECOND:
        assert rate is None
    else:
        assert rate == sum(size for at, size in seen if at > now_ns - 2 * SECOND) * 8 * SECOND // span_ns
