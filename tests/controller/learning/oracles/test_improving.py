"""The search over whole runs: its plays and its results."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from controller.learning.environment.kernels.playing import PRICE_ONE, Play
from controller.learning.environment.pool import Pool
from controller.learning.environment.values import EngineKind, Task, Workload
from controller.learning.errors import LearningError
from controller.learning.inputs.systems import PoolSystem
from controller.learning.inputs.values import Graphs, PoolInput
from controller.learning.oracles.improving import Found, Plays, improve
from dataplane.native import pointer_to
from tests.reference.pool import PlainPool

US = 20_000
"""Operations of a CPU core per microsecond."""


def drawn(seed: int, tasks: int, nodes: int = 4, most_bytes: int = 400_000) -> PoolInput:
    """Return a random graph: each task reads the output of up to three earlier ones."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(tasks):
        before = tuple(sorted(set(rng.integers(0, number, min(number, 3)).tolist()))) if number else ()
        reads = before or (tasks + number,)
        floats, ints = (int(figure) for figure in rng.integers(1, 200, 2) * US)
        made.append(Task(number // 8 * 100, reads, (number,), floats, ints, after=before))
    sizes = rng.integers(1, most_bytes, 2 * tasks).tolist()
    return PoolInput("drawn", PoolSystem(nodes=nodes).made(), Workload.of(made, sizes, range(tasks)))


def pool_of(made: PoolInput) -> Pool:
    return Pool(made.system, made.workload, made.settings)


def played(made: PoolInput, nodes: tuple[int, ...]) -> list[int]:
    """Return the end of each task on its assigned node."""
    pool, ends = pool_of(made), [0] * len(nodes)
    pool.start(0)
    while pool.task >= 0:
        step = pool.step(nodes[pool.task])
        ends[step.task] = step.submitted_ns + step.response_ns
    return ends


def cost(made: PoolInput, nodes: tuple[int, ...]) -> float:
    graphs = Graphs.of(made.workload)
    last = np.zeros(len(graphs.submitted_ns), np.int64)
    np.maximum.at(last, graphs.of_task, played(made, nodes))
    return float((last - graphs.submitted_ns).mean())


def by_prices(made: PoolInput, engines: list[int], arriving: int, leaving: int) -> list[int]:
    """Return the nodes of tasks by prices, computed with the plain twin."""
    pool, nodes = PlainPool(made.system, made.workload, made.settings), [-1] * len(made.workload)
    seen = pool.start(0)
    while True:
        costs = {}
        for node in np.flatnonzero(seen.candidates).tolist():
            plan, state = pool._plan(node, pool.task), pool._nodes
            first = sum(len(machine.engines) for machine in state[:node])
            forecast, now_ns = plan.forecast, pool.now_ns
            left = sum(
                max(free_ns, now_ns) - max(other.out_free_ns, now_ns)
                for other, free_ns in zip(state, plan.out_free_ns, strict=True)
            )
            arrived = max(plan.in_free_ns, now_ns) - max(state[node].in_free_ns, now_ns)
            held = engines[first + plan.engine] * (forecast.end_ns - forecast.start_ns)
            costs[node] = PRICE_ONE * (forecast.end_ns - now_ns) + held + arriving * arrived + leaving * left
        nodes[pool.task] = min(costs, key=costs.__getitem__)
        following = pool.step(nodes[pool.task]).observation
        if following is None:
            return nodes
        seen = following


@pytest.mark.parametrize("seed", range(3))
def test_a_run_at_once_is_that_of_the_plain_twin(seed: int) -> None:
    made = drawn(seed, 40)
    engines = [100 * (1 + number) for number, _ in enumerate(e for n in made.system.nodes for e in n.engines)]
    given, taken, ends = (np.full(40, number, np.int64) for number in (-1, -1, 0))
    prices = np.array(engines, np.int64)
    told = Play(
        given=pointer_to(given),
        taken=pointer_to(taken),
        end_ns=pointer_to(ends),
        engine_prices=pointer_to(prices),
        arriving_price=700,
        leaving_price=2900,
    )
    assert pool_of(made).play(told, 0)
    assert taken.tolist() == by_prices(made, engines, 700, 2900)
    assert ends.tolist() == played(made, tuple(taken.tolist()))
    given[3] = 1 - taken[3]
    if pool_of(made).play(told, 0):
        assert taken[3] == given[3]


@pytest.mark.parametrize("seed", range(3))
def test_the_search_finds_the_best_run_of_a_small_graph(seed: int) -> None:
    made = drawn(seed, 6, nodes=2, most_bytes=2000)
    improved = improve(pool_of(made), [], Plays(50, 200, 400), seed=0)
    assert improved.mean_response_ns == min(cost(made, nodes) for nodes in product(range(2), repeat=6))
    assert improved.mean_response_ns == cost(made, improved.nodes)
    assert improved.plays == 652


def test_search_continues_from_given_nodes_and_is_repeatable() -> None:
    made = drawn(2, 60)
    pool = pool_of(made)
    first = improve(pool, [], Plays(100, 100, 300), seed=0)
    assert improve(pool, [], Plays(100, 100, 300), seed=0) == first
    again = improve(pool, [[0] * 60, first.nodes], Plays(0, 0, 0), seed=1)
    assert again == Found(first.nodes, first.mean_response_ns, 4)


def test_infeasible_search_is_an_error() -> None:
    # The first two kinds of nodes have no FPGA or XPU.
    tasks = [Task(0, int_operations=10), Task(1, int_operations=10, kinds=EngineKind.XPU.bit)]
    pool = Pool(PoolSystem(nodes=2).made(), Workload.of(tasks, [1]))
    with pytest.raises(LearningError, match="decides on every task"):
        improve(pool, [], Plays(2, 2, 2), seed=0)
    with pytest.raises(LearningError, match="invalid numbers of runs"):
        Plays(prices=-1)
