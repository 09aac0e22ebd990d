"""Scores: weighted points by intervals, reported outliers, one score per number of units."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.apiserver.resources.probe_result import ProbeResultStatus, ProbeRun
from controller.probing.evaluation.averages import averaged
from controller.probing.evaluation.policy import DEFAULT, Policy, load_policy, policy_of, resource_of
from controller.probing.evaluation.scoring import score, scored
from dataplane.config import loads
from dataplane.errors import ConfigError

POLICY = """
name: both
run_time_s:
  weight: 0.75
  intervals:
    - {below: 1, points: 100}
    - {from: 1, below: 2, points: 60}
    - {from: 2, points: 10}
accuracy:
  weight: 0.25
  intervals:
    - {below: 1.0e-9, points: 100}
    - {from: 1.0e-9, points: 0}
"""


def test_score_is_the_weighted_sum_of_interval_points() -> None:
    policy = loads(POLICY, Policy)
    (scored,) = score(policy, [ProbeRun(units=2, run_times_s=(1.4, 1.6), accuracies=(1e-12,))])
    assert scored.points == {"run-time-s": 60, "accuracy": 100}
    assert scored.score == pytest.approx(0.75 * 60 + 0.25 * 100)
    assert scored.units == 2


@pytest.mark.parametrize(("figure", "points"), [(0.0, 100), (0.999, 100), (1.0, 60), (2.0, 10), (1e9, 10)])
def test_an_interval_has_its_lower_bound_and_not_its_upper_one(figure: float, points: float) -> None:
    policy = loads(POLICY, Policy)
    assert policy.run_time_s is not None
    assert policy.run_time_s.points(figure) == points


def test_each_unit_count_has_its_own_score() -> None:
    runs = (ProbeRun(units=4, run_times_s=(0.5,), accuracies=(0.0,)), ProbeRun(units=1, run_times_s=(1.5,)))
    status = scored(loads(POLICY, Policy), ProbeResultStatus(runs=runs))
    assert [(run.units, run.run_times_s, run.score) for run in status.runs] == [(4, (0.5,), 100), (1, (1.5,), None)]
    assert status.runs[1].notes == ("no score: accuracy was not measured",)
    assert (status.score, status.score_units, status.policy) == (None, 1, "both")


def test_scores_name_the_version_of_their_policy() -> None:
    """The version follows from the scales alone, and the API server's form keeps them."""
    policy = loads(POLICY, Policy)
    status = scored(policy, ProbeResultStatus(runs=(ProbeRun(units=1, run_times_s=(0.5,), accuracies=(0.0,)),)))
    assert (status.policy_digest, status.scored_by) == (policy.digest, f"both@{policy.digest}")
    assert len(policy.digest) == 12
    assert loads(POLICY.replace("name: both", "name: other"), Policy).digest == policy.digest
    for change in (("points: 60", "points: 61"), ("weight: 0.75", "weight: 0.76"), ("1.0e-9", "1.0e-8")):
        assert loads(POLICY.replace(*change), Policy).digest != policy.digest
    assert policy_of(resource_of(policy)) == policy


def test_policy_weighs_at_most_as_many_figures_as_results_keep() -> None:
    def of(count: int) -> str:
        scale = {"intervals": [{"points": 1}]}
        return json.dumps({"run_time_s": scale, "figures": {f"f{number}": scale for number in range(count)}})

    assert len(loads(of(62), Policy).scales) == 63
    with pytest.raises(ConfigError, match="figures"):
        loads(of(63), Policy)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("{from: 1, below: 2", "{from: 1.5, below: 2"), ":3: run_time_s: intervals[1].from: begins at 1.5"),
        (("{from: 1, below: 2", "{from: 0.5, below: 2"), "an overlap"),
        (("{from: 1, below: 2", "{from: 2, below: 1"), ":7: run_time_s.intervals[1]: from 2 to below 1"),
        (("{from: 1, below: 2", "{from: 1, below: .nan"), "below: nan is not finite"),
        (("points: 60", "points: .nan"), "points: nan is not finite"),
        (("{from: 2, points: 10}", "{from: 2, below: 3, points: 10}"), "from 3 on figures have no points: a gap"),
        (("{below: 1, points: 100}", "{from: 0.1, below: 1, points: 1}"), "below 0.1 figures have no points: a gap"),
        (("weight: 0.75", "weight: -1"), ":3: run_time_s: weight: -1.0 is not above 0"),
        (("weight: 0.75", "weight: .nan"), "weight: nan is not above 0"),
        (("weight: 0.75", "weight: 0"), "weight: 0.0 is not above 0"),
        (("weight: 0.75", "wieght: 0.75"), ":4: run_time_s.wieght: unknown key; did you mean `weight`?"),
    ],
)
def test_invalid_tables_are_refused_with_file_line_and_key(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.replace(*change), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_policy(file)
    assert str(file) in str(caught.value)
    assert says in str(caught.value)


def test_the_default_policy_gives_a_score() -> None:
    (scored,) = score(DEFAULT, [ProbeRun(units=1, run_times_s=(0.2,), accuracies=(1e-15,))])
    assert scored.score == pytest.approx(100)


def test_outliers_are_left_out_and_reported() -> None:
    average = averaged([1.0, 1.02, 0.99, 5.0, 1.01, 1.0])
    assert average is not None
    assert average.left_out == (3,)
    assert average.mean == pytest.approx(1.004)
    assert average.reasons == ("repetition 4 left out: 5, the median is 1.005",)


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ([1.0, 1.0, 9.0], ()),
        ([1.0, 1.01, 0.99, 1.0, 1.02, 2.0, 2.1, 1.9], ("3 of 8 repetitions are outliers: all are kept",)),
        ([1.0] * 5 + [1.002], ()),
        ([1.0, float("nan"), 1.1], ("repetition 2 left out: nan is not a measurement",)),
    ],
)
def test_values_that_are_no_outliers_are_kept(figures: list[float], says: tuple[str, ...]) -> None:
    average = averaged(figures)
    assert average is not None
    assert average.reasons == says
    assert len(average.kept) == len(figures) - len(average.left_out)


def test_nothing_has_no_mean() -> None:
    assert averaged([]) is None
    assert averaged([float("inf"), -1.0]) is None
