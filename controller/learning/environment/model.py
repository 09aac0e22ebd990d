"""A system, its workload and settings, checked together, with what both steppers precompute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from controller.learning.environment.settings import Placing, PoolSettings
from controller.learning.environment.values import (
    MOST_BYTES,
    MOST_TIME_NS,
    UNREACHABLE_NS,
    EngineKind,
    Longs,
    Memory,
    Network,
    Numbers,
    System,
    Workload,
)
from controller.learning.errors import LearningError
from controller.learning.values import Floats
from dataplane.clock import NS_PER_S

NOWHERE: Final = 0xFFFF_FFFF
"""Store of an object that exists nowhere."""
MOST_SECONDS: Final = 1 << 17
"""Limit of 36 hours on times: longer is refused in a system, unreachable in a network; sums of times fit 63 bits."""
LAST_NS: Final = 2 * MOST_TIME_NS
"""No task may end later."""
BACKLOG_UNIT_NS: Final = 1024
MOST_BACKLOG_NS: Final = 1 << 34
"""Times for which ports and slots are taken are squared in these units, 17 s at most: sums stay in 63 bits."""
MOST_LEFT: Final = 1 << 40
"""Maximum predicted growth of squares, the square of a second; prices have `PRICE_BITS` fractional bits."""
PRICE_BITS: Final = 10
MOST_PRICE: Final = 1 << 21
LOAD_UNIT_NS: Final = 1024
LOAD_BITS: Final = 24
"""A time of the load's features is log2(1 + time / unit) over these bits, 1 from 17 s on; bytes alike."""
QUEUE_BITS: Final = 8
"""Divisor of the queue feature, which is log2(1 + tasks / slots) over these bits."""
_LOG_BITS: Final = 64
"""A logarithmic feature is log2(1 + figure) over this."""


@dataclass(frozen=True, slots=True)
class Store:
    """One memory of the pool: that of node `node`, by its number."""

    node: int
    memory: Memory
    is_fast: bool


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Constants of an episode; read-only.

    `stores` are all memories, node by node, each node's fast one first: `fast` has their numbers. Destinations in
    `network` that nothing reaches in time are unreachable. `task_features` are operations, size and is_write of each
    task, `delay_features` and `bandwidth_features` are indexed by [time, source, destination]. `data_bytes` is all data
    that a task uses.
    """

    system: System
    workload: Workload
    settings: PoolSettings
    stores: tuple[Store, ...]
    fast: tuple[int, ...]
    network: Network
    task_features: Floats
    delay_features: Floats
    bandwidth_features: Floats
    data_bytes: Longs

    @classmethod
    def of(cls, system: System, workload: Workload, settings: PoolSettings) -> Self:
        """Return the model; raise LearningError for data without room, and for tasks that would never end."""
        workload.check()
        data_bytes = _data_bytes(workload)
        stores, fast = _stores(system)
        most_bits = 8 * int(max(workload.object_bytes.max(initial=1), data_bytes.max()))
        _check_times(system, workload, most_bits)
        network = _passable(system.network, most_bits)
        delays, bandwidths = _network_features(network)
        features = _task_features(system, workload, settings, data_bytes)
        made = cls(system, workload, settings, stores, fast, network, features, delays, bandwidths, data_bytes)
        made.homes(0)
        return made

    def homes(self, seed: int) -> Numbers:
        """Return the store, by its number, that is each object's home.

        Raise LearningError if the pool is too small.
        """
        sizes = self.workload.object_bytes
        order: Sequence[int] = range(len(sizes))
        if self.settings.placing is Placing.SCATTERED:
            order = np.random.default_rng(seed).permutation(len(sizes)).tolist()
        stores = [number for number, store in enumerate(self.stores) if not store.is_fast]
        room = {number: self.stores[number].memory.capacity_bytes for number in stores}
        home_of = np.full(len(sizes), NOWHERE, np.uint32)
        following = 0
        for number in order:
            nbytes = int(sizes[number])
            for turn in range(len(stores)):
                store = stores[(following + turn) % len(stores)]
                if room[store] >= nbytes:
                    break
            else:
                raise LearningError(f"no memory of the pool has room for the {nbytes} bytes of object {number}")
            room[store] -= nbytes
            home_of[number] = store
            following = stores.index(store) + (self.settings.placing is not Placing.PACKED)
        return home_of

    def kinds(self, node: int) -> int:
        """Return the kinds of a node's engines as a mask."""
        return sum({engine.kind.bit for engine in self.system.nodes[node].engines})

    @property
    def cores(self) -> int:
        """Number of compute cores."""
        return sum(engine.cores for node in self.system.nodes for engine in node.engines)

    @property
    def slots(self) -> int:
        """Maximum number of concurrent tasks."""
        return sum(engine.slots for node in self.system.nodes for engine in node.engines)


def _stores(system: System) -> tuple[tuple[Store, ...], tuple[int, ...]]:
    stores: list[Store] = []
    fast: list[int] = []
    for number, node in enumerate(system.nodes):
        # A node that only holds data is home with all that it has.
        has_fast = bool(node.engines)
        fast.append(len(stores) if has_fast else NOWHERE)
        stores += [Store(number, memory, has_fast and index == 0) for index, memory in enumerate(node.memories)]
    if all(store.is_fast for store in stores):
        raise LearningError("no object has a home: no node has a second memory or only holds data", at="nodes")
    return tuple(stores), tuple(fast)


def _data_bytes(workload: Workload) -> Longs:
    tasks = np.repeat(np.arange(len(workload)), np.diff(workload.access_start))
    nbytes = np.bincount(tasks, workload.object_bytes[workload.access_object].astype(np.float64), len(workload))
    if (nbytes > MOST_BYTES).any():
        task = int(np.argmax(nbytes > MOST_BYTES))
        raise LearningError(f"task {task} uses {nbytes[task]:.0f} bytes, more than {MOST_BYTES}")
    return nbytes.astype(np.int64)


def _check_times(system: System, workload: Workload, most_bits: int) -> None:
    for node in system.nodes:
        for memory in node.memories:
            if most_bits // min(memory.read_bps, memory.write_bps) >= MOST_SECONDS:
                raise LearningError(f"{most_bits} bits of a task take more than {MOST_SECONDS} s in {memory}")
        for engine in node.engines:
            can = (workload.kinds & engine.kind.bit) != 0
            for operations, rate in (
                (workload.float_operations, engine.float_ops_per_s),
                (workload.int_operations, engine.int_ops_per_s),
            ):
                slow = can & (operations // rate >= MOST_SECONDS)
                if slow.any():
                    task = int(np.argmax(slow))
                    raise LearningError(f"task {task} takes more than {MOST_SECONDS} s on {engine} of node {node.name}")


def _passable(network: Network, most_bits: int) -> Network:
    """Return the network in which too slow connections are unreachable, and no rate is 0."""
    slow = most_bits // np.maximum(network.rate_bps, 1) >= MOST_SECONDS
    closed = (network.delay_ns < 0) | (network.rate_bps == 0) | slow
    delay_ns = np.where(closed, UNREACHABLE_NS, network.delay_ns)
    return Network(network.times_ns, delay_ns, np.where(closed, 1, network.rate_bps))


def _network_features(network: Network) -> tuple[Floats, Floats]:
    """Return delay and bandwidth as features: 1 and 0 for unreachable nodes.

    Bandwidth is relative to the fastest between two nodes at any time; entries of a node and itself mean nothing.
    """
    closed = network.delay_ns < 0
    between = ~np.eye(network.rate_bps.shape[1], dtype=np.bool_)
    fastest = max(int(network.rate_bps[:, between].max(initial=1)), 1)
    delay = np.where(closed, 1.0, _logarithmic(np.maximum(network.delay_ns, 0)))
    bandwidth = np.where(closed, 0.0, np.minimum(network.rate_bps / fastest, 1.0))
    return delay.astype(np.float32), bandwidth.astype(np.float32)


def _task_features(system: System, workload: Workload, settings: PoolSettings, data_bytes: Longs) -> Floats:
    engines = [(engine.cores, engine) for node in system.nodes for engine in node.engines]
    floats = sum(cores * engine.float_ops_per_s for cores, engine in engines)
    ints = sum(cores * engine.int_ops_per_s for cores, engine in engines)
    operations = workload.float_operations + workload.int_operations * (floats / ints)
    written = np.where(workload.access_is_write, workload.object_bytes[workload.access_object], 0)
    tasks = np.repeat(np.arange(len(workload)), np.diff(workload.access_start))
    written_bytes = np.bincount(tasks, written.astype(np.float64), len(workload))
    pages = -(-data_bytes // settings.page_bytes)
    columns = [_logarithmic(operations), _logarithmic(pages), written_bytes / np.maximum(data_bytes, 1)]
    return np.stack(columns, axis=1).astype(np.float32)


def _logarithmic(figures: npt.NDArray[np.float64] | Longs) -> npt.NDArray[np.float64]:
    features: npt.NDArray[np.float64] = np.minimum(np.log2(1 + figures.astype(np.float64)) / _LOG_BITS, 1)
    return features


def price(come_hz: float) -> int:
    """Return the price of a square by which a port or a slot is occupied for longer, at this rate of arrivals.

    In ns of waiting for each `BACKLOG_UNIT_NS` squared, over 2^`PRICE_BITS`.
    """
    return min(round(come_hz / NS_PER_S * BACKLOG_UNIT_NS**2 / 2 * (1 << PRICE_BITS)), MOST_PRICE)


def kinds_of(mask: int) -> str:
    """Return kinds of engines for readers."""
    return " or ".join(kind.value for kind in EngineKind if mask & kind.bit)
