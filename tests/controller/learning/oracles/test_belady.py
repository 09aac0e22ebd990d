"""Belady's rule, which judges only eviction."""

from __future__ import annotations

import random
from functools import cache

import pytest

from controller.learning.environment.values import System, Task, Workload
from controller.learning.errors import LearningError
from controller.learning.oracles.belady import judge
from tests.controller.learning.environment.pools import around_data
from tests.reference.pool import PlainPool


def system(fast_bytes: int, nodes: int = 1) -> System:
    return around_data(nodes, fast_bytes, delay_ns=1, rate_bps=10**9)


def workload(*uses: tuple[int, ...], sizes: tuple[int, ...]) -> Workload:
    return Workload.of([Task(number * 10**9, reads=used) for number, used in enumerate(uses)], sizes)


def test_loop_longer_than_memory_defeats_lru_but_not_belady() -> None:
    uses = [(number % 3,) for number in range(9)]
    verdict = judge(system(2), workload(*uses, sizes=(1, 1, 1)), [(number, 0) for number in range(9)])
    assert verdict.accesses == verdict.lru.misses == 9
    assert verdict.lru.evicted_bytes == 7
    assert verdict.best.misses == 6
    assert verdict.is_least


def least_misses(uses: list[int], capacity: int) -> int:
    """Return the minimum number of misses by trying every eviction."""

    @cache
    def best(index: int, kept: frozenset[int]) -> int:
        if index == len(uses):
            return 0
        if uses[index] in kept:
            return best(index + 1, kept)
        if len(kept) < capacity:
            return 1 + best(index + 1, kept | {uses[index]})
        return 1 + min(best(index + 1, kept - {victim} | {uses[index]}) for victim in kept)

    return best(0, frozenset())


@pytest.mark.parametrize("seed", range(5))
def test_with_objects_of_one_size_nothing_has_fewer_misses(seed: int) -> None:
    rng = random.Random(seed)
    uses = [rng.randrange(6) for _ in range(40)]
    verdict = judge(system(3), workload(*[(use,) for use in uses], sizes=(1,) * 6), [(n, 0) for n in range(40)])
    assert verdict.best.misses == least_misses(uses, 3) <= verdict.lru.misses


@pytest.mark.parametrize("seed", range(3))
def test_its_lru_evicts_like_the_environment(seed: int) -> None:
    rng = random.Random(seed)
    uses = [tuple(rng.sample(range(8), 2)) for _ in range(60)]
    made, made_for = workload(*uses, sizes=tuple(rng.randrange(1, 5) for _ in range(8))), system(9, nodes=3)
    pool, decisions, evicted_bytes = PlainPool(made_for, made), [], 0
    pool.start(0)
    for _ in uses:
        decisions.append((pool.task, rng.randrange(3)))
        evicted_bytes += pool.step(decisions[-1][1]).evicted_bytes
    verdict = judge(made_for, made, decisions)
    assert verdict.lru.evicted_bytes == evicted_bytes > 0
    assert not verdict.is_least


def test_data_used_next_on_another_node_need_not_be_kept() -> None:
    # Node 0 has room for two; of 0 and 1 it reuses only 1, as node 1 takes 0 first.
    uses, nodes = [(0,), (1,), (2,), (0,), (1,), (0,)], [0, 0, 0, 1, 0, 0]
    verdict = judge(system(2, nodes=2), workload(*uses, sizes=(1, 1, 1)), list(enumerate(nodes)))
    assert (verdict.lru.misses, verdict.best.misses) == (5, 5)
    uses, nodes = [(0,), (1,), (0,), (2,), (0,), (1,)], [0, 0, 0, 0, 1, 0]
    verdict = judge(system(2, nodes=2), workload(*uses, sizes=(1, 1, 1)), list(enumerate(nodes)))
    assert (verdict.lru.misses, verdict.best.misses) == (5, 4)


def test_data_that_never_fits_is_refused() -> None:
    with pytest.raises(LearningError, match="does not fit into the fast memory of node 0"):
        judge(system(2), workload((0, 1), sizes=(2, 1)), [(0, 0)])
