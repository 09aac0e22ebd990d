"""Systems with round figures, seeded systems and workloads, and the pools under test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from msgspec.structs import replace

from controller.learning.environment.pool import Pool
from controller.learning.environment.settings import Gain, Placing, PoolSettings
from controller.learning.environment.values import (
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
from controller.learning.environment.view import Forecast, PoolView, Refusal
from controller.learning.values import Observation, Step
from tests.reference.pool import PlainPool

GBPS = 1_000_000_000
# 1000 bytes from the pool: 8000 ns over the network, 1000 ns of delay, 100 ns of its medium; then 10 + 1000 ns locally.
FETCH_NS = 8000 + 1000 + 100
ACCESS_NS = 10 + 1000
PLAIN = PoolSettings(placing=Placing.STRIPED)
ARRIVING = PoolSettings(placing=Placing.STRIPED, await_arrival=True)
_KINDS = (*(kind.bit for kind in EngineKind), *[ANY_ENGINE] * 12)


class AnyPool(Protocol):
    """Either twin."""

    @property
    def view(self) -> PoolView: ...
    @property
    def refusals(self) -> dict[int, Refusal]: ...
    def start(self, seed: int) -> Observation: ...
    def step(self, action: int) -> Step: ...
    def predict(self, action: int) -> Forecast: ...


Maker = Callable[[System, Workload, PoolSettings], AnyPool]
MAKERS: dict[str, Maker] = {"plain": PlainPool, "native": Pool}


def cpu(cores: int = 1, tasks_per_core: int = 1) -> Engine:
    """Return an engine with one operation per nanosecond and core."""
    return Engine(EngineKind.CPU, cores, GBPS, GBPS // 2, tasks_per_core)


def node(name: str, *engines: Engine, fast_bytes: int = 2000, slow_bytes: int = 0) -> Node:
    """Return a node whose fast memory has 10 ns latency and 1 byte/ns; slow memory has 100 ns and half the rate."""
    fast = Memory(Medium.DRAM, fast_bytes, 10, 20, 8 * GBPS, 8 * GBPS)
    slow = Memory(Medium.NVM, slow_bytes, 100, 200, 4 * GBPS, 4 * GBPS)
    memories = ((fast,) if engines else ()) + ((slow,) if slow_bytes else ())
    return Node(name, engines, memories)


def system(*nodes: Node, changes: Sequence[Change] = (), delay_ns: int = 1000, rate_bps: int = GBPS) -> System:
    """Return nodes with 1 us and 8 ns per byte between any two."""
    network = Network.uniform(len(nodes), delay_ns=delay_ns, rate_bps=rate_bps)
    return System(nodes, network, tuple(changes))


def two_and_pool(rate_bps: int = GBPS) -> System:
    """Return two nodes with a CPU, and one that holds data."""
    return system(node("a", cpu()), node("b", cpu()), node("pool", slow_bytes=100_000), rate_bps=rate_bps)


def around_data(
    count: int, fast_bytes: int, *, changes: Sequence[Change] = (), delay_ns: int = 100, rate_bps: int = 8 * GBPS
) -> System:
    """Return equal nodes n0, n1, … of one core at one operation per nanosecond, and one that only holds data."""
    engine = Engine(EngineKind.CPU, 1, GBPS, GBPS)
    computing = [Node(f"n{number}", (engine,), (Memory.of(Medium.DRAM, fast_bytes),)) for number in range(count)]
    held = Node("data", (), (Memory.of(Medium.NVM, 1 << 30),))
    return system(*computing, held, changes=changes, delay_ns=delay_ns, rate_bps=rate_bps)


def closed(base: System, src: int, dst: int, *, from_ns: int) -> System:
    """Return the system without a path between two nodes from a time on."""
    times = np.array([0, from_ns], np.int64)
    delay_ns, rate_bps = (np.repeat(figures, 2, axis=0) for figures in (base.network.delay_ns, base.network.rate_bps))
    delay_ns[1, src, dst] = -1
    return System(base.nodes, Network(times, delay_ns, rate_bps), base.changes)


def reads(*times_ns: int, size: int = 1000) -> Workload:
    """Return tasks of 500 operations, one at each time, each reading its own object."""
    tasks = [Task(ns, reads=(number,), float_operations=500) for number, ns in enumerate(times_ns)]
    return Workload.of(tasks, [size] * len(tasks))


def load_of(time_ns: int) -> float:
    """Return log2(1 + time / 1024) / 24, linear between powers of two, in multiples of 1 / 65536."""
    log = np.log2(1 + time_ns / 1024)
    between = int(log) + (1 + time_ns / 1024) / 2 ** int(log) - 1
    return int(int(between * 65536) / 24) / 65536


def drawn_settings(rng: np.random.Generator) -> PoolSettings:
    """Return settings."""
    drawn = PoolSettings(
        placing=list(Placing)[rng.integers(3)],
        network_features=bool(rng.integers(2)),
        load_features=bool(rng.integers(2)),
        gain=list(Gain)[rng.integers(3)],
        port_hz=float(rng.choice([0.0, 10_000.0])),
        eviction_bound=-float(rng.random()),
        utilisation_weight=float(rng.random()),
        latency_unit_ns=int(rng.choice([1, 1000, 100_000])),
        await_arrival=bool(rng.integers(2)),
    )
    can = drawn.load_features and drawn.network_features
    return replace(drawn, slot_hz=float(rng.choice([0.0, 1000.0, 1e9])), foretold=can and bool(rng.integers(2)))


def drawn_system(rng: np.random.Generator) -> System:
    """Return nodes, some of them absent at times, and an incomplete network."""
    nodes = [
        Node(
            f"n{number}",
            tuple(_engine(rng) for _ in range(rng.integers(1, 3))),
            tuple(_memory(rng, slow=index > 0) for index in range(rng.integers(1, 3))),
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
    """Return tasks that use a few shared objects, sometimes after one another."""
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
