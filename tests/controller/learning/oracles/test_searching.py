"""Oracles of decisions, checked against exhaustive search and against rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import permutations, product

import numpy as np
import pytest

from controller.learning.environment.pool import Pool
from controller.learning.environment.settings import PoolSettings
from controller.learning.environment.values import EngineKind, Task, Workload
from controller.learning.environment.view import PoolView
from controller.learning.errors import LearningError
from controller.learning.heuristics.named import job_rules, pool_rules
from controller.learning.heuristics.pool import RoundRobin
from controller.learning.inputs.bursty import BurstySettings, bursty_input
from controller.learning.inputs.ordering import Ordering, OrderingSettings
from controller.learning.inputs.systems import PoolSystem
from controller.learning.inputs.values import Jobs, PoolInput
from controller.learning.oracles.searching import (
    Objective,
    beam,
    exact,
    job_floors_ns,
    pool_floors_ns,
    replay,
)
from controller.learning.values import Chooser, Observation

S = 1_000_000_000
SMALL = BurstySettings(
    tasks=400, quiet_hz=200_000, objects=20, mean_operations=5e5, system=PoolSystem(nodes=3, fast_bytes=4 * 65536)
)


def window(seed: int, tasks: int = 5) -> PoolInput:
    return bursty_input(seed, SMALL).window(100, tasks)


def pool_of(made: PoolInput) -> Pool:
    return Pool(made.system, made.workload, made.settings)


def cost(pool: Pool, actions: tuple[int, ...], objective: Objective) -> int | None:
    left = list(actions)
    try:
        costs = replay(pool, pool.start(0), len(actions), lambda _: left.pop(0))
    except LearningError:
        return None
    return costs[objective is Objective.MAKESPAN]


def chosen(rule: Chooser[PoolView], pool: Pool, seen: Observation) -> int:
    return rule.choose(seen, pool)


def first_of(made: Ordering, order: tuple[int, ...], _: Observation) -> int:
    """Return the place of the eligible job that comes first in an order."""
    return min(made.places, key=lambda index: order.index(made.window[index]))


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(3))
def test_exact_search_equals_exhaustive_search(seed: int, objective: Objective) -> None:
    pool = pool_of(window(seed))
    optimum = exact(pool, pool.start(0), pool_floors_ns(pool.model), objective)
    everything = [cost(pool, actions, objective) for actions in product(range(3), repeat=5)]
    assert optimum.cost_ns == min(cost_ns for cost_ns in everything if cost_ns is not None)
    assert cost(pool, optimum.actions, objective) == optimum.cost_ns
    assert optimum.is_exact


@pytest.mark.parametrize("seed", range(3))
def test_no_rule_beats_exact_search_and_a_wide_beam_equals_it(seed: int) -> None:
    made = window(seed, 7)
    pool = pool_of(made)
    optimum = exact(pool, pool.start(0), pool_floors_ns(pool.model))
    for rule in pool_rules(made, 0).values():
        responses_ns, _ = replay(pool, pool.start(0), 7, partial(chosen, rule, pool))
        assert responses_ns >= optimum.cost_ns
    assert beam(pool, pool.start(0), 7, width=3**6).cost_ns == optimum.cost_ns
    assert beam(pool, pool.start(0), 7, width=4).cost_ns >= optimum.cost_ns


@pytest.mark.parametrize("seed", range(3))
def test_the_best_order_of_jobs_is_that_of_trying_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    run = rng.integers(1, 50, 5) * S
    jobs = Jobs("drawn", 4, np.sort(rng.integers(0, 10, 5)) * S, run, run, rng.integers(1, 5, 5))
    made = Ordering(jobs, OrderingSettings(window=5))
    optimum = exact(made, made.start(0), job_floors_ns(jobs))
    everything = []
    for order in permutations(range(5)):
        replay(made, made.start(0), 5, partial(first_of, made, order))
        everything.append(made.outcome().mean_response_ns * 5)
    assert optimum.cost_ns == min(everything)


@pytest.mark.parametrize("seed", range(3))
def test_job_beam_is_at_least_as_good_as_its_forecasting_rule(seed: int) -> None:
    rng = np.random.default_rng(seed)
    run = rng.integers(1, 200, 24) * S
    made = Ordering(Jobs("drawn", 16, run * 0, run, run, rng.integers(1, 13, 24)), OrderingSettings(early=False))
    rule = job_rules(made.settings, 0)["shortest-fitting-first"]
    by_rule, _ = replay(made, made.start(0), 24, lambda seen: rule.choose(seen, made))
    optimum = beam(made, made.start(0), 24, width=1, rest_ns=made.rest_ns)
    assert optimum.cost_ns <= by_rule
    assert replay(made, made.start(0), 24, partial(taken, iter(optimum.actions)))[0] == optimum.cost_ns
    assert made.outcome().mean_response_ns * 24 == pytest.approx(optimum.cost_ns)


def taken(actions: Iterator[int], _: Observation) -> int:
    return next(actions)


def test_search_from_mid_run_finds_the_best_remainder() -> None:
    made = bursty_input(0, SMALL).window(0, 60)
    pool, rule = pool_of(made), RoundRobin()
    seen = pool.start(0)
    replay(pool, seen, 50, partial(chosen, rule, pool))
    saved = pool.save()
    here = pool.restore(saved)
    assert here is not None
    optimum = exact(pool, here, pool_floors_ns(pool.model, pool.task, 4))
    costs = []
    for actions in product(range(3), repeat=4):
        pool.restore(saved)
        left = list(actions)
        with suppress(LearningError):
            costs.append(replay(pool, here, 4, lambda _, left=left: left.pop(0))[0])  # type: ignore[misc]
    assert optimum.cost_ns == min(costs)
    pool.restore(saved)
    with pytest.raises(LearningError, match="is not in the window"):
        exact(pool, here, {0: 0})


def test_job_costs_are_unknown_with_inexact_estimates() -> None:
    costs_ns = np.array([S], np.int64)
    with pytest.raises(LearningError, match="exact estimates"):
        job_floors_ns(Jobs("log", 4, costs_ns * 0, costs_ns, 2 * costs_ns, costs_ns // S))


def test_a_search_is_given_up_after_so_many_steps() -> None:
    pool = pool_of(window(0, 7))
    with pytest.raises(LearningError, match="take a smaller window"):
        exact(pool, pool.start(0), pool_floors_ns(pool.model), most_steps=10)
    with pytest.raises(LearningError, match="no exact search of 65 tasks"):
        exact(pool, pool.start(0), dict.fromkeys(range(65), 0))


def test_no_oracle_if_a_task_can_run_nowhere() -> None:
    # The first two kinds of nodes have no FPGA or XPU.
    tasks = [Task(0, int_operations=10), Task(1, int_operations=10, kinds=EngineKind.XPU.bit)]
    pool = Pool(PoolSystem(nodes=2).made(), Workload.of(tasks, [1]), PoolSettings())
    with pytest.raises(LearningError, match="every task can run"):
        exact(pool, pool.start(0), pool_floors_ns(pool.model))
    with pytest.raises(LearningError, match="every task can run"):
        beam(pool, pool.start(0), 2, width=4)


def test_window_of_tasks_has_its_objects_and_starts_at_0() -> None:
    whole, part = bursty_input(0, SMALL).workload, window(0).workload
    assert (part.submitted_ns == whole.submitted_ns[100:105] - whole.submitted_ns[100]).all()
    assert (part.int_operations == whole.int_operations[100:105]).all()
    assert len(part.object_bytes) == len(set(part.access_object.tolist()))
    assert len(part.access_object) == whole.access_start[105] - whole.access_start[100]
    with pytest.raises(LearningError, match="no task from 400 on"):
        bursty_input(0, SMALL).window(400, 5)


def test_window_of_a_graph_follows_its_inputs() -> None:
    chain = [Task(0, (), (0,)), Task(0, (0,), (1,), after=(0,)), Task(0, (1,), (2,), after=(1,))]
    made = PoolInput("chain", PoolSystem(nodes=2).made(), Workload.of(chain, [10, 20, 30], [0, 1, 2]))
    part = made.window(1, 2).workload
    assert part.predecessors.tolist() == [0, 1]
    # The output of the task before the window exists from the start.
    assert part.created[part.access_object[0]] == 0
    assert part.object_bytes[part.access_object].tolist() == [10, 20, 20, 30]
    assert part.created.tolist() == [0, 1, 1]
