"""Work in the schedulers' form, independent of file formats: requests, arrival, duration and dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from controller.cluster.hardware.requests import Request
from controller.cluster.workloads.errors import WorkloadError
from dataplane.topology.values import DeviceKind


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work that runs in one place from start to end.

    `arrival_ns` counts from the workload's start. `duration_ns` is its run time with the requested resources, by kind
    of device that can run it; None if a file does not give it. `limit_ns` is the user's time limit, `instances` the
    number of equal parts that run at the same time.
    """

    name: str
    arrival_ns: int
    request: Request
    duration_ns: Mapping[DeviceKind, int] | None = None
    limit_ns: int | None = None
    instances: int = 1
    priority: int = 0
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """A task's dependency on another one, whose output of `nbytes` it reads; None if a file does not give the size."""

    src: str
    dst: str
    nbytes: int | None = None


@dataclass(frozen=True)
class TaskGraph:
    """Tasks with dependencies, without cycles; raises WorkloadError if invalid."""

    name: str
    tasks: tuple[Task, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        names = [task.name for task in self.tasks]
        _refuse_twice(self.name, "task", names)
        for edge in self.edges:
            for end in (edge.src, edge.dst):
                if end not in self.task:
                    raise WorkloadError(f"{self.name}: {edge.src} -> {edge.dst}: there is no task {end}")
        if len(self.order) != len(names):
            waiting = sorted(set(names) - set(self.order))
            raise WorkloadError(f"{self.name}: tasks wait for one another in a cycle: {', '.join(waiting[:3])}")

    @cached_property
    def task(self) -> dict[str, Task]:
        """Tasks by name."""
        return {task.name: task for task in self.tasks}

    @cached_property
    def before(self) -> dict[str, tuple[Edge, ...]]:
        """Dependencies of each task."""
        by_task: dict[str, list[Edge]] = {task.name: [] for task in self.tasks}
        for edge in self.edges:
            by_task[edge.dst].append(edge)
        return {name: tuple(edges) for name, edges in by_task.items()}

    @cached_property
    def after(self) -> dict[str, tuple[Edge, ...]]:
        """Dependents of each task."""
        by_task: dict[str, list[Edge]] = {task.name: [] for task in self.tasks}
        for edge in self.edges:
            by_task[edge.src].append(edge)
        return {name: tuple(edges) for name, edges in by_task.items()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Topological order of the tasks, ties in the graph's order; those in a cycle are left out."""
        waiting = {name: len(edges) for name, edges in self.before.items()}
        ordered = [name for name, count in waiting.items() if count == 0]
        for name in ordered:
            for edge in self.after[name]:
                waiting[edge.dst] -= 1
                if waiting[edge.dst] == 0:
                    ordered.append(edge.dst)
        return tuple(ordered)


@dataclass(frozen=True, slots=True)
class Pod:
    """Tasks that run together on one host at the same time: containers of one manifest."""

    name: str
    tasks: tuple[Task, ...]
    priority: int = 0
    labels: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if not self.tasks:
            raise WorkloadError(f"{self.name}: a pod without tasks")
        _refuse_twice(self.name, "task", [task.name for task in self.tasks])

    @property
    def request(self) -> Request:
        """Combined request of all its tasks, with all their instances, to the host."""
        return sum((task.request.times(task.instances) for task in self.tasks), Request())


@dataclass(frozen=True, slots=True)
class PodGroup:
    """Pods of which at least `least` must run at the same time, or none: a gang, such as training workers."""

    name: str
    pods: tuple[Pod, ...]
    least: int

    def __post_init__(self) -> None:
        _refuse_twice(self.name, "pod", [pod.name for pod in self.pods])
        if not 1 <= self.least <= len(self.pods):
            raise WorkloadError(
                f"{self.name}: {self.least} of {len(self.pods)} pods cannot be required to run together"
            )


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """A request for blocks of a store: at `time_ns` from the start, `nbytes` from block `block` on."""

    time_ns: int
    block: int
    nbytes: int
    is_write: bool


@dataclass(frozen=True, slots=True)
class Run:
    """A measured run of a benchmark on a machine: start (ns since 1970), duration and score."""

    machine: str
    start_ns: int
    duration_ns: int
    score: float


@dataclass(frozen=True, slots=True)
class DutyCycle:
    """Load of a device: from each of `times_ns` on, the share of time in `busy` (0 to 1), until the next one."""

    name: str
    times_ns: tuple[int, ...]
    busy: tuple[float, ...]


def _refuse_twice(owner: str, noun: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise WorkloadError(f"{owner}: duplicate {noun} {name}")
        seen.add(name)
