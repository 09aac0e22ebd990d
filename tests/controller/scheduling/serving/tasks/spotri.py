"""The graph hetero_spotri as tasks of short sleeps, and a service and a scheduler that run them in virtual time."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Generic, cast

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from collectors.values import Snapshot
from controller.apiserver.client import ApiClient
from controller.apiserver.registry.batches import DispatchBatch
from controller.apiserver.registry.cache import ResourceCache
from controller.apiserver.registry.completions import Completion, CompletionRequest
from controller.apiserver.registry.dispatches import DispatchRequest
from controller.apiserver.registry.registry import Registry
from controller.apiserver.registry.selection import ALL
from controller.apiserver.registry.task_state import DispatchAnswer
from controller.apiserver.resources import KINDS, Centre, Decision, Metadata, ProbeTask, Resource, Task
from controller.apiserver.resources.base import R
from controller.apiserver.resources.centre import CentreSpec, CentreStatus, UnitType
from controller.apiserver.resources.decision import DECISION
from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.apiserver.resources.predecessors import DataInput, DataOutput
from controller.apiserver.resources.task import TASK_ENDED, Program, ProgramKind, TaskPhase, TaskSpec
from controller.apiserver.service import Service
from controller.apiserver.storage.sqlite import SqliteStorage
from controller.cluster.cost_map import CostMap
from controller.cluster.workloads.files import spotri_graph
from controller.cluster.workloads.values import TaskGraph
from controller.common.errors import ApiError
from controller.scheduling.serving.tasks.scheduler import TaskScheduler
from controller.scheduling.tasks.settings import TaskSettings
from dataplane.clock import NS_PER_S, VirtualClock
from dataplane.rpc.access import Principal, Role
from dataplane.topology.file import load_topology
from dataplane.topology.values import DeviceKind
from tests.controller.scheduling.serving.tasks.centres import PlayedCentre

DATA = Path(__file__).parents[6] / "shared" / "data" / "hetero_spotri_spotri-320-10.txt"
ADMIN = Principal("test", Role.ADMIN)
START_NS = 1_900_000_000 * NS_PER_S
SLEEP = 'case "$MILLRACE_UNIT" in gpu) sleep {gpu:.6f};; *) sleep {cpu:.6f};; esac'


def first_tasks(number: int | None = None) -> TaskGraph:
    """Return the graph, cut to its first tasks in topological order."""
    graph = spotri_graph(DATA)
    kept = set(graph.order[:number])
    tasks = tuple(task for task in graph.tasks if task.name in kept)
    return TaskGraph(graph.name, tasks, tuple(edge for edge in graph.edges if {edge.src, edge.dst} <= kept))


def tasks_of(
    graph: TaskGraph, *, compression: float = 1.0, nbytes: int = 0, prefix: str = "t", **more: object
) -> list[Task]:
    """Return the tasks in an order in which they can be submitted, each with one output that its followers read.

    The file has no sizes of edges: each is `nbytes`.
    """
    tasks = []
    for name in graph.order:
        times = graph.task[name].duration_ns or {}
        expected = {kind: time_ns / compression / NS_PER_S for kind, time_ns in times.items()}
        cpu_s = expected[DeviceKind.CPU]
        program = Program(
            kind=ProgramKind.SCRIPT, text=SLEEP.format(cpu=cpu_s, gpu=expected.get(DeviceKind.GPU, cpu_s))
        )
        before = [edge.src for edge in graph.before[name]]
        spec = TaskSpec(
            program=program,
            task_type=f"spotri-{name}",
            after=() if nbytes else tuple(f"{prefix}{each}" for each in before),
            inputs=tuple(DataInput(task=f"{prefix}{each}", output="out") for each in before) if nbytes else (),
            outputs=(DataOutput(name="out", nbytes=nbytes),) if nbytes else (),
            expected=expected,
            **more,  # type: ignore[arg-type]
        )
        tasks.append(Task(metadata=Metadata(name=f"{prefix}{name}"), spec=spec))
    return tasks


def seconds_on(task: Task, unit: str | None) -> float:
    """Return how long a task sleeps on units of a type."""
    kind = DeviceKind.GPU if unit == "gpu" else DeviceKind.CPU
    return task.spec.expected.get(kind, task.spec.expected[DeviceKind.CPU])


def unit_types(cpus: int, gpus: int) -> tuple[UnitType, ...]:
    """Return units of cores, and units with a GPU."""
    gpu = Request(devices=(DeviceNeed(kind=DeviceKind.GPU),))
    types = (UnitType(name="cpu", count=cpus), UnitType(name="gpu", count=gpus, unit=gpu))
    return tuple(unit for unit in types if unit.count)


class VirtualResources(Generic[R]):
    """The resources of a kind, read and written by a service in this process."""

    def __init__(self, service: Service, resource: type[R]) -> None:
        self._service, self._kind = service, KINDS.of_type(resource)

    async def create(self, resource: R) -> R:
        return await self._service.create(ADMIN, self._kind, resource)

    async def get(self, name: str) -> R:
        return (await self._service.get(ADMIN, self._kind, name))[0]

    async def replace_status(self, resource: R) -> R:
        name = resource.metadata.name
        return await self._service.replace_status(ADMIN, self._kind, name, resource, expected=None)


@dataclass(frozen=True, slots=True)
class VirtualClient:
    """The calls of schedulers and centres, answered by a service in this process."""

    service: Service

    def of(self, resource: type[R]) -> VirtualResources[R]:
        return VirtualResources(self.service, resource)

    async def dispatch_each(self, requests: Sequence[DispatchRequest]) -> Sequence[DispatchAnswer | ApiError]:
        return await self.service.dispatch_each(ADMIN, DispatchBatch(requests=tuple(requests)))

    async def complete(self, request: CompletionRequest) -> DispatchAnswer:
        return await self.service.complete(ADMIN, request)


@dataclass
class VirtualWorld:
    """A service, a scheduler and centres whose clock jumps from the end of a task to the next.

    A task holds its units while it reads what its predecessors left elsewhere, over links of nominal rates, and then
    for its sleep.
    """

    client: VirtualClient
    clock: VirtualClock
    scheduler: TaskScheduler
    costs: CostMap
    ends: list[tuple[int, int, str]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)

    async def add_centre(self, name: str, host: str, *units: UnitType) -> None:
        centre = Centre(metadata=Metadata(name=name), spec=CentreSpec(lease_s=1e8))
        made = await self.client.of(Centre).create(centre)
        status = CentreStatus(ready=True, engine="virtual", hosts=(host,), units=units)
        self.take(await self.client.of(Centre).replace_status(replace(made, status=status)))

    async def run(self, tasks: Sequence[Task]) -> Mapping[str, Task]:
        """Submit tasks, and return all once they have ended; raise AssertionError if they never do."""
        for task in tasks:
            self.take(await self.client.of(Task).create(task))
        ours = self.scheduler.view.tasks
        while not all(ours[task.metadata.name].status.phase in TASK_ENDED for task in tasks):
            await self.scheduler.run_round()
            for task in [task for task in ours.values() if task.status.phase is TaskPhase.DISPATCHED]:
                await self._start(task)
            if not self.ends:
                raise AssertionError([task.status.reasons for task in ours.values() if task.status.reasons])
            await self._end_next()
        return ours

    async def decisions(self) -> Sequence[Decision]:
        """Return all decisions of the scheduler."""
        listing, _ = await self.client.service.list(ADMIN, DECISION, ALL, revision=None, after="", limit=10_000)
        return listing.items

    @property
    def elapsed_s(self) -> float:
        return self.clock.now_ns() / NS_PER_S

    def take(self, resource: Resource) -> None:
        self.scheduler.take(resource)

    async def _start(self, task: Task) -> None:
        running = replace(task, status=replace(task.status, phase=TaskPhase.RUNNING))
        self.take(await self.client.of(Task).replace_status(running))
        takes_s = self._reading_s(task) + seconds_on(task, task.status.unit)
        end_ns = self.clock.now_ns() + round(takes_s * NS_PER_S)
        heapq.heappush(self.ends, (end_ns, next(self.numbers), task.metadata.name))

    def _reading_s(self, task: Task) -> float:
        hosts = {name: centre.status.hosts[0] for name, centre in self.scheduler.view.centres.items()}
        here = hosts[task.status.centre or ""]
        total_s = 0.0
        for end in task.status.predecessors:
            source = hosts[end.centre or ""]
            for data in end.inputs:
                total_s += 0 if source == here else 8 * (data.nbytes or 0) / self.costs.cost(source, here).available_bps
        return total_s

    async def _end_next(self) -> None:
        """Jump to the next end, and complete all tasks that end at that time."""
        at_ns = self.ends[0][0]
        self.clock.advance_to(at_ns)
        while self.ends and self.ends[0][0] == at_ns:
            name = heapq.heappop(self.ends)[2]
            task = self.scheduler.view.tasks[name]
            run_s = (START_NS + at_ns - (task.status.started_ns or 0)) / NS_PER_S
            item = Completion(
                task=name, epoch=task.status.epoch, phase=TaskPhase.SUCCEEDED, exit_code=0, run_time_s=run_s
            )
            await self.client.complete(CompletionRequest(completions=(item,)))
            self.take(await self.client.of(Task).get(name))
            self.take(await self.client.of(Centre).get(task.status.centre or ""))


@asynccontextmanager
async def virtual_world(folder: Path, settings: TaskSettings, topology: str) -> AsyncIterator[VirtualWorld]:
    """Open a service over SQLite at virtual time, with a scheduler of it that the world drives."""
    clock = VirtualClock()
    costs = CostMap.of(load_topology(topology), Snapshot(0, {}, {}, {}))

    def now_ns() -> int:
        return START_NS + clock.now_ns()

    async with await SqliteStorage.open(str(folder / "virtual")) as storage:
        registry = Registry(storage, now_ns)
        cache = ResourceCache(registry, clock.now_ns)
        client = VirtualClient(Service(registry, cache))
        following = asyncio.create_task(cache.run())
        try:
            await cache.loaded.wait()
            scheduler = TaskScheduler(
                cast("ApiClient", client),
                settings,
                name="virtual",
                costs=lambda: costs,
                clock=clock,
                now_ns=now_ns,
                registry=CollectorRegistry(),
                topology=topology,
            )
            yield VirtualWorld(client, clock, scheduler, costs)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


@asynccontextmanager
async def sleeping(client: ApiClient, *centres: PlayedCentre) -> AsyncIterator[None]:
    """Let the tasks of centres sleep for their times on the units that they got, until the block ends."""
    sleeps = set[asyncio.Task[None]]()

    async def sleep(task: Task) -> None:
        takes_s = seconds_on(task, task.status.unit)
        await asyncio.sleep(takes_s)
        name, epoch = task.metadata.name, task.status.epoch
        item = Completion(task=name, epoch=epoch, phase=TaskPhase.SUCCEEDED, exit_code=0, run_time_s=takes_s)
        await client.complete(CompletionRequest(completions=(item,)))

    def begin(task: Task, probe: ProbeTask | None) -> None:
        del probe
        sleeps.add(asyncio.create_task(sleep(task)))

    for centre in centres:
        centre.runs = begin
    yield
    await asyncio.gather(*sleeps)
