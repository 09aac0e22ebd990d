"""Efficiency by unit count: the threshold where the truth is known, and none where it is undetermined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from controller.probing.errors import ProbeError
from controller.probing.evaluation import Threshold, Verdict, threshold_of, units_for
from controller.probing.evaluation.efficiency import curve_of
from controller.probing.evaluation.picture import draw_efficiency

DOUBLED = (1, 2, 4, 8, 16, 32, 64)
EVEN = (1, 2, 4, 6, 8, 12, 16, 20)
SEEDS = range(4)
Curve = Callable[[float], float]


def amdahl(serial: float) -> Curve:
    return lambda units: serial + (1 - serial) / units


def limit(most: float) -> Curve:
    return lambda units: 1 / min(units, most)


def universal(contention: float, coherence: float) -> Curve:
    """Declines again beyond its peak."""
    return lambda units: (1 + contention * (units - 1) + coherence * units * (units - 1)) / units


def gustafson(serial: float) -> Curve:
    """Work that grows with the units: the time per fixed part keeps falling."""
    return lambda units: 1 / (serial + (1 - serial) * units)


def measured(curve: Curve, counts: Sequence[int], noise: float, seed: int, number: int = 5) -> Threshold:
    random = np.random.default_rng(seed)
    times = {
        units: [float(curve(units) * np.exp(noise * random.standard_normal())) for _ in range(number)]
        for units in counts
    }
    return threshold_of(times, seed=seed)


def knee(curve: Curve, most: float) -> float:
    """Return the count at which one per cent more units gives half a per cent more speed."""
    units = np.geomspace(1, most, 20_000)
    speed = -np.log([curve(float(count)) for count in units])
    return float(units[np.argmax(np.gradient(speed, np.log(units)) < 0.5)])


@pytest.mark.parametrize(
    ("curve", "counts", "noise", "within"),
    [
        (amdahl(0.05), DOUBLED, 0.0, 1.03),
        (amdahl(0.05), DOUBLED, 0.03, 1.25),
        (amdahl(0.2), DOUBLED, 0.03, 1.3),
        (limit(8), DOUBLED, 0.0, 1.03),
        (limit(8), DOUBLED, 0.1, 1.25),
        (limit(6), EVEN, 0.05, 1.2),
        (universal(0.03, 0.003), DOUBLED, 0.0, 1.05),
        (universal(0.03, 0.003), DOUBLED, 0.03, 1.25),
    ],
)
def test_threshold_equals_the_truth(curve: Curve, counts: Sequence[int], noise: float, within: float) -> None:
    truth = knee(curve, 64)
    thresholds = [measured(curve, counts, noise, seed) for seed in SEEDS]
    assert all(threshold.verdict is Verdict.FOUND for threshold in thresholds)
    for threshold in thresholds:
        assert threshold.units is not None
        assert threshold.low is not None
        assert threshold.high is not None
        assert max(threshold.units / truth, truth / threshold.units) <= within + 0.5 / truth
        assert threshold.low <= threshold.units <= threshold.high


def test_its_interval_holds_the_truth_nine_times_of_ten() -> None:
    held = number = 0
    for curve, truth in ((amdahl(0.05), 19.0), (limit(8), 8.0)):
        for seed in range(30):
            threshold = measured(curve, DOUBLED, 0.05, seed)
            if threshold.low is not None and threshold.high is not None:
                number += 1
                held += threshold.low <= truth <= threshold.high
    assert number >= 50
    assert held / number >= 0.85


@pytest.mark.parametrize("noise", [0.0, 0.03, 0.1])
@pytest.mark.parametrize("curve", [lambda units: 1 / units, gustafson(0.1), amdahl(0.005)])
def test_rising_speed_has_no_threshold(curve: Curve, noise: float) -> None:
    for seed in SEEDS:
        threshold = measured(curve, DOUBLED[:6], noise, seed)
        assert threshold.units is None
        assert threshold.verdict in {Verdict.RISING, Verdict.NOISY}
        assert units_for(threshold, 48) == 48


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_constant_speed_gets_the_fewest_units(noise: float) -> None:
    for seed in SEEDS:
        threshold = measured(lambda _: 1.0, DOUBLED, noise, seed)
        assert (threshold.verdict, threshold.units) == (Verdict.FLAT, 1)
        assert units_for(threshold, 48) == 1


def test_few_counts_and_noise_give_no_threshold() -> None:
    few = measured(limit(2), (1, 2, 4, 8), 0.01, 0)
    assert few.verdict is Verdict.FEW
    assert few.reason == "4 counts of units measured: at least 5 needed"
    assert threshold_of({}).verdict is Verdict.FEW
    verdicts = [measured(amdahl(0.05), DOUBLED[:6], 0.5, seed, number=2) for seed in SEEDS]
    assert sum(verdict.units is None for verdict in verdicts) >= 3
    assert all(verdict.units is None or verdict.units <= 32 for verdict in verdicts)


def test_equal_measurements_give_equal_thresholds() -> None:
    assert measured(amdahl(0.1), DOUBLED, 0.05, 3) == measured(amdahl(0.1), DOUBLED, 0.05, 3)


def test_speed_up_and_efficiency_refer_to_the_fewest_units() -> None:
    curve = curve_of({2: [4.0, 4.2, 3.8], 4: [2.0, 2.1, 1.9], 8: [2.0, 2.1, 1.9], 16: [float("nan")], 0: [1.0]})
    assert [point.units for point in curve] == [2, 4, 8]
    assert [round(point.speed_up, 6) for point in curve] == [1, 2, 2]
    assert [round(point.efficiency, 6) for point in curve] == [1, 1, 0.5]
    assert curve[1].speed_up_low < 2 < curve[1].speed_up_high


@pytest.mark.parametrize("times", [{n: [0.0] for n in DOUBLED}, {n: [1e300] for n in DOUBLED}, {-1: [1.0]}])
def test_figures_that_are_odd_give_no_threshold_above_the_fewest(times: dict[int, list[float]]) -> None:
    threshold = threshold_of(times)
    assert threshold.units in {None, 1}


def test_it_is_drawn(tmp_path: Path) -> None:
    by_centre = {"east": measured(amdahl(0.05), DOUBLED, 0.03, 1), "west": measured(limit(4), (1, 2, 4), 0.0, 1)}
    draw_efficiency("p", by_centre, tmp_path / "p.png")
    draw_efficiency("p", by_centre, tmp_path / "p.svg")
    assert (tmp_path / "p.png").stat().st_size > 10_000
    assert "east: 19 units" in (tmp_path / "p.svg").read_text() or (tmp_path / "p.svg").stat().st_size > 10_000
    for name, thresholds in (
        ("no/p.png", by_centre),
        ("p.pdf", by_centre),
        ("q.png", {}),
        ("r.png", {str(n): by_centre["east"] for n in range(9)}),
    ):
        with pytest.raises(ProbeError):
            draw_efficiency("p", thresholds, tmp_path / name)
