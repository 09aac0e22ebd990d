"""Systems with round figures, and the pools that stepping is tested on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from controller.schedulers.learning.environment.plain import PlainPool
from controller.schedulers.learning.environment.pool import Pool
from controller.schedulers.learning.environment.settings import Placing, PoolSettings
from controller.schedulers.learning.environment.values import (
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
from controller.schedulers.learning.environment.view import Forecast, PoolView, Refusal
from controller.schedulers.learning.values import Observation, Step

GBPS = 1_000_000_000
PLAIN = PoolSettings(placing=Placing.STRIPED)


class AnyPool(Protocol):
    """Either twin."""

    @property
    def view(self) -> PoolView: ...
    @property
    def refusals(self) -> dict[int, Refusal]: ...
    def start(self, seed: int) -> Observation: ...
    def step(self, action: int) -> Step: ...
    def foretell(self, action: int) -> Forecast: ...


Maker = Callable[[System, Workload, PoolSettings], AnyPool]
MAKERS: dict[str, Maker] = {"plain": PlainPool, "native": Pool}


def cpu(cores: int = 1, tasks_per_core: int = 1) -> Engine:
    """Return an engine with an operation a nanosecond and core."""
    return Engine(EngineKind.CPU, cores, GBPS, GBPS // 2, tasks_per_core)


def node(name: str, *engines: Engine, fast_bytes: int = 2000, slow_bytes: int = 0) -> Node:
    """Return a node whose fast memory waits 10 ns and serves a byte a ns; slow memory waits 100 ns, half as fast."""
    fast = Memory(Medium.DRAM, fast_bytes, 10, 20, 8 * GBPS, 8 * GBPS)
    slow = Memory(Medium.NVM, slow_bytes, 100, 200, 4 * GBPS, 4 * GBPS)
    memories = ((fast,) if engines else ()) + ((slow,) if slow_bytes else ())
    return Node(name, engines, memories)


def system(*nodes: Node, changes: Sequence[Change] = (), delay_ns: int = 1000, rate_bps: int = GBPS) -> System:
    """Return nodes with 1 us and 8 ns a byte between any two."""
    network = Network.uniform(len(nodes), delay_ns=delay_ns, rate_bps=rate_bps)
    return System(nodes, network, tuple(changes))


def two_and_pool(rate_bps: int = GBPS) -> System:
    """Return two nodes with a CPU, and one that holds data."""
    return system(node("a", cpu()), node("b", cpu()), node("pool", slow_bytes=100_000), rate_bps=rate_bps)


def closed(base: System, src: int, dst: int, *, from_ns: int) -> System:
    """Return the system in which nothing leads from a node to another from a time on."""
    times = np.array([0, from_ns], np.int64)
    delay_ns, rate_bps = (np.repeat(figures, 2, axis=0) for figures in (base.network.delay_ns, base.network.rate_bps))
    delay_ns[1, src, dst] = -1
    return System(base.nodes, Network(times, delay_ns, rate_bps), base.changes)


def reads(*times_ns: int, size: int = 1000) -> Workload:
    """Return a read of an object of its own at each time, of 500 operations."""
    tasks = [Task(ns, reads=(number,), float_operations=500) for number, ns in enumerate(times_ns)]
    return Workload.of(tasks, [size] * len(tasks))
