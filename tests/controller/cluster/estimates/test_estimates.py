"""Estimates: checked when made, combined like bounds, ranked only if comparable."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.estimates import (
    Baseline,
    Basis,
    Comparison,
    Estimate,
    EstimateError,
    compare,
    rank,
    repeated,
    scaled,
    successive,
    together,
)

CORE = Baseline("one core", 8.0)


def between(low: float, seconds: float, high: float, basis: Basis = Basis.MEASURED) -> Estimate:
    return Estimate(seconds, low, high, basis)


@pytest.mark.parametrize(
    "figures",
    [(2, 1, 3), (1, 2, 1), (-1, 0, 1), (0, 0, math.inf), (math.nan, 1, 1), (None, 1, 1), (1, 1, None)],
)
def test_bounds_hold_the_time_and_all_are_finite(figures: tuple[float, float, float]) -> None:
    low, seconds, high = figures
    with pytest.raises(EstimateError):
        Estimate(seconds, low, high, Basis.MODELLED)


def test_unknown_estimate_has_a_reason_and_no_time() -> None:
    unknown = Estimate.unknown("no probe ran on h1")
    assert (unknown.seconds, unknown.is_known, str(unknown)) == (None, False, "unknown: no probe ran on h1")
    with pytest.raises(EstimateError, match="unknown: no probe ran on h1"):
        _ = unknown.times
    for wrong in ((), ("",), ("two\nlines",)):
        with pytest.raises(EstimateError):
            Estimate.unknown(*wrong)
    with pytest.raises(EstimateError, match="carries a time"):
        Estimate(1, None, None, Basis.NONE, None, ("why",))


def test_runs_make_an_estimate() -> None:
    estimate = Estimate.measured([3.0, 1.0, 2.0], "on h1", baseline=CORE)
    assert estimate == Estimate(2.0, 1.0, 3.0, Basis.MEASURED, CORE, ("mean of 3 runs", "on h1"))
    assert (estimate.ratio, str(estimate)) == (4.0, "2 s (1 to 3), measured")
    assert not Estimate.measured([]).is_known
    assert Estimate.measured([0.1] * 3).times == (0.1, 0.1, 0.1)


def test_a_ratio_needs_both_times() -> None:
    assert Estimate.exactly(4.0, Basis.MODELLED).ratio is None
    assert Estimate.exactly(0.0, Basis.MODELLED, baseline=CORE).ratio is None
    assert Estimate.unknown("why").ratio is None
    for name, seconds in (("", 1.0), ("x", math.inf), ("x", -1.0)):
        with pytest.raises(EstimateError):
            Baseline(name, seconds)


def test_parts_one_after_the_other_and_together() -> None:
    copy = Estimate(1.0, 0.5, 2.0, Basis.HISTORY, CORE, ("over PCIe",))
    work = Estimate(3.0, 3.0, 3.5, Basis.MODELLED, CORE, ("by the model", "over PCIe"))
    both = successive([copy, work])
    assert both == Estimate(4.0, 3.5, 5.5, Basis.MODELLED, Baseline("one core", 16.0), ("over PCIe", "by the model"))
    side = together([copy, work])
    assert side == Estimate(3.0, 3.0, 3.5, Basis.MODELLED, None, ("over PCIe", "by the model"))
    other = Estimate(1.0, 1.0, 1.0, Basis.MEASURED, Baseline("last value", 1.0))
    assert successive([copy, other]).baseline is None
    assert successive([copy, between(1, 1, 1)]).baseline is None


def test_one_unknown_part_makes_the_whole_unknown() -> None:
    for combined in (successive, together):
        whole = combined([between(1, 1, 1), Estimate.unknown("no driver"), Estimate.unknown("no driver")])
        assert (whole.is_known, whole.reasons) == (False, ("no driver",))
        with pytest.raises(EstimateError, match="no part"):
            combined([])


def test_scaled_and_repeated() -> None:
    base = Estimate(2.0, 1.0, 4.0, Basis.MEASURED, CORE)
    slower = scaled(base, 2.5, "on 400 thousandths")
    assert (slower.times, slower.baseline, slower.reasons) == ((2.5, 5.0, 10.0), CORE, ("on 400 thousandths",))
    thrice = repeated(base, 3)
    assert (thrice.times, thrice.baseline) == ((3.0, 6.0, 12.0), Baseline("one core", 24.0))
    assert scaled(Estimate.unknown("why"), 2.0, "x") == Estimate.unknown("why")
    for factor in (-1.0, math.inf, math.nan):
        with pytest.raises(EstimateError):
            scaled(base, factor, "x")
    with pytest.raises(EstimateError):
        repeated(base, -1)


def test_comparing() -> None:
    quick, slow, wide = between(1, 2, 3), between(4, 5, 6), between(2, 3, 9)
    assert compare(quick, slow) is Comparison.SHORTER
    assert compare(slow, quick) is Comparison.LONGER
    assert compare(quick, wide) is Comparison.UNDECIDED
    assert compare(quick, quick) is Comparison.UNDECIDED


@pytest.mark.parametrize(
    ("estimate", "other", "problem"),
    [
        (between(1, 1, 1), Estimate.unknown("no driver"), "unknown: no driver"),
        (between(1, 1, 1), between(1, 1, 1, Basis.NOMINAL), "a nominal time cannot be compared with a measured one"),
        (
            Estimate.exactly(1, Basis.MODELLED, baseline=CORE),
            Estimate.exactly(1, Basis.MODELLED, baseline=Baseline("one core", 9.0)),
            r"baselines differ: one core \(8 s\) and one core \(9 s\)",
        ),
    ],
)
def test_incomparable_estimates_are_refused(estimate: Estimate, other: Estimate, problem: str) -> None:
    with pytest.raises(EstimateError, match=problem):
        compare(estimate, other)
    with pytest.raises(EstimateError):
        compare(other, estimate)
    with pytest.raises(TypeError):
        _ = estimate < other  # type: ignore[operator]


def test_ranking_omits_unrankable_estimates_with_reasons() -> None:
    choices = {
        "h1": between(4, 5, 6),
        "h2": between(1, 2, 3, Basis.MODELLED),
        "h3": Estimate.unknown("no probe ran on h3"),
        "h4": between(1, 1, 1, Basis.NOMINAL),
        "h5": between(1, 2, 3),
    }
    ranking = rank(choices)
    assert ranking.order == ("h5", "h2", "h1")
    assert (set(ranking.left_out), ranking.is_sure) == ({"h3", "h4"}, False)
    assert "no probe ran on h3" in ranking.left_out["h3"]
    assert rank({"a": choices["h1"], "b": choices["h2"]}).is_sure
    assert rank({"a": choices["h3"]}).left_out == {"a": "no probe ran on h3"}
    assert rank(dict[str, Estimate]()).order == ()


def test_estimates_without_baseline_join_the_largest_group() -> None:
    last = Baseline("last value", 1.0)
    choices = {
        "a": Estimate.exactly(3.0, Basis.MODELLED, baseline=CORE),
        "b": Estimate.exactly(2.0, Basis.MODELLED),
        "c": Estimate.exactly(1.0, Basis.MODELLED, baseline=last),
        "d": Estimate.exactly(1.5, Basis.MODELLED, baseline=last),
    }
    ranking = rank(choices)
    assert (ranking.order, ranking.is_sure) == (("c", "d", "b"), True)
    assert "baselines differ" in ranking.left_out["a"]


TIMES = st.lists(st.floats(0, 1e9), min_size=3, max_size=3).map(sorted)


@given(st.lists(TIMES, min_size=1, max_size=6))
def test_combined_bounds_hold_the_combined_time(times: list[list[float]]) -> None:
    parts = [between(low, seconds, high) for low, seconds, high in times]
    for whole in (successive(parts), together(parts)):
        low, seconds, high = whole.times
        assert low <= seconds <= high
        assert all(part.times[2] <= high for part in parts)
