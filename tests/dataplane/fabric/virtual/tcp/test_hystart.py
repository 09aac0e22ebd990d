"""HyStart: the end of CUBIC's slow start, in isolation and into an endless queue."""

from __future__ import annotations

import pytest

from dataplane.fabric.virtual.bulk import BulkFlow
from dataplane.fabric.virtual.tcp import TcpSettings
from dataplane.fabric.virtual.tcp.congestion import Acked, Cubic
from dataplane.fabric.virtual.tcp.congestion.hystart import Heard, Hystart
from dataplane.fabric.virtual.tcp.congestion.values import UNLIMITED
from tests.dataplane.fabric.virtual.tcp.ends import MS, SECOND, MakeFabric, dumbbell

MSS = 1_000
WINDOW = 40 * MSS


def after(rtts_ns: list[int], gap_ns: int, *, window_bytes: int = WINDOW, start: Hystart | None = None) -> Hystart:
    """Feed round trips, `gap_ns` apart, of one round acknowledged segment by segment."""
    hystart = start or Hystart()
    for number, rtt_ns in enumerate(rtts_ns):
        hystart = hystart.heard(Heard(number * gap_ns, rtt_ns, 1 + number, 100), window_bytes, MSS)
    return hystart


@pytest.mark.parametrize(("least_ms", "growth_ms"), [(10, 4), (80, 10), (800, 16)])
def test_delay_growth_by_an_eighth_ends_slow_start(least_ms: int, growth_ms: int) -> None:
    expected = after([least_ms * MS], 3 * MS)
    before = Hystart(least_rtt_ns=expected.least_rtt_ns)
    limit_ns = (least_ms + growth_ms) * MS
    assert not after([limit_ns] * 30, 3 * MS, start=before).is_found
    assert not after([limit_ns + 1] * 8, 3 * MS, start=before).is_found, "eight samples come before it"
    assert after([limit_ns + 1] * 9, 3 * MS, start=before).is_found
    assert not after([limit_ns, *[limit_ns + 1] * 20], 3 * MS, start=before).is_found, "the round's least counts"


def test_ack_train_of_half_a_round_trip_ends_slow_start() -> None:
    """21 ms / 2 (the round trip and a millisecond) with gaps of 2 ms; a longer gap breaks the train."""
    assert not after([20 * MS] * 6, 2 * MS).is_found
    assert after([20 * MS] * 7, 2 * MS).is_found
    assert not after([20 * MS] * 30, 2 * MS + 1).is_found


def test_small_windows_are_left_alone() -> None:
    assert not after([20 * MS] * 30, 2 * MS, window_bytes=16 * MSS - 1).is_found
    assert after([20 * MS] * 30, 2 * MS, window_bytes=16 * MSS).is_found


def test_a_round_ends_with_what_was_under_way_at_its_beginning() -> None:
    hystart = after([20 * MS] * 5, 2 * MS)
    assert (hystart.round_end, hystart.samples) == (100, 5)
    same = hystart.heard(Heard(50 * MS, 20 * MS, 100, 250), WINDOW, MSS)
    assert (same.round_end, same.samples) == (100, 6)
    following = same.heard(Heard(51 * MS, 20 * MS, 101, 260), WINDOW, MSS)
    assert (following.round_end, following.round_ns, following.samples) == (260, 51 * MS, 1)


def test_cubic_grows_slowly_from_where_slow_start_ended() -> None:
    control = Cubic(MSS, 40.0, hystart=Hystart(least_rtt_ns=20 * MS))
    for number in range(9):
        assert control.threshold_bytes >= UNLIMITED
        heard = Acked(MSS, number * 3 * MS, 20 * MS, sample_ns=25 * MS, position=1 + number, sent=100)
        control = control.acked(heard)
    assert control.threshold_bytes == 48 * MSS
    for number in range(48):
        control = control.acked(Acked(MSS, 27 * MS + number, 20 * MS, sample_ns=25 * MS, position=1 + number, sent=100))
    assert control.window_bytes == 50 * MSS
    out = control.timed_out(WINDOW, again=False)
    assert out.hystart == Hystart(), "after a timeout the path is another one"


@pytest.mark.parametrize("hystart", [True, False])
def test_slow_start_into_a_long_queue_ends_before_it_is_full(make_fabric: MakeFabric, hystart: bool) -> None:
    """The path holds 17 frames, the queue 300.

    The round of data that begins with 40 segments shows it with eight acknowledgments of two; else the queue fills.
    """
    fabric = make_fabric(dumbbell("10 Mbit/s", queue_frames=300))
    flow = BulkFlow(fabric, "a", "b", stop_ns=SECOND, settings=TcpSettings(hystart=hystart))
    fabric.run_until(SECOND)
    thresholds = {sample.threshold_bytes for sample in flow.statistics.samples} - {None}
    if hystart:
        assert thresholds == {56 * 1448}
        assert flow.statistics.retransmissions == 0
    else:
        assert flow.statistics.retransmissions > 50
