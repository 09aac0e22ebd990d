"""Arrivals that are tried differ from those that were learned, and are compared with rules that others use."""

from __future__ import annotations

import random
from typing import Any

import pytest

from controller.learning.environment.pool import Pool
from controller.learning.inputs.ordering import Ordering
from controller.learning.values import Environment
from tests.benchmarks.learning import PARTS
from tests.benchmarks.parts import names_of
from tests.benchmarks.scheduling.arrivals import JOBS, TASKS, TRIED, WIDE, Arrivals, drawn_log
from tests.benchmarks.scheduling.cases import CASES, of_form
from tests.benchmarks.scheduling.shift import Job, shifts_of


@pytest.mark.parametrize("name", CASES)
def test_each_input_is_tried_on_arrivals_it_did_not_learn(name: str) -> None:
    case, (first, *others) = CASES[name], TRIED[name]
    assert not set(first.changes) - {"blocks.first", "blocks.requests"}
    assert {each.name for each in others} == {"twice the load", "another family"}
    changes = [each.changes for each in (*WIDE[name], first) if each.changes]
    assert all(each.changes not in changes for each in others if each.changes)
    assert f"{name}_shift_over_best_rule" in names_of(PARTS)
    if case.is_here and name != "cloudphysics":
        sizes = [_tasks(each.given(case, case.tried, 1, quick=True).environment) for each in TRIED[name]]
        assert sizes == {"bursty": [1500] * 3, "spotri": [660, 1320, TASKS], "lublin": [300, JOBS, JOBS]}[name]


def _tasks(environment: Environment[Any]) -> int:
    if isinstance(environment, Ordering):
        return len(environment.jobs)
    assert isinstance(environment, Pool)
    return len(environment.model.workload)


def _span_ns(arrivals: Arrivals, name: str) -> int:
    environment = arrivals.given(CASES[name], CASES[name].tried, 1, quick=True).environment
    if isinstance(environment, Ordering):
        return int(environment.jobs.submitted_ns[-1])
    assert isinstance(environment, Pool)
    return int(environment.model.workload.submitted_ns[-1])


@pytest.mark.parametrize("name", ["bursty", "cloudphysics"])
def test_twice_the_load_comes_in_half_the_time(name: str) -> None:
    if not CASES[name].is_here:
        pytest.skip(f"{CASES[name].file} is not here")
    learned, twice, _ = (_span_ns(each, name) for each in TRIED[name])
    # Bursts last as long as before, so that their share of the time is drawn anew.
    assert learned / twice == pytest.approx(2, rel=0.35 if name == "bursty" else 1e-3)


def test_drawn_log_has_the_stated_load() -> None:
    lines = [line.split() for line in drawn_log(CASES["lublin"], random.Random("log"))]
    area = sum(int(line[3]) * int(line[4]) for line in lines)
    assert area / 256 / int(lines[-1][1]) == pytest.approx(0.9, rel=0.05)


def test_rules_of_the_shift_are_those_of_the_comparison() -> None:
    rules = {"data-local": 30.0, "round-robin": 20.0, "earliest-finish": 1.0, "foretold-local": 2.0}
    done = [
        (Job("bursty", "rules", seed, quick=False), {"twice the load": {name: ns + seed for name, ns in rules.items()}})
        for seed in (1, 0)
    ]
    ours = [
        (
            Job("bursty", "tokens", seed, quick=False),
            {"twice the load": {"tokens": 10.0 + seed, "tokens, guarded": 9.0}},
        )
        for seed in (0, 1)
    ]
    (shift,) = shifts_of([*done, *ours])
    assert shift.best_rule == "round-robin"
    assert shift.over("tokens") == 20.5 / 10.5


def test_preset_departs_by_nothing_but_units() -> None:
    for case in CASES.values():
        for settings in (of_form(case.learning, "specification"), of_form(case.tried, "specification")):
            assert settings.agent == case.agent("specification", 0)
            assert (settings.pool.gain, settings.ordering.gain) == ("specification", "slowdown")
            pool, ordering = settings.pool, settings.ordering
            assert (pool.load_features, pool.network_features, pool.port_hz) == (False, False, 0)
            assert (ordering.job_features, ordering.waits_and_sizes) == (False, False)
        assert case.fallback_of("specification") not in {"foretold-local", "rollout"}
