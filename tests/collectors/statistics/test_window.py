"""Windows of samples: slots that go, the best source, weights, the switch's own windows."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from collectors.settings import StateSettings
from collectors.statistics.window import SLOTS, TX_READINGS, Window
from collectors.values import DelaySource

STAMPS, LATENCY = DelaySource.STAMPS, DelaySource.HOP_LATENCY
SETTINGS = StateSettings(window_ns=800, tx_window_ns=100)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=40))
def test_the_figures_are_those_of_the_samples(delays: list[int]) -> None:
    window = Window(StateSettings())
    for index, delay in enumerate(delays):
        window.add(index % 3, delay, STAMPS)
    figures = window.figures()
    ordered = sorted(delays)
    for figure, share in ((figures.delay_p50_ns, 0.50), (figures.delay_p99_ns, 0.99)):
        exact = ordered[math.ceil(share * len(ordered)) - 1]
        assert figure is not None
        assert abs(figure - exact) <= exact / 128
    assert figures.delay_mean_ns == figures.delay_ewma_ns == sum(delays) // len(delays)
    assert (figures.delay_max_ns, figures.samples) == (max(delays), len(delays))


def test_slots_leave_whole_and_what_is_before_them_is_refused() -> None:
    window = Window(SETTINGS)
    for at_ns in range(0, 1600, 50):
        assert window.add(at_ns, at_ns, STAMPS)
    figures = window.figures()
    assert figures.samples == 2 * SLOTS
    assert not window.add(799, 1, STAMPS)
    assert window.add(800, 1, STAMPS)
    assert window.figures().samples == 2 * SLOTS + 1
    window.add(10_000, 7, STAMPS)
    assert (window.figures().samples, window.newest_ns) == (1, 10_000)


def test_a_slot_weighs_half_of_the_next_newer_one() -> None:
    window = Window(SETTINGS)
    for at_ns, delay_ns in ((0, 700), (200, 100), (201, 300)):
        window.add(at_ns, delay_ns, STAMPS)
    # 128 * 200 and 32 * 700.
    assert window.figures().delay_ewma_ns == (128 * 200 + 32 * 700) // 160


def test_only_the_best_source_counts_until_it_leaves() -> None:
    window = Window(SETTINGS)
    window.add(0, 5, LATENCY)
    window.add(1, 50, STAMPS)
    window.add(2, 6, LATENCY)
    window.add(300, 7, LATENCY)
    figures = window.figures()
    assert (figures.source, figures.samples, figures.delay_mean_ns, figures.delay_max_ns) == (STAMPS, 1, 50, 50)
    window.add(800, 8, LATENCY)
    figures = window.figures()
    assert (figures.source, figures.samples, figures.delay_mean_ns) == (LATENCY, 2, 7)


def test_queues_and_readings_need_no_delay() -> None:
    window = Window(SETTINGS)
    window.add(0, queue_frames=3)
    window.add(1, queue_frames=6, tx_bytes=10)
    window.add(2, tx_bytes=30, buffer_frames=7)
    window.add(2, buffer_frames=8)
    window.add(1, tx_bytes=20)  # late, of the same window of the switch
    window.add(100, tx_bytes=50)
    figures = window.figures()
    assert (figures.queue_occupancy_frames, figures.tx_bytes_per_window) == (4.5, 40)
    assert (figures.delay_mean_ns, figures.delay_ewma_ns, figures.delay_max_ns, figures.samples) == (None,) * 3 + (0,)
    assert figures.buffer_occupancy_frames == 7.5
    assert figures.source is DelaySource.NOMINAL


def test_the_last_reading_stays_however_old_the_window_becomes() -> None:
    window = Window(SETTINGS)
    window.add(0, tx_bytes=10)
    window.add(100_000, 5, STAMPS)
    assert window.figures().tx_bytes_per_window == 10


def test_readings_are_bounded_where_the_window_is_long() -> None:
    window = Window(StateSettings(window_ns=10_000, tx_window_ns=100))
    for number in range(50):
        window.add(number * 100, tx_bytes=number)
    window.add(100, tx_bytes=1_000_000)  # too old for any of them
    assert window.figures().tx_bytes_per_window == sum(range(50 - TX_READINGS, 50)) // TX_READINGS
