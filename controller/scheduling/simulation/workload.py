"""Workloads of the simulator: tasks, task graphs, pods and pod groups, as units that are placed whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from controller.cluster.hardware import DeviceRequest, Request
from controller.cluster.workloads.values import Pod, PodGroup, Task, TaskGraph
from controller.common.errors import SchedulerError
from controller.scheduling.pods.values import Peer
from dataplane.topology.values import DeviceKind


@dataclass(frozen=True, slots=True)
class GraphArrival:
    """A task graph and its submission time, to which its tasks' own arrivals are added."""

    graph: TaskGraph
    arrival_ns: int = 0


@dataclass(frozen=True, slots=True)
class Workload:
    """Work to replay. `inputs` are what tasks (by name) read from hosts before they run; names are unique.

    An edge without a size counts as `default_edge_bytes`. `skipped` counts the entries of files that were not read as
    work, by reason.
    """

    tasks: tuple[Task, ...] = ()
    graphs: tuple[GraphArrival, ...] = ()
    pods: tuple[Pod, ...] = ()
    groups: tuple[PodGroup, ...] = ()
    inputs: Mapping[str, tuple[Peer, ...]] = field(default_factory=dict)
    default_edge_bytes: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to run a unit: each member's shares, the kind of device, and the total run time."""

    kind: DeviceKind
    requests: tuple[Request, ...]
    duration_ns: int


@dataclass(slots=True)
class Unit:
    """A unit of placement: all its members start together, and hold their shares until the last one is done.

    `variants` begin with the shortest; `sources` are units (by number) and hosts, with bytes, that inputs come from;
    `waits` counts the units that must finish before.
    """

    number: int
    name: str
    arrival_ns: int
    variants: tuple[Variant, ...]
    priority: int = 0
    sources: list[tuple[int | str, int]] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    waits: int = 0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Work that cannot be replayed, and why."""

    name: str
    reason: str


def units_of(workload: Workload) -> tuple[list[Unit], list[LeftOut]]:
    """Return a workload's units in order of arrival within each kind, and what cannot be replayed.

    The latter are tasks of unknown run time. Raise SchedulerError for inputs of a task that does not exist.
    """
    maker = _Maker(workload)
    for task in workload.tasks:
        maker.add_task(task, task.name, 0)
    for arrival in workload.graphs:
        maker.add_graph(arrival, workload.default_edge_bytes)
    for pod in workload.pods:
        maker.add_pods(pod.name, (pod,), pod.priority)
    for group in workload.groups:
        maker.add_pods(group.name, group.pods, max(pod.priority for pod in group.pods))
    if unknown := sorted(workload.inputs.keys() - maker.numbers.keys() - {item.name for item in maker.left_out}):
        raise SchedulerError(f"inputs of {unknown[0]}: no such task")
    return maker.units, maker.left_out


class _Maker:
    def __init__(self, workload: Workload) -> None:
        self.inputs = workload.inputs
        self.units: list[Unit] = []
        self.left_out: list[LeftOut] = []
        self.numbers: dict[str, int] = {}

    def add_task(self, task: Task, name: str, arrival_ns: int) -> Unit | None:
        return self._add(name, arrival_ns + task.arrival_ns, variants_of(task), task.priority)

    def add_graph(self, arrival: GraphArrival, default_edge_bytes: int) -> None:
        graph = arrival.graph
        if any(not variants_of(task) for task in graph.tasks):
            self.left_out.append(LeftOut(graph.name, "some of its tasks have no known run time"))
            return
        for name in graph.order:
            self.add_task(graph.task[name], f"{graph.name}/{name}", arrival.arrival_ns)
        for edge in graph.edges:
            before, unit = (self.units[self.numbers[f"{graph.name}/{end}"]] for end in (edge.src, edge.dst))
            unit.sources.append((before.number, default_edge_bytes if edge.nbytes is None else edge.nbytes))
            unit.waits += 1
            before.after.append(unit.number)

    def add_pods(self, name: str, pods: Iterable[Pod], priority: int) -> None:
        tasks = [task for pod in pods for task in pod.tasks]
        variants = [variants_of(task) for task in tasks]
        if not all(variants):
            self.left_out.append(LeftOut(name, "some of its tasks have no known run time"))
            return
        # A pod's containers are built for one kind of device; the pod runs as long as the longest of them.
        variant = Variant(
            variants[0][0].kind, tuple(pod.request for pod in pods), max(variant[0].duration_ns for variant in variants)
        )
        self._add(name, max(task.arrival_ns for task in tasks), (variant,), priority)

    def _add(self, name: str, arrival_ns: int, variants: tuple[Variant, ...], priority: int) -> Unit | None:
        if not variants:
            self.left_out.append(LeftOut(name, "its run time is unknown"))
            return None
        if name in self.numbers:
            raise SchedulerError(f"duplicate {name} in the workload")
        unit = Unit(len(self.units), name, arrival_ns, variants, priority)
        unit.sources.extend((peer.host, peer.nbytes) for peer in self.inputs.get(name, ()))
        self.numbers[name] = unit.number
        self.units.append(unit)
        return unit


def variants_of(task: Task) -> tuple[Variant, ...]:
    """Return the ways to run a task, the shortest first; a kind that it does not request needs a whole extra device."""
    if task.duration_ns is None:
        return ()
    variants = (
        Variant(kind, (with_device(task.request, kind),) * task.instances, duration_ns)
        for kind, duration_ns in task.duration_ns.items()
    )
    return tuple(sorted(variants, key=lambda variant: variant.duration_ns))


@lru_cache(maxsize=4096)
def with_device(request: Request, kind: DeviceKind) -> Request:
    """Return a request with a device of a kind added, if it has none."""
    if kind is DeviceKind.CPU or any(device.kind is kind for device in request.devices):
        return request
    return Request(request.cpu_milli, request.memory_bytes, (*request.devices, DeviceRequest(kind)))
