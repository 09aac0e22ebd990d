"""Choices of each rule, all of them valid."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller.cluster.hardware import Request
from controller.cluster.workloads.values import Edge, TaskGraph
from controller.cluster.workloads.values import Task as GraphTask
from controller.learning.environment.model import Model
from controller.learning.environment.pool import Pool
from controller.learning.environment.settings import PoolSettings
from controller.learning.environment.values import Change, Node, System, Task, Workload
from controller.learning.environment.view import PoolView
from controller.learning.heuristics.heft import Heft, plan
from controller.learning.heuristics.named import LeastFirst, OldestFirst, job_rules, pool_rules, run_time
from controller.learning.heuristics.pool import (
    DataLocal,
    EarliestFinish,
    FastOnly,
    ForetoldLocal,
    LeastLoaded,
    RoundRobin,
)
from controller.learning.inputs.bursty import BurstySettings, bursty_input
from controller.learning.inputs.graphs import GraphSettings, graph_input, input_of
from controller.learning.inputs.ordering import Ordering, OrderingSettings
from controller.learning.inputs.systems import PoolSystem
from controller.learning.inputs.values import Jobs, PoolInput
from controller.learning.values import Chooser, Observation
from dataplane.topology.values import DeviceKind
from tests.controller.learning.environment.pools import around_data
from tests.reference.pool import PlainPool
from tests.reference.pool_figures import logarithmic

DATA = Path(__file__).parents[5] / "shared" / "data"
S = 1_000_000_000


def system(nodes: int = 3, fast_bytes: int = 1000, changes: tuple[Change, ...] = ()) -> System:
    return around_data(nodes, fast_bytes, changes=changes)


def taken(pool: PlainPool | Pool, rule: Chooser[PoolView]) -> list[int]:
    seen, actions = pool.start(0), []
    while True:
        actions.append(rule.choose(seen, pool))
        assert seen.candidates[actions[-1]]
        following = pool.step(actions[-1]).observation
        if following is None:
            return actions
        seen = following


def same_time(*uses: tuple[int, ...], size: int = 100, objects: int = 4) -> Workload:
    return Workload.of([Task(0, reads=used, int_operations=1000) for used in uses], [size] * objects)


def test_round_robin_skips_nodes_that_cannot_run_the_task() -> None:
    assert taken(PlainPool(system(), same_time((0,), (1,), (2,), (3,))), RoundRobin()) == [0, 1, 2, 0]
    gone = system(changes=(Change(0, "n1", is_there=False),))
    assert taken(PlainPool(gone, same_time((0,), (1,), (2,), (3,))), RoundRobin()) == [0, 2, 0, 2]


def test_least_loaded_takes_the_fewest_tasks_per_core() -> None:
    made = system()
    big = Node("n1", (replace(made.nodes[1].engines[0], cores=4),), made.nodes[1].memories)
    made = replace(made, nodes=(made.nodes[0], big, *made.nodes[2:]))
    # All are idle at first; then the one with four cores has the least load per core.
    assert taken(PlainPool(made, same_time(*[(0,)] * 6)), LeastLoaded()) == [0, 1, 2, 1, 1, 1]


def test_least_loaded_takes_equals_in_turn() -> None:
    spaced = Workload.of([Task(number * S) for number in range(4)], [1])
    assert taken(PlainPool(system(), spaced), LeastLoaded()) == [0, 1, 2, 0]


def test_data_local_takes_the_node_that_has_most_of_the_data() -> None:
    pool = PlainPool(system(), same_time((0, 1), (2,), (0, 1, 2), (2, 3)))
    assert taken(pool, DataLocal()) == [0, 1, 0, 0]


def test_fast_only_takes_a_node_without_evictions() -> None:
    pool = PlainPool(system(fast_bytes=250), same_time((0, 1), (2, 3), (0, 1), (2,)))
    # The two full ones cannot take 200 bytes more.
    assert taken(pool, FastOnly())[:3] == [0, 1, 2]
    assert pool.start(0).free.tolist() == [1, 1, 1]


def test_earliest_finish_takes_the_node_that_ends_first() -> None:
    made = system()
    quick = Node("n2", (replace(made.nodes[2].engines[0], int_ops_per_s=2 * S),), made.nodes[2].memories)
    made = replace(made, nodes=(*made.nodes[:2], quick, made.nodes[3]))
    workload = Workload.of([Task(0, int_operations=S)] * 4, [1])
    # Two run on the fast one before it takes longer than an idle one; then both are equally good.
    assert taken(PlainPool(made, workload), EarliestFinish())[:2] == [2, 0]


def _foretold(
    cost_ns: list[int], evicting: list[int], similarity: list[float], leaving_ns: list[int], possible: list[bool]
) -> Observation:
    """Return an observation with these features only."""
    rows = np.zeros((8, len(cost_ns)), np.float32)
    rows[[4, 6, 7]] = [[logarithmic(figure) for figure in figures] for figures in (leaving_ns, evicting, cost_ns)]
    nothing = [0.0] * len(cost_ns)
    return Observation.of(
        utilisation=0,
        operations=0,
        size=0,
        is_write=0,
        free=nothing,
        similarity=similarity,
        delay=nothing,
        bandwidth=nothing,
        load=rows.tolist(),
        candidates=possible,
    )


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        ({}, [1, 1, 1]),  # most local data among those with at most three times the least cost
        ({"similarity": [0.5, 0.5, 0, 1]}, [0, 0, 0]),  # the earliest free output port
        ({"similarity": [0.5, 0.5, 0, 1], "leaving_ns": [7, 7, 0, 0]}, [0, 1, 0]),  # in turn
        ({"evicting": [0, 200_000, 0, 0]}, [0, 0, 0]),  # each evicted byte costs 1 ns
        ({"possible": [False, False, True, True]}, [3, 3, 3]),  # now the least is 200 us
    ],
)
def test_foretold_local_takes_most_data_among_cheap_nodes(changed: dict[str, list[Any]], chosen: list[int]) -> None:
    shown: dict[str, list[Any]] = {
        "cost_ns": [100_000, 150_000, 200_000, 500_000],
        "evicting": [0, 65_536, 0, 0],
        "similarity": [0.25, 0.5, 0, 1],
        "leaving_ns": [5_000, 9_000, 0, 0],
        "possible": [True] * 4,
    }
    rule = ForetoldLocal()
    assert [rule.choose(_foretold(**(shown | changed)), None) for _ in range(3)] == chosen


def test_foretold_local_needs_shown_costs() -> None:
    made = bursty_input(0, BurstySettings(tasks=80, system=PoolSystem(nodes=5)))
    assert "foretold-local" not in pool_rules(made, 0)
    shown = replace(made, settings=PoolSettings(load_features=True, foretold=True, port_hz=10_000))
    pool = Pool(shown.system, shown.workload, shown.settings)
    assert len(set(taken(pool, pool_rules(shown, 0)["foretold-local"]))) > 1


@pytest.mark.parametrize(
    "name", ["random", "round-robin", "least-loaded", "data-local", "fast-only", "earliest-finish"]
)
def test_rules_choose_possible_nodes_on_the_bursty_family(name: str) -> None:
    made = bursty_input(0, BurstySettings(tasks=80, system=PoolSystem(nodes=5)))
    rule = pool_rules(made, 0)[name]
    actions = taken(PlainPool(made.system, made.workload), rule)
    assert len(actions) == 80
    assert len(set(actions)) > 1


def test_random_is_the_same_for_a_seed() -> None:
    made = bursty_input(0, BurstySettings(tasks=30, system=PoolSystem(nodes=5)))
    first, again, other = (
        taken(PlainPool(made.system, made.workload), pool_rules(made, seed)["random"]) for seed in (0, 0, 1)
    )
    assert first == again != other


def graph(*tasks: tuple[float, float], edges: tuple[tuple[int, int], ...] = ()) -> TaskGraph:
    """Return tasks with their seconds on CPU and GPU, and their dependencies."""
    return TaskGraph(
        "graph",
        tuple(
            GraphTask(str(n), 0, Request(), {DeviceKind.CPU: round(cpu * S), DeviceKind.GPU: round(gpu * S)})
            for n, (cpu, gpu) in enumerate(tasks)
        ),
        tuple(Edge(str(src), str(dst)) for src, dst in edges),
    )


def planned(made: PoolInput) -> list[int]:
    return plan(Model.of(made.system, made.workload, made.settings))


def settings(edge_bytes: int, nodes: int = 2) -> GraphSettings:
    return GraphSettings(
        edge_bytes=edge_bytes, nodes=nodes, gpu_every=nodes, cores=1, time_compression=1, home_bytes=1 << 42
    )


def test_heft_gives_the_fast_engine_to_the_critical_path() -> None:
    # A chain of three and an independent task: only node 0 has a GPU.
    chain = graph((8, 2), (8, 2), (8, 2), (5, 5), edges=((0, 1), (1, 2)))
    assert planned(input_of(chain, settings(edge_bytes=1)))[:3] == [0, 0, 0]


def test_heft_counts_the_data_of_edges() -> None:
    # Three tasks after one: in parallel if they read little, on the same node if transfers take longer than they do.
    fork = graph((4, 4), (4, 4), (4, 4), (4, 4), edges=((0, 1), (0, 2), (0, 3)))
    # CPU and GPU of node 0, equally fast here, and the CPU of node 1 run them concurrently.
    assert sorted(planned(input_of(fork, settings(edge_bytes=1000, nodes=3)))[1:]) == [0, 0, 1]
    far = planned(input_of(fork, settings(edge_bytes=200_000_000_000, nodes=3)))
    assert set(far) == {far[0]}


def test_heft_follows_its_plan_and_replaces_a_missing_node() -> None:
    made = input_of(graph((4, 1), (4, 1), edges=((0, 1),)), settings(edge_bytes=1000))
    assert taken(PlainPool(made.system, made.workload), Heft()) == planned(made) == [0, 0]
    work = same_time((0,), (1,))
    assert taken(PlainPool(system(2), work), Heft()) == [0, 1]
    gone = system(2, changes=(Change(0, "n0", is_there=False),))
    assert taken(PlainPool(gone, work), Heft()) == [1, 1]


def test_heft_is_listed_for_graphs_only() -> None:
    assert "heft" in pool_rules(input_of(graph((1, 1), (1, 1), edges=((0, 1),)), GraphSettings()), 0)
    assert "heft" not in pool_rules(bursty_input(0, BurstySettings(tasks=5)), 0)


def log() -> Jobs:
    rows = ([0, 1, 2, 3], [10, 30, 20, 5], [10, 30, 20, 5], [4, 4, 4, 4])
    submitted, run, estimate, processors = (np.array(column, np.int64) for column in rows)
    return Jobs("log", 4, submitted * S, run * S, estimate * S, processors)


@pytest.mark.parametrize(
    ("name", "chosen_job"),
    [
        ("easy", 2),
        ("shortest-first", 5),
        ("shortest-fitting-first", 4),
        ("smallest-first", 5),
        ("smallest-fitting-first", 3),
        ("wfp3", 4),
        ("unicep", 4),
        ("f1", 2),
        ("rollout", 4),
    ],
)
def test_each_job_rule_takes_the_first_by_its_formula(name: str, chosen_job: int) -> None:
    # In second 100 three of four processors are free: the job of 5 s on four does not fit.
    rows = [(0, 100, 3), (0, 200, 1), (1, 30, 2), (3, 21, 1), (4, 8, 3), (90, 5, 4)]
    submitted, run, processors = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    jobs = Jobs("log", 4, submitted * S, run * S, run * S, processors)
    made = Ordering(jobs, OrderingSettings(early=False, job_features=True, foretold=True))
    made.start(0)
    made.step(0)
    seen = made.step(0).observation
    assert seen is not None
    assert made.window[job_rules(made.settings, 0)[name].choose(seen, made)] == chosen_job


@pytest.mark.parametrize(("rule", "begun"), [(OldestFirst(), [0, 10, 40, 60]), (LeastFirst(run_time), [0, 10, 45, 40])])
def test_jobs_go_by_age_or_by_length(rule: Chooser[Ordering], begun: list[int]) -> None:
    made = Ordering(log())
    seen = made.start(0)
    while made.places:
        following = made.step(rule.choose(seen, made)).observation
        seen = following or seen
    # The second job is the only one waiting once the first has begun: both rules reserve for it.
    assert [ns // S for ns in made.started_ns] == begun


def test_job_rules_are_named_by_backfilling_and_features() -> None:
    others = {"random", "shortest-first", "shortest-fitting-first", "smallest-first", "smallest-fitting-first"}
    others |= {"wfp3", "unicep", "f1"}
    assert set(job_rules(OrderingSettings(), 0)) == {"easy", *others}
    assert set(job_rules(OrderingSettings(backfilling=False), 0)) == {"first-come-first-served", *others}
    assert set(job_rules(OrderingSettings(job_features=True, foretold=True), 0)) == {"easy", "rollout", *others}


def test_heft_ends_hetero_spotri_before_the_greedy_rules() -> None:
    if not (path := DATA / "hetero_spotri_spotri-320-10.txt").exists():
        pytest.skip(f"{path.name} is missing")
    made = graph_input(path, GraphSettings(edge_bytes=1000))
    ends = {}
    for name in ("heft", "round-robin", "least-loaded", "data-local"):
        pool = Pool(made.system, made.workload)
        taken(pool, pool_rules(made, 0)[name])
        ends[name] = pool.now_ns
    assert min(ends, key=ends.__getitem__) == "heft"
