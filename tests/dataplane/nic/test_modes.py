"""Wake-ups of a driver thread: the pace of each mode, in virtual time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import PortError
from dataplane.native import kernel_library
from dataplane.nic import Mode, NicSettings, PortKind, RingSettings
from dataplane.nic.driver.driver_state import LEAST_BATCH, MOST_BATCH, Pacer
from dataplane.nic.driver.kernels.polling import AT_ONCE, UNTIL_WOKEN, begin_pacing, pace

US = 1_000
LIBRARY = kernel_library(pace, begin_pacing)
next_pause_ns = LIBRARY.bind(pace)
begin = LIBRARY.bind(begin_pacing)


def make_pacer(mode: Mode = Mode.HYBRID, target_batch: int = 40) -> Pacer:
    pacer = Pacer(mode=mode, batch=LEAST_BATCH, target_batch=target_batch, quiet_ns=1_000 * US)
    pacer.least_pause_ns, pacer.most_pause_ns = 25 * US, 200 * US
    begin(pacer, 0)
    return pacer


class Arrivals:
    """Frames at a steady rate, and a driver that takes the waiting ones, in virtual time."""

    def __init__(self, pacer: Pacer, gap_ns: int) -> None:
        self.pacer, self.gap_ns = pacer, gap_ns
        self.now_ns = self.taken = 0
        self.longest_pause_ns = 0
        self.batches: list[int] = []

    def turn(self) -> int:
        """Take a burst and pause as the pacer says; return the pause."""
        asked = self.pacer.batch
        moved = min(self.now_ns // self.gap_ns - self.taken, asked)
        self.taken += moved
        self.now_ns += 1 * US
        pause_ns = next_pause_ns(self.pacer, self.now_ns, moved, int(moved == asked))
        if pause_ns not in {AT_ONCE, UNTIL_WOKEN}:
            self.now_ns += pause_ns
            self.longest_pause_ns = max(self.longest_pause_ns, pause_ns)
            self.batches.append(self.now_ns // self.gap_ns - self.taken)
        return pause_ns


def test_polling_never_sleeps() -> None:
    pacer = make_pacer(Mode.POLLING)
    assert {next_pause_ns(pacer, now_ns, 0, 0) for now_ns in range(0, 10**9, 10**7)} == {AT_ONCE}


def test_waiting_sleeps_whenever_nothing_is_left() -> None:
    pacer = make_pacer(Mode.WAITING)
    assert next_pause_ns(pacer, 1, 8, 1) == AT_ONCE
    assert next_pause_ns(pacer, 2, 3, 0) == UNTIL_WOKEN
    assert next_pause_ns(pacer, 3, 0, 0) == UNTIL_WOKEN


@pytest.mark.parametrize(("gap_ns", "burst"), [(1_000, 40), (2_000, 40), (4_000, 40), (10_000, 20), (100_000, 2)])
def test_pauses_adapt_to_bring_the_target_within_the_bound(gap_ns: int, burst: int) -> None:
    arrivals = Arrivals(make_pacer(), gap_ns)
    for _ in range(400):
        arrivals.turn()
    steady = arrivals.batches[-20:]
    assert burst * 0.8 <= sum(steady) / len(steady) <= burst * 1.3
    assert arrivals.longest_pause_ns <= 200 * US


@pytest.mark.parametrize("gap_ns", [2_200, 1_600, 1_000])
def test_default_pacing_sleeps_under_once_per_hundred_frames(gap_ns: int) -> None:
    settings = NicSettings()
    arrivals = Arrivals(make_pacer(target_batch=settings.target_batch), gap_ns)
    arrivals.pacer.most_pause_ns = settings.most_pause_us * US
    for _ in range(1_000):
        arrivals.turn()
    assert len(arrivals.batches) < arrivals.taken / 100


def test_frames_faster_than_a_pause_are_polled_without_pausing() -> None:
    arrivals = Arrivals(make_pacer(), 100)
    pauses = [arrivals.turn() for _ in range(400)]
    assert set(pauses[100:]) == {AT_ONCE}


def test_silence_ends_polling_and_the_first_frame_resumes_it() -> None:
    pacer = make_pacer()
    now_ns, polls = 0, 0
    assert next_pause_ns(pacer, now_ns, 1, 0) != UNTIL_WOKEN
    while (pause_ns := next_pause_ns(pacer, now_ns, 0, 0)) != UNTIL_WOKEN:
        now_ns += pause_ns
        polls += 1
    assert 1_000 * US <= now_ns < 1_200 * US + 1
    assert polls < 20
    begin(pacer, now_ns + 10**12)
    assert next_pause_ns(pacer, now_ns + 10**12 + US, 1, 0) < 200 * US


def test_a_batch_doubles_when_full_and_halves_under_a_quarter() -> None:
    pacer = make_pacer()
    for expected in (16, 32, 64, 128, MOST_BATCH, MOST_BATCH):
        next_pause_ns(pacer, 0, pacer.batch, 1)
        assert pacer.batch == expected
    next_pause_ns(pacer, 0, MOST_BATCH // 4, 0)
    assert pacer.batch == MOST_BATCH
    for expected in (128, 64, 32, 16, LEAST_BATCH, LEAST_BATCH):
        next_pause_ns(pacer, 0, 1, 0)
        assert pacer.batch == expected


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 300)), max_size=60))
def test_a_pause_is_within_its_bounds_whatever_comes(turns: list[tuple[int, int]]) -> None:
    pacer = make_pacer()
    now_ns = 0
    for elapsed_ns, frames in turns:
        now_ns += elapsed_ns
        moved = min(frames, pacer.batch)
        pause_ns = next_pause_ns(pacer, now_ns, moved, int(moved == pacer.batch))
        assert pause_ns in {AT_ONCE, UNTIL_WOKEN} or 25 * US < pause_ns <= 200 * US
        assert LEAST_BATCH <= pacer.batch <= MOST_BATCH


def test_low_latency_polls_at_once_and_sleeps_after_silence() -> None:
    settings, pacer = NicSettings.low_latency(), make_pacer()
    pacer.least_pause_ns, pacer.most_pause_ns = settings.least_pause_us * US, settings.most_pause_us * US
    pacer.target_batch, pacer.quiet_ns = settings.target_batch, settings.quiet_us * US
    begin(pacer, 0)
    for now_us in range(0, 10_000, 7):
        assert next_pause_ns(pacer, now_us * US, 1, 0) == AT_ONCE
    silent_us = now_us + settings.quiet_us
    assert next_pause_ns(pacer, (silent_us - 1) * US, 0, 0) == AT_ONCE
    assert next_pause_ns(pacer, silent_us * US, 0, 0) == UNTIL_WOKEN


def test_presets_state_their_latency_bound() -> None:
    assert NicSettings.balanced().latency_bound_us == NicSettings().latency_bound_us == 275
    assert NicSettings.low_latency().latency_bound_us == 0
    assert NicSettings.throughput().latency_bound_us == 1_000
    assert NicSettings.throughput(PortKind.XDP).latency_bound_us == 1_025
    blocks = RingSettings(block_timeout_ms=4)
    assert NicSettings(PortKind.PACKET_V3, mode=Mode.POLLING, rings=blocks).latency_bound_us == 4_000
    assert NicSettings(PortKind.PACKET_V3, rings=blocks).latency_bound_us == 4_275


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"queues": 0}, "at least one queue"),
        ({"threads": 2}, "1 to 1 threads"),
        ({"least_pause_us": 300}, "pauses of 300 to 250"),
        ({"most_pause_us": 2_000_000}, "not within 1 to 1000000"),
        ({"target_batch": 0}, "target_batch"),
        ({"quiet_us": -1}, "quiet_us"),
    ],
)
def test_settings_that_are_not_possible_are_refused(values: dict[str, int], problem: str) -> None:
    with pytest.raises(PortError, match=problem):
        NicSettings(**values)  # type: ignore[arg-type]
