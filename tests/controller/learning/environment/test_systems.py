"""Impossible systems and workloads are refused in one line that names the problem."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.learning.environment.pool import Pool
from controller.learning.environment.settings import Placing, PoolSettings
from controller.learning.environment.values import (
    Change,
    Engine,
    EngineKind,
    Network,
    System,
    Task,
    Workload,
)
from controller.learning.errors import LearningError
from tests.controller.learning.environment.pools import PLAIN, cpu, node, reads, system, two_and_pool
from tests.reference.pool import PlainPool


@pytest.mark.parametrize(
    ("tasks", "sizes", "message"),
    [
        ([], [], "a workload needs at least one task"),
        ([Task(0, reads=(1,))], [10], "task 0 uses object 1, which nobody has"),
        ([Task(0, reads=(0,), writes=(0,))], [10], "task 0 uses object 0 twice"),
        ([Task(5), Task(4)], [], "task 1 is submitted before the task before it"),
        ([Task(-1)], [], "the time of task 0 is not between 0 and"),
        ([Task(0), Task(0, after=(1,))], [], "task 1 comes after task 1, which is not before it"),
        ([Task(0, kinds=0)], [], "task 0 can run on no kind of engine"),
        ([Task(0, float_operations=-1)], [], "float_operations of task 0 are not between 0 and"),
        ([Task(0)], [0], "the size of object 0 is not between 1 and"),
    ],
)
def test_requests_that_cannot_be_are_named(tasks: list[Task], sizes: list[int], message: str) -> None:
    with pytest.raises(LearningError, match=f"^{message}"):
        Workload.of(tasks, sizes)


def test_systems_that_cannot_be_are_named() -> None:
    for nodes, message in (
        ([node("p", slow_bytes=9)], "a system needs nodes with engines"),
        ([node("p", slow_bytes=9), node("a", cpu())], "those without after them"),
        ([node("a", cpu()), node("a", cpu())], "two nodes have the name 'a'"),
        ([node("a", cpu()), node("p")], "node p has no memory"),
        ([node("a", cpu(0))], r"cores=0.* of node a is invalid"),
        ([node("a", cpu(), fast_bytes=0)], r"capacity_bytes=0.* of node a is invalid"),
    ):
        with pytest.raises(LearningError, match=message):
            system(*nodes)
    base = two_and_pool()
    with pytest.raises(LearningError, match="the system has no node 'c', which changes"):
        System(base.nodes, base.network, (Change(0, "c", is_there=False),))
    with pytest.raises(LearningError, match="changes of nodes are not in order of time"):
        System(base.nodes, base.network, (Change(1, "a", is_there=False), Change(0, "a", is_there=True)))
    with pytest.raises(
        LearningError, match=r"delays \(1, 2, 2\) and rates \(1, 2, 2\) of a network are not \(1, 3, 3\)"
    ):
        System(base.nodes, Network.uniform(2, delay_ns=0, rate_bps=1))
    with pytest.raises(LearningError, match="delays or rates of a network are out of range"):
        System(base.nodes, Network.uniform(3, delay_ns=-2, rate_bps=1))


def test_data_without_a_home_is_named() -> None:
    with pytest.raises(LearningError, match="no object has a home"):
        Pool(system(node("a", cpu())), reads(0), PLAIN)
    with pytest.raises(LearningError, match="no memory of the pool has room for the 1000 bytes of object 1"):
        Pool(system(node("a", cpu()), node("p", slow_bytes=1500)), reads(0, 0), PLAIN)


def test_endless_task_is_named() -> None:
    slow = Engine(EngineKind.CPU, 1, 1, 1)
    with pytest.raises(LearningError, match=r"task 1 takes more than \d+ s on .* of node a"):
        Pool(
            system(node("a", slow), node("p", slow_bytes=9)),
            Workload.of([Task(0), Task(0, int_operations=1 << 30)], []),
        )


def test_no_task_ends_later_than_there_is_time_for() -> None:
    # 36 hours at a time, up to the maximum of nanoseconds: no time wraps around.
    tasks = [Task((1 << 60) - 1, float_operations=131_071)] * 20_000
    base = system(node("a", Engine(EngineKind.CPU, 1, 1, 1)), node("p", slow_bytes=9))
    pool = Pool(base, Workload.of(tasks, []), PLAIN)
    pool.start(0)
    ends = []
    with pytest.raises(LearningError, match=r"task \d+ would end after the limit of"):  # noqa: PT012 - steps
        for _ in tasks:
            step = pool.step(0)
            ends.append(step.submitted_ns + step.response_ns)
    assert ends == sorted(ends)
    assert 1 << 60 < ends[-1] <= 1 << 61


def test_homes_are_striped_packed_or_scattered_by_the_seed() -> None:
    base = system(node("a", cpu()), node("p", slow_bytes=2500), node("q", slow_bytes=9000))
    workload = reads(*[0] * 8)
    homes = {
        placing: PlainPool(base, workload, PoolSettings(placing=placing)).model.homes(1).tolist() for placing in Placing
    }
    assert homes[Placing.STRIPED] == [1, 2, 1, 2, 2, 2, 2, 2]
    assert homes[Placing.PACKED] == [1, 1, 2, 2, 2, 2, 2, 2]
    assert sorted(homes[Placing.SCATTERED]) == [1, 1, 2, 2, 2, 2, 2, 2]
    model = PlainPool(base, workload).model
    assert len({tuple(model.homes(seed).tolist()) for seed in range(10)}) > 3


@pytest.mark.parametrize(
    "wrong", [{"eviction_bound": 0.1}, {"eviction_bound": -1.1}, {"latency_unit_ns": 0}, {"utilisation_weight": -1.0}]
)
def test_settings_that_cannot_be_are_named(wrong: dict[str, float]) -> None:
    (name,) = wrong
    with pytest.raises(LearningError, match=name.removesuffix("_ns")):
        PoolSettings(**wrong)  # type: ignore[arg-type]


def test_columns_of_ones_own_are_checked() -> None:
    workload = reads(0, 0)
    broken = replace(workload, access_object=np.array([0, 7], np.uint32))
    with pytest.raises(LearningError, match="task 1 uses object 7"):
        Pool(two_and_pool(), broken, PLAIN)
    graph = Workload.of([Task(0), Task(0, after=(0,))], [])
    for wrong, message in (
        ({"kinds": np.ones(3, np.uint32)}, r"kinds of a workload has shape \(3,\), not \(2,\)"),
        ({"access_start": np.array([0, 1, 0], np.uint32)}, "access_start does not rise from 0 to 0"),
        ({"follower": np.array([0], np.uint32)}, "task 0 has a follower before it"),
        ({"follower": np.array([2], np.uint32)}, "predecessors do not match the followers"),
        ({"predecessors": np.zeros(2, np.uint32)}, "predecessors do not match the followers"),
    ):
        with pytest.raises(LearningError, match=message):
            replace(graph, **wrong).check()
