"""Tests of the comparison's figures: rules that are not our own, and windows of all seeds together."""

from __future__ import annotations

from controller.learning.training.figures import Figures
from tests.benchmarks.learning import PARTS
from tests.benchmarks.parts import names_of
from tests.benchmarks.scheduling.cases import CASES
from tests.benchmarks.scheduling.comparison import comparison_of
from tests.benchmarks.scheduling.trials import Job, Tried
from tests.benchmarks.scheduling.windows import ORACLE, Cost


def _figures(response_ns: float) -> Figures:
    return Figures(1, 0.0, response_ns, 0.0, 0.0, 0.0, 0.0, response_ns)


def test_heuristics_exclude_our_rules_and_predictive_ones() -> None:
    case = CASES["cloudphysics"]
    rules = {"round-robin": 40.0, "data-local": 60.0, "earliest-finish": 3.0, "foretold-local": 9.0, "rollout": 8.0}
    windows = {
        "round-robin": 50,
        "data-local": 45,
        "earliest-finish": 1,
        "foretold-local": 26,
        "rollout": 25,
        ORACLE: 20,
    }
    tried = [
        Tried(
            Job(case.name, None, seed, quick=False),
            {name: _figures(ns + seed) for name, ns in rules.items()},
            [Cost(7, windows)],
        )
        for seed in (0, 1)
    ]
    ours = [
        Tried(
            Job(case.name, "tokens", seed, quick=False),
            {"tokens": _figures(10.0 + seed)},
            [Cost(7, {"tokens": 25})],
            seconds={"trained": 1.0},
        )
        for seed in (0, 1)
    ]
    comparison = comparison_of(case, [*ours, *tried])
    assert (comparison.best_rule, comparison.best_in_windows) == ("round-robin", "data-local")
    assert comparison.over_ours(comparison.best_rule) == 40.5 / 10.5
    assert comparison.over_ours("foretold-local") == 9.5 / 10.5
    assert comparison.share("tokens") == (45 - 25) / (45 - 20)


def test_each_input_has_its_figures() -> None:
    names = names_of(PARTS)
    assert len(set(names)) == len(names)
    for name in CASES:
        assert {f"{name}_best_heuristic_over_ours", f"{name}_oracle_share"} <= set(names)
        assert (f"{name}_own_rule_over_ours" in names) == (CASES[name].fallback in {"foretold-local", "rollout"})
    assert set(names) >= {
        "network_gain",
        "decision_p50_us",
        "decision_p99_us",
        "p99_ratio_training",
        "env_decisions_per_s",
    }
