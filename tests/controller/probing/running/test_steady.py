"""Estimates for a long-running program from a fraction of a second, with and without a CPU quota."""

from __future__ import annotations

from random import Random

import pytest

from controller.probing.running.steady import Instant, Series

PERIOD_S = 0.1


class Clock:
    """Adds executions back to back."""

    def __init__(self) -> None:
        self.series, self._now = Series(), Instant(0.0, 0.0)

    def execute(self, use: str, wall_s: float, cpu_s: float) -> None:
        """Add an execution."""
        start, self._now = self._now, Instant(self._now.wall_s + wall_s, self._now.cpu_s + cpu_s)
        self.series.add(use, start, self._now)

    def pause(self, wall_s: float, cpu_s: float) -> None:
        """Let time pass between executions."""
        self._now = Instant(self._now.wall_s + wall_s, self._now.cpu_s + cpu_s)


class Quota:
    """A program under a CPU time quota: it stalls when the quota is used up, until the next period.

    It starts `into_period_s` into a period and has used `had_s` by then.
    """

    def __init__(self, share: float, into_period_s: float, had_s: float) -> None:
        self._into_s, self._had_s, self._quota_s = into_period_s, had_s, share * PERIOD_S

    def takes_s(self, cpu_s: float) -> float:
        """Return the wall time of this much CPU time."""
        wall_s = 0.0
        while cpu_s > 0:
            left_s = PERIOD_S - self._into_s
            runs_s = min(cpu_s, self._quota_s - self._had_s, left_s)
            cpu_s -= runs_s
            self._had_s += runs_s
            is_over = runs_s == left_s or self._had_s >= self._quota_s
            passed_s = left_s if is_over else runs_s
            wall_s += passed_s
            self._into_s, self._had_s = (0.0, 0.0) if is_over else (self._into_s + passed_s, self._had_s)
        return wall_s


def _series(quota: Quota, uses: dict[str, float], between_s: float, at_least_s: float = 0.25) -> Series:
    clock = Clock()
    while True:
        for use, cpu_s in uses.items():
            clock.execute(use, quota.takes_s(cpu_s), cpu_s)
            clock.pause(quota.takes_s(between_s), between_s)
        if clock.series.is_enough(len(uses), at_least_s):
            return clock.series


@pytest.mark.parametrize("share", [0.25, 0.5, 0.8, 0.9, 0.95])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("between_s", [0.0, 0.0003])
def test_quota_is_detected_within_a_quarter_second_in_any_phase(share: float, seed: int, between_s: float) -> None:
    random = Random(seed)
    had_s = random.random() * share * PERIOD_S
    quota = Quota(share, random.uniform(had_s, PERIOD_S), had_s)
    series = _series(quota, {"solve": 0.0013, "sum": 0.0004}, between_s)
    steady_s = series.steady_s()
    assert steady_s["solve"] == pytest.approx(0.0013 / share, rel=0.04)
    assert steady_s["sum"] == pytest.approx(0.0004 / share, rel=0.04)
    assert series.spent_s <= 0.6


def test_without_a_quota_times_are_means() -> None:
    clock = Clock()
    for wall_s in (0.1, 0.2, 0.3):
        clock.execute("sort", wall_s, wall_s)
    assert clock.series.steady_s() == {"sort": pytest.approx(0.2)}
    assert clock.series.is_enough(1)


def test_waiting_kernel_keeps_its_mean_and_stretches_no_other() -> None:
    clock = Clock()
    for wall_s in (0.05, 0.06, 0.07):
        clock.execute("network-pull", wall_s, 0.001)
        clock.execute("dgemm", 0.01, 0.01)
    steady_s = clock.series.steady_s()
    assert steady_s["network-pull"] == pytest.approx(0.06)
    assert steady_s["dgemm"] == pytest.approx(0.01)


def test_two_stray_gaps_are_spread_over_all_time() -> None:
    clock = Clock()
    for index in range(100):
        gap_s = 0.02 if index in (50, 52) else 0.0
        clock.execute("fft", 0.01 + gap_s, 0.01)
    assert clock.series.steady_s()["fft"] == pytest.approx(0.01 * (1.04 / 1.0), rel=1e-6)


def test_a_run_is_not_enough_before_its_time_nor_between_gaps() -> None:
    clock = Clock()
    clock.execute("fft", 0.1, 0.1)
    assert not clock.series.is_enough(1)
    clock.execute("fft", 0.1, 0.05)
    clock.execute("fft", 0.06, 0.06)
    assert not clock.series.is_enough(1)
    clock.execute("fft", 0.1, 0.05)
    assert clock.series.is_enough(1)
    clock.execute("fft", 0.01, 0.01)
    assert not clock.series.is_enough(1)
    clock.execute("fft", 0.2, 0.2)
    assert clock.series.is_enough(1)


@pytest.mark.parametrize("cpu_s", [0.104, 0.0])
def test_single_pause_hardly_counts_in_steady_times(cpu_s: float) -> None:
    clock = Clock()
    for index in range(200):
        clock.execute("solve", 0.0012, 0.0012)
        clock.execute("sum", (0.104 if index == 70 else 0) + 6e-6, (cpu_s if index == 70 else 0) + 6e-6)
    series = clock.series
    # Stalls are spread over all: they may come from a quota.
    assert series.steady_s()["sum"] == pytest.approx(6e-6 * (1.0 if cpu_s else 1.44), rel=0.03)
    assert series.cpu_s() == {"solve": pytest.approx(0.0012), "sum": pytest.approx(6e-6)}


def test_uses_without_runs_have_no_estimate() -> None:
    assert Series().steady_s() == {}
    assert not Series().is_enough(0)
