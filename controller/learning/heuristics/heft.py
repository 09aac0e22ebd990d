"""Heterogeneous earliest finish time: a whole workload planned before it begins, the most urgent tasks first.

Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing", 2002:
upward ranks by mean costs, then each task into the first gap of a processor in which it ends earliest.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from controller.learning.environment.model import Model
from controller.learning.environment.values import Engine, Workload
from controller.learning.environment.view import PoolView
from controller.learning.values import Observation
from dataplane.clock import NS_PER_S

Figures = npt.NDArray[np.float64]

_CLOSED_NS: Final = 1e18


class Heft:
    """The node of HEFT's plan for the task; if that cannot run it now, the one on which it ends first.

    The plan is made at the first decision. It uses the initial network and each core as a processor, and ignores data
    that no task makes, whose homes a seed draws. Ready tasks are decided on in the environment's order, not by rank:
    only the plan's nodes are followed.
    """

    def __init__(self) -> None:
        self._planned: tuple[Model, list[int]] | None = None

    def choose(self, observation: Observation, view: PoolView) -> int:
        """Return the planned node."""
        if self._planned is None or self._planned[0] is not view.model:
            self._planned = view.model, plan(view.model)
        planned = self._planned[1][view.task]
        if observation.candidates[planned]:
            return planned
        possible: list[int] = np.flatnonzero(observation.candidates).tolist()
        return min(possible, key=lambda action: view.predict(action).end_ns)


@dataclass(slots=True)
class _Processor:
    node: int
    engine: Engine
    begins: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    def gap(self, ready: float, takes: float) -> float:
        """Return the earliest beginning, not before `ready`, of a gap that is long enough."""
        index = bisect_left(self.ends, ready)
        begin = ready
        while index < len(self.begins):
            if begin + takes <= self.begins[index]:
                return begin
            begin = max(begin, self.ends[index])
            index += 1
        return begin

    def put(self, begin: float, end: float) -> None:
        index = bisect_left(self.begins, begin)
        self.begins.insert(index, begin)
        self.ends.insert(index, end)


def plan(model: Model) -> list[int]:
    """Return the node of each task; -1 for a task that no engine can run."""
    workload = model.workload
    processors = [
        _Processor(number, engine)
        for number, node in enumerate(model.system.nodes)
        for engine in node.engines
        for _ in range(engine.cores)
    ]
    takes = _takes_ns(workload, processors)
    before, after = inputs_of(workload)
    ways = _Ways.of(model)
    ranks = _ranks(takes, after, ways)
    nodes, ends = [-1] * len(workload), [0.0] * len(workload)
    # Ranks never rise along edges, which lead from earlier to later tasks: among equals the earlier one is first.
    for task in sorted(range(len(workload)), key=lambda number: (-ranks[number], number)):
        ready = np.full(len(model.system.nodes), float(workload.submitted_ns[task]))
        for source, nbytes in before[task].items():
            if nodes[source] >= 0:
                ready = np.maximum(ready, ends[source] + ways.from_node(nodes[source], nbytes))
        nodes[task], ends[task] = _place(processors, takes[task].tolist(), ready.tolist())
    return nodes


def _place(processors: list[_Processor], takes_ns: list[float], ready_ns: list[float]) -> tuple[int, float]:
    """Put a task into the gap in which it ends earliest; return node and end, -1 if no processor can run it."""
    best: tuple[float, float, _Processor] | None = None
    for processor, time_ns in zip(processors, takes_ns, strict=True):
        if time_ns < math.inf:
            begin = processor.gap(ready_ns[processor.node], time_ns)
            if best is None or begin + time_ns < best[0]:
                best = begin + time_ns, begin, processor
    if best is None:
        return -1, 0.0
    end, begin, processor = best
    processor.put(begin, end)
    return processor.node, end


def inputs_of(workload: Workload) -> tuple[list[dict[int, int]], list[dict[int, int]]]:
    """Return, for each task, its predecessors with the bytes that it reads from them, and its followers."""
    writer = np.full(len(workload.object_bytes), -1, np.int64)
    tasks = np.repeat(np.arange(len(workload)), np.diff(workload.access_start))
    written = workload.access_is_write != 0
    writer[workload.access_object[written]] = tasks[written]
    before: list[dict[int, int]] = [{} for _ in range(len(workload))]
    sources = np.repeat(np.arange(len(workload)), np.diff(workload.follower_start))
    for source, task in zip(sources.tolist(), workload.follower.tolist(), strict=True):
        before[task][source] = 0
    for task, number in zip(tasks[~written].tolist(), workload.access_object[~written].tolist(), strict=True):
        if (source := int(writer[number])) in before[task]:
            before[task][source] += int(workload.object_bytes[number])
    after: list[dict[int, int]] = [{} for _ in range(len(workload))]
    for task, reads in enumerate(before):
        for source, nbytes in reads.items():
            after[source][task] = nbytes
    return before, after


def _takes_ns(workload: Workload, processors: list[_Processor]) -> Figures:
    """Return how long each task takes on each processor in ns, [task, processor]; infinite if it cannot run."""
    takes = np.empty((len(workload), len(processors)))
    for number, processor in enumerate(processors):
        engine = processor.engine
        seconds = workload.float_operations / engine.float_ops_per_s + workload.int_operations / engine.int_ops_per_s
        takes[:, number] = np.where(workload.kinds & engine.kind.bit, seconds * NS_PER_S, np.inf)
    return takes


@dataclass(frozen=True, slots=True)
class _Ways:
    """Delay in ns and ns per byte, [source, destination], and their means over open paths."""

    delay_ns: Figures
    ns_a_byte: Figures
    mean_delay_ns: float
    mean_ns_a_byte: float

    @classmethod
    def of(cls, model: Model) -> Self:
        """Return the initial paths; within a node nothing takes time, and a closed path takes forever."""
        network = model.network
        is_open = network.delay_ns[0] >= 0
        delay_ns = np.where(is_open, network.delay_ns[0], _CLOSED_NS).astype(np.float64)
        ns_a_byte = np.where(is_open, 8 * NS_PER_S / network.rate_bps[0], 0.0)
        for figures in (delay_ns, ns_a_byte):
            np.fill_diagonal(figures, 0)
        count = max(int(is_open.sum()), 1)
        return cls(delay_ns, ns_a_byte, float(delay_ns[is_open].sum()) / count, float(ns_a_byte.sum()) / count)

    def from_node(self, node: int, nbytes: int) -> Figures:
        """Return the transfer time of this many bytes from a node to each node."""
        times_ns: Figures = self.delay_ns[node] + nbytes * self.ns_a_byte[node]
        return times_ns


def _ranks(takes: Figures, after: list[dict[int, int]], ways: _Ways) -> list[float]:
    """Return upward ranks: the longest path of mean times from the beginning of each task to the end of all."""
    possible = np.isfinite(takes)
    mean = np.where(possible, takes, 0).sum(axis=1) / np.maximum(possible.sum(axis=1), 1)
    ranks: list[float] = mean.tolist()
    for task in reversed(range(len(ranks))):
        ranks[task] += max(
            (
                ways.mean_delay_ns + nbytes * ways.mean_ns_a_byte + ranks[follower]
                for follower, nbytes in after[task].items()
            ),
            default=0.0,
        )
    return ranks
