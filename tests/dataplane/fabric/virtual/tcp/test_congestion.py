"""Reno and CUBIC against the formulas of their RFCs, without a network."""

from __future__ import annotations

from itertools import pairwise
from math import cbrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.fabric.virtual.tcp.congestion import Acked, Congestion, CongestionControl, Cubic, Reno

MSS = 1_000
RTT_NS = 100_000_000
SECOND = 1_000_000_000


def in_round_trips(control: CongestionControl, trips: int, start_ns: int = 0) -> list[int]:
    """Acknowledge whole windows, two segments at a time, each spread over a round trip; return the windows between."""
    windows = [control.window_bytes]
    for trip in range(trips):
        window = control.window_bytes
        acks = max(1, window // (2 * MSS))
        for ack in range(acks):
            now_ns = start_ns + trip * RTT_NS + RTT_NS * ack // acks
            control = control.acked(Acked(window // acks, now_ns, RTT_NS))
        windows.append(control.window_bytes)
    return windows


def started(congestion: Congestion, segments: int) -> CongestionControl:
    return congestion.control.start(MSS, segments, hystart=False)


@pytest.mark.parametrize("congestion", list(Congestion))
def test_slow_start_doubles_each_round_trip(congestion: Congestion) -> None:
    assert in_round_trips(started(congestion, 10), 4) == [10 * MSS * 2**trip for trip in range(5)]


@pytest.mark.parametrize("congestion", list(Congestion))
def test_ack_adds_at_most_two_segments_and_one_after_a_timeout(congestion: Congestion) -> None:
    """RFC 3465, sections 2.2 and 2.3."""
    control = started(congestion, 1)
    assert control.acked(Acked(50 * MSS, 0, RTT_NS)).window_bytes == 3 * MSS
    assert control.acked(Acked(50 * MSS, 0, RTT_NS, after_timeout=True)).window_bytes == 2 * MSS
    assert control.acked(Acked(MSS // 2, 0, RTT_NS)).window_bytes == MSS + MSS // 2


def test_reno_adds_a_segment_each_round_trip() -> None:
    reno = Reno(MSS, 20 * MSS, threshold_bytes=20 * MSS)
    windows = in_round_trips(reno, 30)
    assert all(0 <= after - before <= MSS for before, after in pairwise(windows))
    assert windows[-1] == pytest.approx(50 * MSS, abs=MSS)


@pytest.mark.parametrize(("flight", "expected"), [(100 * MSS, 50 * MSS), (5 * MSS, 5 * MSS // 2), (2 * MSS, 2 * MSS)])
def test_reno_halves_but_not_below_two_segments(flight: int, expected: int) -> None:
    """RFC 5681, equation 4."""
    reduced = Reno(MSS, 120 * MSS).reduced(flight)
    assert (reduced.window_bytes, reduced.threshold_bytes) == (expected, expected)


@pytest.mark.parametrize(("control", "factor"), [(Reno(MSS, 40 * MSS), 0.5), (Cubic(MSS, 40.0), 0.7)])
def test_timeout_leaves_one_segment_and_the_loss_threshold(control: CongestionControl, factor: float) -> None:
    out = control.timed_out(40 * MSS, again=False)
    assert (out.window_bytes, out.threshold_bytes) == (MSS, int(40 * MSS * factor))
    assert out.timed_out(MSS, again=True).threshold_bytes == out.threshold_bytes


@pytest.mark.parametrize("control", [Reno(MSS, 40 * MSS, 20 * MSS), Cubic(MSS, 40.0, 20.0)])
def test_sender_not_limited_by_its_window_does_not_grow_it(control: CongestionControl) -> None:
    for number in range(1_000):
        control = control.acked(Acked(2 * MSS, number * RTT_NS, RTT_NS, is_limited=False))
    assert control.window_bytes == 40 * MSS
    assert control.restarted(10 * MSS).window_bytes == 10 * MSS
    assert control.restarted(100 * MSS).window_bytes == 40 * MSS


def cubic_after_loss(window: float) -> Cubic:
    return Cubic(MSS, window).reduced(int(window * MSS))


def test_cubic_reduces_to_seven_tenths() -> None:
    """RFC 9438, section 4.6."""
    reduced = cubic_after_loss(500.0)
    assert reduced.window_bytes == reduced.threshold_bytes == 350 * MSS
    assert reduced.plateau == 500.0


def test_cubic_follows_its_function_of_time() -> None:
    """Equations 1 and 2: W(t) = 0.4 (t - K)^3 + 500 with K = cbrt(150 / 0.4); far above what Reno would have."""
    control = cubic_after_loss(500.0)
    climb_s = cbrt(500 * 0.3 / 0.4)
    for trip in range(140):
        window = control.window_bytes
        for ack in range(window // (2 * MSS)):
            now_ns = trip * RTT_NS + RTT_NS * 2 * MSS * ack // window
            control = control.acked(Acked(2 * MSS, now_ns, RTT_NS))
        # At the end of a round trip the window equals the function.
        expected = 0.4 * ((trip + 1) * 0.1 - climb_s) ** 3 + 500
        assert control.window_bytes / MSS == pytest.approx(expected, rel=0.02)
    assert climb_s < 14


def test_cubic_is_no_slower_than_reno_where_that_is_faster() -> None:
    """Section 4.3, with short round trips: the window of an AIMD with 0.7 and 3 (1 - 0.7) / (1 + 0.7) = 0.529.

    In whole segments, like Linux, and up to two behind the estimate, as growth follows the gap to it.
    """
    control = Cubic(MSS, 20.0).reduced(20 * MSS)
    rtt_ns = 10_000_000
    windows, estimates = [], []
    for trip in range(30):
        for _ in range(control.window_bytes // MSS):
            control = control.acked(Acked(MSS, trip * rtt_ns, rtt_ns))
        assert control.epoch is not None
        windows.append(control.window_bytes // MSS)
        estimates.append(control.epoch.reno)
    assert estimates[-1] == pytest.approx(14 + 30 * 0.529, rel=0.03), "beyond the window of the loss, too"
    assert all(0 <= after - before <= 1 for before, after in pairwise(windows))
    assert all(0 <= reno - window < 2.1 for window, reno in zip(windows, estimates, strict=True))


def test_cubic_backs_off_faster_below_its_last_window() -> None:
    """Section 4.7, fast convergence."""
    reduced = Cubic(MSS, 60.0, 60.0, plateau=100.0).reduced(60 * MSS)
    assert reduced.plateau == pytest.approx(60 * 1.7 / 2)
    assert Cubic(MSS, 120.0, 60.0, plateau=100.0).reduced(120 * MSS).plateau == 120.0


def test_cubic_grows_by_half_a_round_trip_at_most() -> None:
    """Section 4.2: the target is 1.5 windows at most, however long ago the loss was: a segment for each two."""
    control = cubic_after_loss(1000.0).acked(Acked(MSS, 0, RTT_NS))
    windows = []
    for _ in range(10):
        control = control.acked(Acked(MSS, 600 * SECOND, RTT_NS))
        windows.append(control.window - 700)
    assert windows == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]


def test_idle_time_does_not_count_for_cubic() -> None:
    """Section 5.8."""
    control = cubic_after_loss(500.0).acked(Acked(MSS, SECOND, RTT_NS))
    waited = control
    for number in range(100):
        waited = waited.acked(Acked(MSS, SECOND + number * SECOND, RTT_NS, is_limited=False))
    resumed = waited.acked(Acked(MSS, 100 * SECOND + RTT_NS, RTT_NS))
    at_once = control.acked(Acked(MSS, SECOND + RTT_NS, RTT_NS))
    assert resumed.window == pytest.approx(at_once.window)


def test_after_a_timeout_cubic_begins_at_its_plateau() -> None:
    """Section 4.8: K is 0 and W_max the window at which congestion avoidance begins."""
    control = Cubic(MSS, 100.0).timed_out(100 * MSS, again=False)
    while control.window < control.threshold:
        control = control.acked(Acked(MSS, 0, RTT_NS))
    control = control.acked(Acked(MSS, SECOND, RTT_NS))
    assert control.epoch is not None
    assert control.epoch.climb_s == 0
    assert control.epoch.plateau == pytest.approx(70, abs=1)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("acked"), st.integers(1, 100 * MSS), st.integers(0, 10 * SECOND)),
        st.tuples(
            st.sampled_from(("reduced", "timed_out", "again", "restarted")), st.integers(0, 200 * MSS), st.just(0)
        ),
    ),
    max_size=60,
)


@given(STEPS, st.sampled_from([started(congestion, 10) for congestion in Congestion]))
def test_window_is_at_least_a_segment_and_grows_with_acks(
    steps: list[tuple[str, int, int]], control: CongestionControl
) -> None:
    now_ns = 0
    for what, nbytes, pause_ns in steps:
        now_ns += pause_ns
        before = control.window_bytes
        if what == "acked":
            control = control.acked(Acked(nbytes, now_ns, RTT_NS))
            assert before <= control.window_bytes <= before + nbytes + MSS
        elif what == "reduced":
            control = control.reduced(min(nbytes, before))
            assert control.window_bytes <= max(before, 2 * MSS)
        elif what == "restarted":
            control = control.restarted(10 * MSS)
        else:
            control = control.timed_out(min(nbytes, before), again=what == "again")
            assert control.window_bytes == MSS
        assert control.window_bytes >= MSS
