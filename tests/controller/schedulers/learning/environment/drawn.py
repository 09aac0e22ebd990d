"""Systems and workloads that a seed draws: small memories, many objects, nodes and ways that come and go."""

from __future__ import annotations

import numpy as np

from controller.schedulers.learning.environment.settings import Placing, PoolSettings
from controller.schedulers.learning.environment.values import (
    ANY_ENGINE,
    Change,
    Engine,
    EngineKind,
    Medium,
    Memory,
    Network,
    Node,
    System,
    Task,
    Workload,
)
from tests.controller.schedulers.learning.environment.pools import GBPS

_KINDS = (*(kind.bit for kind in EngineKind), *[ANY_ENGINE] * 12)


def drawn_settings(rng: np.random.Generator) -> PoolSettings:
    """Return settings."""
    return PoolSettings(
        placing=list(Placing)[rng.integers(3)],
        network_features=bool(rng.integers(2)),
        eviction_bound=-float(rng.random()),
        utilisation_weight=float(rng.random()),
        latency_unit_ns=int(rng.choice([1, 1000, 100_000])),
    )


def drawn_system(rng: np.random.Generator) -> System:
    """Return nodes, not always all of them there, and a network with holes."""
    nodes = [
        Node(
            f"n{number}",
            tuple(_engine(rng) for _ in range(rng.integers(1, 3))),
            tuple(_memory(rng, slow=place > 0) for place in range(rng.integers(1, 3))),
        )
        for number in range(rng.integers(1, 5))
    ]
    nodes += [Node(f"p{number}", (), (_memory(rng, slow=True),)) for number in range(rng.integers(1, 3))]
    shape = (int(rng.integers(1, 4)), len(nodes), len(nodes))
    holes = rng.choice([0.0, 0.02, 0.1])
    delay_ns = rng.choice([-1, 0, 500, 30_000, 500_000], shape, p=[holes, 0.2, 0.3, 0.4 - holes, 0.1])
    rate_bps = rng.choice(
        [0, 1, 999_999_937, 8 * GBPS, 100 * GBPS], shape, p=[holes / 2, holes / 2, 0.3, 0.4, 0.3 - holes]
    )
    network = Network(np.arange(shape[0]) * rng.integers(1, 60_000), delay_ns, rate_bps)
    times = np.sort(rng.integers(0, 300_000, rng.integers(4))).tolist()
    changes = tuple(Change(ns, nodes[rng.integers(len(nodes))].name, bool(rng.integers(2))) for ns in times)
    return System(tuple(nodes), network, changes)


def drawn_workload(rng: np.random.Generator) -> Workload:
    """Return tasks that use a few of some objects, now and then after one another."""
    sizes = rng.integers(1, rng.choice([100, 1500]), rng.integers(1, 20)).tolist()
    tasks: list[Task] = []
    time_ns, chance = 0, rng.choice([0.0, 0.3])
    for number in range(rng.integers(1, 80)):
        time_ns += int(rng.choice([0, 100, 5000, 40_000]))
        used = rng.permutation(len(sizes))[: rng.integers(0, 5)].tolist()
        cut = rng.integers(0, len(used) + 1)
        before = rng.permutation(number)[:2].tolist() if rng.random() < chance else []
        floats, ints = int(rng.integers(0, 20_000)), int(rng.integers(0, 3000))
        kinds = int(rng.choice(_KINDS))
        tasks.append(Task(time_ns, tuple(used[:cut]), tuple(used[cut:]), floats, ints, kinds, tuple(before)))
    return Workload.of(tasks, sizes, [0] if rng.random() < 0.3 else [])


def _engine(rng: np.random.Generator) -> Engine:
    floats, ints = rng.choice([GBPS // 7, GBPS, 50 * GBPS], 2).tolist()
    return Engine(list(EngineKind)[rng.integers(4)], int(rng.integers(1, 4)), floats, ints, int(rng.integers(1, 4)))


def _memory(rng: np.random.Generator, *, slow: bool) -> Memory:
    capacity = 10_000_000 if slow else int(rng.integers(500, 6000))
    waits = rng.choice([0, 3, 100, 20_000], 2).tolist()
    return Memory(Medium.NVM if slow else Medium.DRAM, capacity, *waits, *rng.choice([GBPS // 3, 8 * GBPS], 2).tolist())
