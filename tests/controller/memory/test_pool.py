"""A pool over real hosts: where blocks are, moves, evictions, requests, and what the network sees of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from controller.learning.environment.rewarding import reward
from controller.learning.environment.settings import PoolSettings
from controller.learning.environment.view import NodesView
from controller.learning.policy.settings import LearnSettings
from controller.learning.values import Observation
from controller.memory.errors import MemoryPoolError, NoBlockError, RefusedError
from controller.memory.pool.deciding import Decider, Decision, rule_of
from controller.memory.pool.metrics import Metrics
from controller.memory.pool.pool import MemoryPool
from controller.memory.pool.service import status_of
from controller.memory.pool.values import Place, Request, Result, Writes
from controller.scheduling.framework.lessons import Outcome
from tests.controller.memory.machines import BLOCK, Lab, Machine, content, lab_of, pool_of, pool_settings
from tests.waiting import wait_until

TWO = (Machine("h1"), Machine("h2"))


class Told(Decider):
    """A decider that remembers what it was shown and told."""

    def __init__(self) -> None:
        super().__init__(rule_of("lru"))
        self.seen: list[tuple[float, ...]] = []
        self.results: list[Result | None] = []

    def decide(self, observation: Observation, view: NodesView, subject: str) -> Decision:
        self.seen.append((observation.operations, observation.size, observation.is_write, *observation.similarity))
        return super().decide(observation, view, subject)

    def came(self, key: str, utilisation: float, result: Result | None) -> None:
        self.results.append(result)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[MemoryPool, Lab]]:
    """Yield a pool of two hosts with room for four blocks in fast memory each."""
    with pool_of(tmp_path, *TWO, rule="lru") as made:
        yield made


def where(pool: MemoryPool, key: int) -> Place:
    """Return the place of a block's newest version."""
    return pool.catalogue.blocks[key].source


def test_blocks_are_striped_over_homes(two: tuple[MemoryPool, Lab]) -> None:
    pool, _ = two
    for key in range(4):
        pool.write(key, content(key))
    assert [where(pool, key) for key in range(4)] == [Place(0, 1), Place(1, 1), Place(0, 1), Place(1, 1)]
    assert [pool.read(key) for key in range(4)] == [content(key) for key in range(4)]


def test_request_fetches_its_blocks_and_tells_times(two: tuple[MemoryPool, Lab]) -> None:
    pool, lab = two
    for key in range(2):
        pool.write(key, content(key))
    result = pool.run(Request(reads=(0, 1), int_operations=1000))
    assert (result.host, result.moved_bytes, result.remote_bytes) == ("h1", 2 * BLOCK, BLOCK)
    assert 0 <= result.wait_ns <= result.latency_ns <= result.response_ns
    assert [where(pool, key) for key in range(2)] == [Place(0, 0)] * 2
    assert lab.store("h1").tier(0).get(1).data == content(1)
    again = pool.run(Request(reads=(0, 1)))
    assert (again.host, again.moved_bytes, again.remote_bytes) == ("h2", 2 * BLOCK, 2 * BLOCK)
    # Each block is in one fast memory at a time: the source was freed after the switch.
    assert lab.store("h1").tier(0).listed(0, 9) == ((), False)


def test_least_recently_used_block_is_evicted(tmp_path: Path) -> None:
    with pool_of(tmp_path, Machine("h1")) as (pool, lab):
        for key in range(6):
            pool.write(key, content(key))
        for key in (0, 1, 2, 3, 0):
            assert pool.run(Request(reads=(key,))).evicted_bytes == 0
        result = pool.run(Request(reads=(4,)))
        assert (result.evicted_bytes, result.eviction_ns > 0) == (BLOCK, True)
        assert [key for key, _ in lab.store("h1").tier(0).listed(0, 9)[0]] == [0, 2, 3, 4]


def test_written_blocks_are_not_fetched_and_reach_home(tmp_path: Path) -> None:
    for writes, is_dirty in ((Writes.THROUGH, False), (Writes.BACK, True)):
        folder = tmp_path / writes
        folder.mkdir()
        with pool_of(folder, Machine("h1"), writes=writes) as (pool, lab):
            result = pool.run(Request(writes=(7,), data={7: content(7, 1)}))
            assert result.moved_bytes == 0
            assert pool.catalogue.blocks[7].is_dirty is is_dirty
            assert pool.read(7) == content(7, 1)
            assert pool.flush() == is_dirty
            assert lab.store("h1").tier(1).get(7).data == content(7, 1)


def test_eviction_goes_down_tier_by_tier(tmp_path: Path) -> None:
    with pool_of(tmp_path, Machine("h1", fast=4, below=4), writes=Writes.BACK) as (pool, _):
        for key in range(9):
            pool.run(Request(writes=(key,)))
        assert [where(pool, key).tier for key in range(9)] == [2, 1, 1, 1, 1, 0, 0, 0, 0]
        assert pool.run(Request(reads=(0,))).moved_bytes == BLOCK
        assert where(pool, 0).tier == 0


def test_memory_of_another_host_is_a_home(tmp_path: Path) -> None:
    machines = Machine("h1", home=0), Machine("far", cores=0, in_file=False)
    with pool_of(tmp_path, *machines, writes=Writes.BACK) as (pool, lab):
        for key in range(6):
            pool.run(Request(writes=(key,), data={key: content(key, 1)}))
        assert [key for key, _ in lab.store("far").tier(0).listed(0, 9)[0]] == [0, 1]
        assert pool.run(Request(reads=(0,))).remote_bytes == BLOCK
        assert [pool.read(key) for key in range(6)] == [content(key, 1) for key in range(6)]


def test_requests_in_parallel_read_what_was_written(tmp_path: Path) -> None:
    machines = Machine("h1", cores=2, fast=8), Machine("h2", cores=2, fast=8)
    with pool_of(tmp_path, *machines, rule="random", writes=Writes.BACK) as (pool, _):
        for key in range(24):
            pool.write(key, content(key))
        futures = [
            pool.submit(Request(reads=(n % 24, (n * 7) % 24), writes=((n * 5) % 24,), int_operations=100))
            for n in range(200)
        ]
        assert [future.result().error for future in futures] == [""] * 200
        pool.clear_caches()
        assert all(block.cached is None and not block.is_dirty for block in pool.catalogue.blocks.values())
        assert sum(pool.catalogue.used(Place(host, 0)) for host in (0, 1)) == 0
        for key in range(24):
            assert len(pool.read(key)) == BLOCK


def test_network_sees_all_six_features(tmp_path: Path) -> None:
    decider = Told()
    with pool_of(tmp_path, *TWO, decider=decider) as (pool, _):
        pool.write(0, content(0))
        pool.write(1, content(1))
        pool.run(Request(reads=(0, 1), int_operations=1 << 20))
        pool.run(Request(reads=(0,), writes=(1,), float_operations=1 << 20))
        first, second = decider.seen
        situation = pool.situation
        seen = situation.observe(Request(reads=(0,)), has_network=True)
    assert first[0] > 0
    assert second[0] == pytest.approx(20 / 64, rel=1e-3)
    assert first[1] == second[1] == pytest.approx(1.585 / 64, rel=1e-3)  # log2(1 + 2 pages)
    assert (first[2], second[2]) == (0, 0.5)
    assert (first[3:], second[3:]) == ((0.5, 0.5), (1.0, 0.0))
    # The first request took both blocks to h1, the second to h2.
    assert seen.free.tolist() == [1.0, 0.5]
    assert seen.utilisation == 0
    assert seen.delay[0] > 0 or seen.delay[1] > 0
    assert seen.candidates.all()


def test_both_branches_of_the_reward_are_reached(tmp_path: Path) -> None:
    decider = Told()
    with pool_of(tmp_path, Machine("h1"), decider=decider) as (pool, _):
        for key in range(5):
            pool.run(Request(writes=(key,)))
    results = [result for result in decider.results if result is not None]
    assert [result.evicted_bytes for result in results] == [0, 0, 0, 0, BLOCK]
    learn, worth = LearnSettings(latency_unit_ns=1_000_000), PoolSettings(latency_unit_ns=1_000_000)
    for eviction_ns in (None, 10_000, 10_000_000):
        outcome = Outcome(2_000_000, 0.5, 3_000_000, eviction_ns)
        assert learn.reward(outcome) == reward(worth, 0.5, 2_000_000, 3_000_000, eviction_ns=eviction_ns)
    assert learn.reward(Outcome(2_000_000, 0.5, 3_000_000, None)) == 1.0
    assert learn.reward(Outcome(2_000_000, 0.5, 3_000_000, 10_000_000)) == 0.25


def test_what_cannot_run_is_told_in_one_line(two: tuple[MemoryPool, Lab]) -> None:
    pool, _ = two
    for request, problem in (
        (Request(), "it names no block"),
        (Request(reads=(9,)), "block 9 was never written"),
        (Request(writes=tuple(range(5))), "its 5 blocks do not fit into the fast memory of any host"),
        (Request(writes=(1,), data={1: b"short"}), "data of block 1: 5 bytes, not 4096 of a written block"),
    ):
        with pytest.raises(MemoryPoolError, match=problem):
            pool.run(request)
    with pytest.raises(NoBlockError, match="block 9 was never written"):
        pool.read(9)
    assert pool.catalogue.blocks.keys() <= {1}


def test_homes_that_fill_refuse_new_blocks_alone(tmp_path: Path) -> None:
    with pool_of(tmp_path, Machine("h1", home=4)) as (pool, _):
        for key in range(4):
            pool.write(key, content(key))
        with pytest.raises(MemoryPoolError, match="no home has room: all 4 blocks of the pool's homes are taken"):
            pool.run(Request(writes=(4,)))
        pool.run(Request(writes=(0,), data={0: content(0, 1)}))
        assert [pool.read(key) for key in range(4)] == [content(0, 1), content(1), content(2), content(3)]


def test_fast_memory_that_stays_full_is_told(tmp_path: Path) -> None:
    """Written blocks whose homes are away cannot be evicted; nothing of them is given up."""
    machines = Machine("h1", home=0), Machine("far", cores=0)
    with pool_of(tmp_path, *machines, writes=Writes.BACK) as (pool, lab):
        for key in range(4):
            pool.run(Request(writes=(key,), data={key: content(key, 1)}))
        lab.stop("far")
        with pytest.raises(
            MemoryPoolError, match="of 4 blocks 0 are in use, and 4 were written and wait for their homes"
        ):
            pool.run(Request(writes=(9,)))
        assert [pool.read(key) for key in range(4)] == [content(key, 1) for key in range(4)]
        lab.start("far")
        wait_until(lambda: pool.catalogue.up[1], "the host does not return")
        pool.run(Request(writes=(9,)))
        pool.clear_caches()
        assert [pool.read(key) for key in range(4)] == [content(key, 1) for key in range(4)]


def test_host_serves_one_pool_at_a_time(tmp_path: Path) -> None:
    with pool_of(tmp_path, Machine("h1")) as (pool, _):
        other = msgspec.structs.replace(pool_settings(tmp_path, ["h1"]), name="other")
        with pytest.raises(RefusedError, match="h1: pool pool uses host h1"):
            MemoryPool(other, Decider(rule_of("lru")))
        pool.write(0, content(0))


def test_new_pool_finds_what_an_earlier_one_left(tmp_path: Path) -> None:
    settings = pool_settings(tmp_path, ["h1", "h2"], writes=Writes.BACK)
    with lab_of(tmp_path, *TWO) as lab:
        with MemoryPool(settings, Decider(rule_of("lru"))) as pool:
            pool.write(0, content(0))
            for key in (0, 1, 2):
                pool.run(Request(writes=(key,), data={key: content(key, 1)}))
        wait_until(lambda: not any(lab.running["h1"][1]._claims.values()))
        with MemoryPool(settings, Decider(rule_of("lru"))) as pool:
            assert [pool.read(key) for key in (0, 1, 2)] == [content(key, 1) for key in (0, 1, 2)]
            assert sum(block.is_dirty for block in pool.catalogue.blocks.values()) == 3


def test_rules_of_the_simulated_pool_decide_here(tmp_path: Path) -> None:
    with pool_of(tmp_path, *TWO, rule="data-local") as (pool, _):
        for key in range(4):
            pool.write(key, content(key))
        assert [pool.run(Request(reads=(key,))).host for key in (0, 1, 2, 3, 1)] == ["h1", "h2", "h1", "h2", "h2"]
    for rule in ("fast-only", "least-loaded"):
        with pool_of(tmp_path, *TWO, rule=rule) as (pool, _):
            assert {pool.run(Request(reads=(key,))).host for key in range(4)} == {"h1", "h2"}


def test_busy_block_waits_for_the_request_that_has_it(two: tuple[MemoryPool, Lab]) -> None:
    pool, _ = two
    pool.write(0, content(0))
    read: list[bytes] = []
    with pool.mover.held([0]):
        thread = threading.Thread(target=lambda: read.append(pool.read(0)))
        thread.start()
        assert not read
    thread.join()
    assert read == [content(0)]


def test_closed_pool_answers_what_waits_and_takes_no_more(tmp_path: Path) -> None:
    with pool_of(tmp_path, Machine("h1")) as (pool, _):
        pool.write(0, content(0))
        with pool.mover.held([0]):
            waiting = [pool.submit(Request(reads=(0,))) for _ in range(3)]
            closing = threading.Thread(target=pool.close)
            closing.start()
            wait_until(pool._is_closed.is_set)
            with pytest.raises(RefusedError, match="the pool is closed"):
                pool.submit(Request(reads=(0,)))
        closing.join()
        assert [future.result().error for future in waiting][1:] == ["the pool is closed"] * 2


def test_metrics_show_tiers_blocks_and_requests(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    with pool_of(tmp_path, Machine("h1"), Machine("h2"), writes=Writes.BACK) as (pool, lab):
        registry.register(Metrics(lambda: status_of(pool)))
        for key in range(5):
            pool.run(Request(writes=(key,)))
        lab.stop("h2")
        pool.refresh()

        def value(name: str, **labels: str) -> float | None:
            return registry.get_sample_value(f"millrace_memory_{name}", labels)

        assert (value("host_up", host="h1"), value("host_up", host="h2")) == (1, 0)
        used = {"host": "h1", "tier": "fast", "kind": "dram", "of": "used"}
        assert value("tier_bytes", **used) == len(list(pool.catalogue.cached_at(Place(0, 0)))) * BLOCK
        assert value("requests_total", by="h1") == pool.counts["h1"]
        assert value("blocks", state="lost") == len(pool.mover.lost)
