"""The learned policy on a real pool: it decides, learns from evictions, and takes agents of the simulated pool."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec
import numpy as np
import pytest

from controller.learning.agent.agents import new_checkpoint
from controller.learning.agent.records import load_checkpoint, save_checkpoint
from controller.learning.agent.settings import AgentSettings, NetworkSettings, TrainingSettings
from controller.learning.agent.weights import gaussian_start
from controller.learning.environment.pool import Pool
from controller.learning.environment.settings import PoolSettings
from controller.learning.environment.values import Task, Workload
from controller.learning.inputs.systems import PoolSystem
from controller.learning.policy.settings import LearnSettings, LiveSettings
from controller.memory.pool.deciding import Decider, policy_of, rule_of
from controller.memory.pool.replay import Timed
from controller.memory.pool.values import Request
from tests.controller.memory.machines import BLOCK, Machine, content, pool_of
from tests.waiting import wait_until

AGENT = AgentSettings(network=NetworkSettings(form="tokens", hidden=16, heads=2, layers=1, feed_forward=16, dropout=0))
REQUESTS = tuple(Timed(1_000_000 * n, Request(reads=(n % 3,), writes=(3,), float_operations=1 << 20)) for n in range(8))


def workload_for(requests: Sequence[Timed], block_bytes: int) -> Workload:
    """Return requests as a workload of the simulated pool."""
    numbers: dict[int, int] = {}
    tasks = []
    for timed in requests:
        request = timed.request
        blocks = {key: numbers.setdefault(key, len(numbers)) for key in request.blocks}
        tasks.append(
            Task(
                timed.at_ns,
                reads=tuple(blocks[key] for key in request.reads),
                writes=tuple(blocks[key] for key in request.writes if key not in request.reads),
                float_operations=request.float_operations,
                int_operations=request.int_operations,
            )
        )
    return Workload.of(tasks, [block_bytes] * len(numbers))


def simulated(*, load: bool = False) -> Pool:
    """Return the simulated pool of these requests."""
    settings = PoolSettings(load_features=load)
    return Pool(PoolSystem(nodes=2).made(), workload_for(REQUESTS, BLOCK), settings)


def checkpoint_of(path: Path, pool: Pool) -> Path:
    """Write an agent with some weights for the simulated pool, as if it had trained there."""
    made = new_checkpoint(AGENT, pool.start(0), "nodes")
    weights = gaussian_start(made.shape, 0.5, np.random.default_rng(1))
    trained = msgspec.structs.replace(made, version=1, published=weights.to_bytes())
    save_checkpoint(path, trained)
    return path


def test_agent_of_the_simulated_pool_decides_here(tmp_path: Path) -> None:
    pool = simulated()
    path = checkpoint_of(tmp_path / "agent.ckpt", pool)
    settings = LiveSettings(checkpoint=str(path), shadow=False, deadline_ns=60_000_000_000)
    decider = Decider(rule_of("lru"), policy_of(settings))
    with pool_of(tmp_path, Machine("h1"), Machine("h2"), decider=decider) as (real, _):
        for key in range(3):
            real.write(key, content(key))
        for timed in REQUESTS:
            assert real.run(timed.request).error == ""
        standing = decider.standing
    assert standing is not None
    assert standing.decisions == {"network": len(REQUESTS)}


def test_features_are_those_of_the_simulated_pool(tmp_path: Path) -> None:
    seen = simulated().start(0)
    with pool_of(tmp_path, Machine("h1"), Machine("h2")) as (real, _):
        for key in range(3):
            real.write(key, content(key))
        shown = real.situation.observe(REQUESTS[0].request, has_network=True)
    assert len(shown.row) == len(seen.row)
    common = (shown.utilisation, shown.operations, shown.size, shown.is_write)
    assert common == pytest.approx((seen.utilisation, seen.operations, seen.size, seen.is_write))


def test_features_of_load_follow_queues_and_missing_blocks(tmp_path: Path) -> None:
    with pool_of(tmp_path, Machine("h1"), Machine("h2", cores=2, fast=8)) as (real, _):
        for key in range(6):
            real.write(key, content(key))
        for key in range(4):
            real.move(key, 0)
        with real.mover.lock:
            real._assigned, real._service_ns = [3, 0], [1_024_000.0, 0.0]
            seen = real.situation.observe(
                Request(reads=(0, 4), writes=(5,), int_operations=1 << 20), has_network=True, has_load=True
            )
            real._assigned = [0, 0]
    queued, wait, compute, arriving, leaving, fetching, evicting = seen.load
    assert queued.tolist() == pytest.approx([2 / 8, 0])  # log2(1 + 3 requests on one core)
    assert wait.tolist() == pytest.approx([np.log2(1 + 3000) / 24, 0])
    assert (compute > 0).all()
    assert arriving.tolist() == leaving.tolist() == [0, 0]
    # h1 is full and lacks two of the blocks; h2 is empty and lacks all three.
    assert evicting.tolist() == pytest.approx([np.log2(1 + 2 * BLOCK / 1024) / 24, 0])
    assert fetching[1] > 0
    assert len(seen.row) == len(simulated(load=True).start(0).row)


def test_network_learns_from_requests_with_and_without_evictions(tmp_path: Path) -> None:
    """In shadow, by a process of its own; what it has learned is in the checkpoint when the pool ends."""
    if find_spec("torch") is None:
        pytest.skip("needs PyTorch")
    training = TrainingSettings(buffer=16, start=8, batch=4, batches=1, train_every=8, publish_every=8, nice=0)
    agent = msgspec.structs.replace(AGENT, training=msgspec.structs.replace(training, remove_sampled=False))
    learn = LearnSettings(agent=agent, latency_unit_ns=1_000_000, load_features=True)
    path = tmp_path / "agent.ckpt"
    decider = Decider(rule_of("lru"), policy_of(LiveSettings(checkpoint=str(path), learn=learn)))
    decider.open()
    try:
        with pool_of(tmp_path, Machine("h1"), Machine("h2"), decider=decider) as (real, _):
            results = [real.run(Request(writes=(key,))) for key in range(24)]

            def is_learned() -> bool:
                # The last experiences are sent to the training process with further ones.
                results.append(real.run(Request(writes=(len(results) % 24,))))
                return decider.standing is not None and decider.standing.training["steps"] > 0

            wait_until(is_learned, limit_s=120)
    finally:
        decider.close()
    standing = decider.standing
    assert standing is not None
    assert standing.experiences == {"started": len(results)}
    assert {result.evicted_bytes for result in results} == {0, BLOCK}
    assert load_checkpoint(path).version > 0
