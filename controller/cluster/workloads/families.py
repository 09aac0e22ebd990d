"""Generated workloads: batches of tasks with random arrivals, and layered task graphs; reproducible by seed.

Durations are log-normal, as they nearly are in real clusters; arrivals are a Poisson process.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from controller.cluster.hardware.requests import WHOLE, DeviceRequest, Request
from controller.cluster.workloads.errors import WorkloadError
from controller.cluster.workloads.values import Edge, Task, TaskGraph
from dataplane.clock import NS_PER_S
from dataplane.topology.values import DeviceKind

_GIB: Final = 1 << 30
_SPREAD: Final = 1.0
"""The standard deviation of a duration's logarithm."""
_SECONDS: Final = (1e-9, 1e9)
_BATCH: Final = {
    "tasks": (1, 10**7),
    "rate_hz": (1e-9, 1e9),
    "mean_s": _SECONDS,
    "gpu_share": (0, 1),
    "most_cores": (1, 10**6),
}
_LAYERS: Final = {
    "layers": (1, 10**4),
    "width": (1, 10**4),
    "most_before": (1, 10**4),
    "mean_s": _SECONDS,
    "mean_bytes": (0, 1 << 50),
    "gpu_speedup": (1e-6, 1e6),
    "cpu_only_share": (0, 1),
}


def check_ranges(family: str, values: object, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Raise WorkloadError for a value outside its range, such as one that would fill the memory."""
    for name, (least, most) in ranges.items():
        if not least <= getattr(values, name) <= most:
            raise WorkloadError(f"invalid {family}: {name} must be between {least:.12g} and {most:.12g}")


@dataclass(frozen=True, slots=True)
class Batch:
    """Tasks that arrive at `rate_hz` and run `mean_s` on average; a share of them requests part of a GPU."""

    tasks: int
    rate_hz: float = 1.0
    mean_s: float = 60.0
    gpu_share: float = 0.5
    most_cores: int = 8

    def __post_init__(self) -> None:
        check_ranges("batch", self, _BATCH)


def batch(family: Batch, seed: int) -> tuple[Task, ...]:
    """Return a batch's tasks in order of arrival."""
    # Seeded with text, a generator draws the same in every process, whatever PYTHONHASHSEED is.
    rng = random.Random(f"batch/{seed}")
    arrival_s, tasks = 0.0, []
    for number in range(family.tasks):
        arrival_s += rng.expovariate(family.rate_hz)
        kind = DeviceKind.GPU if rng.random() < family.gpu_share else DeviceKind.CPU
        # Whole devices are as frequent as both shares together.
        thousandths = rng.choice((250, 500, WHOLE, WHOLE))
        devices = (DeviceRequest(kind, 1, thousandths),) if kind is DeviceKind.GPU else ()
        cores = rng.randrange(1, family.most_cores + 1)
        request = Request(cores * WHOLE, rng.randrange(1, 2 * cores + 1) * _GIB, devices)
        duration = {kind: _duration_ns(rng, family.mean_s)}
        tasks.append(Task(f"task-{number}", round(arrival_s * NS_PER_S), request, duration))
    return tuple(tasks)


@dataclass(frozen=True, slots=True)
class Layers:
    """A layered task graph: each task waits for 1 to `most_before` tasks of the previous layer and reads from each."""

    layers: int = 4
    width: int = 8
    most_before: int = 3
    mean_s: float = 2.0
    mean_bytes: int = 64 << 20
    gpu_speedup: float = 8.0
    cpu_only_share: float = 0.1

    def __post_init__(self) -> None:
        check_ranges("layers", self, _LAYERS)


def layered_graph(family: Layers, seed: int) -> TaskGraph:
    """Return a graph of tasks that can run on a CPU and, most of them, faster on a GPU."""
    rng = random.Random(f"layers/{seed}")
    tasks, edges = [], []
    before: list[str] = []
    for layer in range(family.layers):
        names = [f"{layer}-{index}" for index in range(family.width)]
        for name in names:
            times = {DeviceKind.CPU: _duration_ns(rng, family.mean_s)}
            if rng.random() >= family.cpu_only_share:
                factor = family.gpu_speedup * rng.uniform(0.5, 1.5)
                times[DeviceKind.GPU] = max(1, round(times[DeviceKind.CPU] / factor))
            tasks.append(Task(name, 0, Request(cpu_milli=WHOLE), times))
            sources = rng.sample(before, min(len(before), rng.randrange(1, family.most_before + 1)))
            mean_bytes = max(family.mean_bytes, 1)
            edges += [Edge(source, name, round(rng.expovariate(1 / mean_bytes))) for source in sources]
        before = names
    return TaskGraph(f"layers-{seed}", tuple(tasks), tuple(edges))


def _duration_ns(rng: random.Random, mean_s: float) -> int:
    """Draw a duration with the given mean."""
    return max(1, round(NS_PER_S * rng.lognormvariate(math.log(mean_s) - _SPREAD**2 / 2, _SPREAD)))
