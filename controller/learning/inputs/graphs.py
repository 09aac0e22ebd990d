"""Task graphs as tasks of the pool: tasks with a time on a CPU and one on a GPU, and their outputs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Final, Self

from controller.cluster.workloads.files import spotri_graph
from controller.cluster.workloads.values import TaskGraph
from controller.learning.environment.values import (
    Engine,
    EngineKind,
    Medium,
    Memory,
    Node,
    System,
    Task,
    Workload,
)
from controller.learning.errors import LearningError
from controller.learning.inputs.systems import GIB, MIB, Racks
from controller.learning.inputs.values import PoolInput
from dataplane.config import Settings
from dataplane.config.quantities import key_of
from dataplane.topology.values import DeviceKind

_CPU_OPS_PER_S: Final = 20_000_000_000
_MOST_NS: Final = 50_000_000_000_000


class GraphSettings(Settings, frozen=True):
    """Conversion of a graph into a system and a workload.

    The graph's times are divided by `time_compression`. A task hands on one object of `edge_bytes`, which all its
    successors read; where `edge_spread`, the standard deviation of the size's logarithm, is above 0, each size is
    multiplied by a log-normal factor of mean 1. Tasks without predecessors read an object of that size from the pool.
    `copies` of the graph arrive as a Poisson process, `interval_ns` apart on average. Nodes have `cores` of a CPU;
    every `gpu_every`-th, the first included, also has a GPU.
    """

    time_compression: int = 1000
    edge_bytes: int = 409_600
    edge_spread: float = 0.0
    copies: int = 1
    interval_ns: int = 80_000_000
    seed: int = 0
    nodes: int = 16
    cores: int = 2
    gpu_every: int = 4
    fast_bytes: int = 64 * MIB
    home_bytes: int = 4 * GIB
    racks: Racks = Racks(near_bps=100_000_000_000, far_bps=40_000_000_000)

    def __post_init__(self) -> None:
        for name in ("time_compression", "edge_bytes", "copies", "interval_ns", "nodes", "cores", "gpu_every"):
            if getattr(self, name) < 1:
                key = key_of(name) or name
                raise LearningError(f"{key} is {getattr(self, name)}, less than 1", at=key)
        if not 0 <= self.edge_spread <= 4:
            raise LearningError(f"edge_spread is {self.edge_spread}, not between 0 and 4", at="edge_spread")


def graph_input(path: Path, settings: GraphSettings | None = None) -> PoolInput:
    """Return a spotri file as an input; raise WorkloadError with file and line."""
    return input_of(spotri_graph(path), settings or GraphSettings())


def input_of(graph: TaskGraph, settings: GraphSettings) -> PoolInput:
    """Return a graph, copies of it as they arrive, and a system on which each task takes the graph's times."""
    speed = Speedups.of(graph, settings.time_compression)
    rng = random.Random(f"graph/{settings.seed}")
    tasks: list[Task] = []
    sizes: list[int] = []
    created: list[int] = []
    submitted_ns = 0
    for copy in range(settings.copies):
        submitted_ns += round(rng.expovariate(1 / settings.interval_ns)) if copy else 0
        outputs: dict[str, tuple[int, int]] = {}
        for name in graph.order:
            before = [outputs[edge.src] for edge in graph.before[name]]
            reads = tuple(number for _, number in before)
            if not reads:
                reads = (_sized(sizes, rng, settings),)
            output = _sized(sizes, rng, settings)
            created.append(output)
            tasks.append(
                Task(
                    submitted_ns,
                    reads,
                    (output,),
                    *speed.operations(graph.task[name].duration_ns or {}),
                    after=tuple(number for number, _ in before),
                )
            )
            outputs[name] = (len(tasks) - 1, output)
    return PoolInput(graph.name, _system(settings, speed), Workload.of(tasks, sizes, created))


def _sized(sizes: list[int], rng: random.Random, settings: GraphSettings) -> int:
    spread = settings.edge_spread
    # A lognormal's mean is exp(mu + sigma^2 / 2): this mu keeps it at 1.
    factor = rng.lognormvariate(-(spread**2) / 2, spread) if spread else 1.0
    sizes.append(max(1, round(settings.edge_bytes * factor)))
    return len(sizes) - 1


@dataclass(frozen=True, slots=True)
class Speedups:
    """Speedups of a GPU over a CPU core: highest with float operations, lowest with int operations.

    Files give a task two times and no operations. The GPU is faster at one kind of operation by the largest ratio of
    any task's two times, and at the other by the smallest; mixing both kinds for each task then reproduces both its
    times. A task that no GPU runs has int operations only.
    """

    floats: float
    ints: float
    compression: int

    @classmethod
    def of(cls, graph: TaskGraph, compression: int) -> Self:
        """Return the factors of a graph; raise LearningError for a task that takes no time or too long."""
        factors = [1.0]
        for task in graph.tasks:
            times = task.duration_ns or {}
            if DeviceKind.CPU not in times or not all(1 <= ns // compression <= _MOST_NS for ns in times.values()):
                raise LearningError(
                    f"{graph.name}: task {task.name} takes no time or more than {_MOST_NS} ns,"
                    f" at a compression of {compression}"
                )
            if DeviceKind.GPU in times:
                factors.append(times[DeviceKind.CPU] / times[DeviceKind.GPU])
        return cls(max(factors), min(factors), compression)

    def operations(self, times: Mapping[DeviceKind, int]) -> tuple[int, int, int]:
        """Return float operations, int operations and the kinds of engines of a task."""
        cpu_s = times[DeviceKind.CPU] / self.compression / 1e9
        if DeviceKind.GPU not in times:
            return 0, round(cpu_s * _CPU_OPS_PER_S), EngineKind.CPU.bit
        gpu_s = times[DeviceKind.GPU] / self.compression / 1e9
        both = EngineKind.CPU.bit | EngineKind.GPU.bit
        if self.floats == self.ints:
            return round(cpu_s * _CPU_OPS_PER_S), 0, both
        float_s = (cpu_s / self.ints - gpu_s) / (1 / self.ints - 1 / self.floats)
        float_s = min(max(float_s, 0.0), cpu_s)
        return round(float_s * _CPU_OPS_PER_S), round((cpu_s - float_s) * _CPU_OPS_PER_S), both


def _system(settings: GraphSettings, speed: Speedups) -> System:
    cpu = Engine(EngineKind.CPU, settings.cores, _CPU_OPS_PER_S, _CPU_OPS_PER_S)
    gpu = Engine(
        EngineKind.GPU, 1, max(1, round(_CPU_OPS_PER_S * speed.floats)), max(1, round(_CPU_OPS_PER_S * speed.ints))
    )
    media = islice(cycle((Medium.SCM, Medium.NVM)), settings.nodes)
    nodes = tuple(
        Node(
            f"n{number}",
            (cpu,) if number % settings.gpu_every else (cpu, gpu),
            (Memory.of(Medium.DRAM, settings.fast_bytes), Memory.of(medium, settings.home_bytes)),
        )
        for number, medium in enumerate(media)
    )
    return System(nodes, settings.racks.network(settings.nodes))
