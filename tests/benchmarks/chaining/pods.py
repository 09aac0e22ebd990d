"""Pods bound a second through real processes: `millrace api` and `millrace scheduler` with default settings.

Nodes and requests are those of the cluster trace openb, or as many synthetic ones where the trace is missing. Two runs,
each with an empty storage: pods that wait before the scheduler starts, timed from its ready line to the last binding,
and pods created while it schedules, timed from the first creation to the last binding. Clients, server and scheduler
share the machine's cores; CPU milliseconds a pod say what each took.

    .venv/bin/python -m tests.benchmarks.chaining.pods     # --nodes 1523 --pods 1500 --data FOLDER
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from controller.apiserver.client import ApiClient
from controller.apiserver.client.calls import watching
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.base import R
from controller.apiserver.resources.hardware import Device, Hardware, MemoryMedium, Request
from controller.apiserver.resources.node import NodeStatus
from controller.apiserver.resources.pod import POD, Container, PodSpec
from controller.cluster.hardware import requests
from dataplane.topology.values import DeviceKind, MediumKind
from tests.benchmarks.chaining import placing_daemons
from tests.benchmarks.placing.openb import Trace

DATA: Final = Path(__file__).parents[3].parent / "shared" / "data"
NODES: Final = 1523
PODS: Final = 1500
QUICK_PODS: Final = 300
NAMES: Final = (
    "pods_bound_per_s",
    "pods_created_and_bound_per_s",
    "pod_bound_idle_ms",
    "bind_api_cpu_ms",
    "bind_scheduler_cpu_ms",
)
_CLIENTS: Final = 16
_IDLE_PODS: Final = 15
_BOUND: Final = '"phase":"bound"'


@dataclass(frozen=True, slots=True)
class Run:
    """Cost of one run: seconds of wall time, and CPU milliseconds per pod by process."""

    pods: int
    seconds: float
    cpu_ms: dict[str, float]

    @property
    def per_s(self) -> float:
        """Pods bound a second."""
        return self.pods / self.seconds


def pods_bound_per_s(nodes: int = NODES, pods: int = PODS, data: Path = DATA) -> float:
    """Return how many pods that wait are bound a second, from the scheduler's ready line to the last binding."""
    return asyncio.run(waiting_run(nodes, pods, data)).per_s


def measure(*, quick: bool = False) -> dict[str, float]:
    """Return all figures by name."""
    return figures(NODES, QUICK_PODS if quick else PODS, DATA)


async def waiting_run(nodes: int, pods: int, data: Path) -> Run:
    """Time the binding of pods that wait before the scheduler starts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with placing_daemons.api(folder) as (api, client):
            some_nodes, some_pods = cluster(nodes, pods, data)
            await create_all(client, some_nodes)
            await create_all(client, some_pods)
            all_bound = asyncio.create_task(_until_bound(client, pods))
            async with placing_daemons.scheduler(folder) as scheduler:
                begun, before = time.perf_counter(), (api.cpu_s, scheduler.cpu_s)
                await all_bound
                seconds, after = time.perf_counter() - begun, (api.cpu_s, scheduler.cpu_s)
    return Run(pods, seconds, cpu_ms(("api", "scheduler"), before, after, pods))


async def creating_run(nodes: int, pods: int, data: Path) -> tuple[Run, float]:
    """Time pods that are created while the scheduler runs; return the median ms to bind one before that, too."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with placing_daemons.api(folder) as (api, client), placing_daemons.scheduler(folder) as scheduler:
            some_nodes, some_pods = cluster(nodes, pods + _IDLE_PODS, data)
            await create_all(client, some_nodes)
            idle_ms = await _idle_ms(client, some_pods[pods:])
            all_bound = asyncio.create_task(_until_bound(client, pods + _IDLE_PODS))
            begun, before = time.perf_counter(), (api.cpu_s, scheduler.cpu_s, time.process_time())
            await create_all(client, some_pods[:pods])
            await all_bound
            seconds, after = time.perf_counter() - begun, (api.cpu_s, scheduler.cpu_s, time.process_time())
    return Run(pods, seconds, cpu_ms(("api", "scheduler", "clients"), before, after, pods)), idle_ms


def cluster(nodes: int, pods: int, data: Path) -> tuple[list[Node], list[Pod]]:
    """Return nodes that are ready, and pods that wait: those of openb where it is in `data`, else synthetic ones."""
    trace = Trace.of(data)
    if trace is None:
        print(f"pods: openb is not in {data}: synthetic nodes and pods")
        hardware, asked = [_hardware(number) for number in range(nodes)], [_request(number) for number in range(pods)]
    else:
        hardware = [Hardware.of(node) for node in trace.nodes[:nodes]]
        devices = sum(len(node.devices) for node in trace.nodes[:nodes])
        asked = [Request.of(pod.request) for pod in trace.arrivals(devices * requests.WHOLE, seed=42)[:pods]]
    made = [
        Node(metadata=Metadata(name=f"node-{number}"), status=NodeStatus(ready=True, hardware=node_hardware))
        for number, node_hardware in enumerate(hardware)
    ]
    container = Container(name="main", image="registry.example/train:1")
    waiting = [
        Pod(metadata=Metadata(name=f"pod-{number}"), spec=PodSpec(containers=(container,), request=request))
        for number, request in enumerate(asked)
    ]
    return made, waiting


def _hardware(number: int) -> Hardware:
    """Return a node: 64 to 128 cores, and GPUs on four of five nodes."""
    gpus = (0, 1, 2, 8, 8)[number % 5]
    devices = tuple(
        Device(number=number, kind=DeviceKind.GPU, model="T4", memory_bytes=16 << 30) for number in range(gpus)
    )
    memory = (MemoryMedium(kind=MediumKind.DRAM, capacity_bytes=256 << 30),)
    return Hardware(cpu_milli=(64_000, 96_000, 128_000)[number % 3], memory=memory, devices=devices)


def _request(number: int) -> Request:
    """Return a request: cores, and mostly a part of a GPU."""
    share = (0, 250, 500, 1000)[number % 4]
    gpu = requests.DeviceRequest(DeviceKind.GPU, 1, share, frozenset(), 0) if share else None
    return Request.of(requests.Request(4000 + 1000 * (number % 5), 8 << 30, () if gpu is None else (gpu,)))


async def create_all(client: ApiClient, resources: Iterable[R]) -> None:
    """Create resources by several concurrent clients, one request each."""
    left = iter(resources)

    async def some() -> None:
        for resource in left:
            await client.of(type(resource)).create(resource)

    await asyncio.gather(*(some() for _ in range(_CLIENTS)))


async def _until_bound(client: ApiClient, pods: int) -> None:
    """Return once a watch from the beginning has shown this many pods bound."""
    seen = 0
    async with aclosing(client.lines(watching(POD, "", "", 0))) as lines:
        async for line in lines:
            # Decoding each line would distort the measurement: only look whether a pod is bound.
            seen += _BOUND in line
            if seen >= pods:
                return


async def _idle_ms(client: ApiClient, pods: Sequence[Pod]) -> float:
    """Return the median milliseconds from the creation of a pod on an idle cluster until a watch says it is bound."""
    delays_ms = []
    async with aclosing(client.of(Pod).watch(0)) as events:
        for pod in pods:
            begun = time.perf_counter()
            await client.of(Pod).create(pod)
            async for event in events:
                if event.name == pod.metadata.name and event.resource is not None and event.resource.status.node:
                    break
            delays_ms.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(delays_ms)


def cpu_ms(names: Sequence[str], before: Sequence[float], after: Sequence[float], pods: int) -> dict[str, float]:
    """Return the milliseconds a pod that processes took, by their names."""
    return {name: 1e3 * (now - then) / pods for name, then, now in zip(names, before, after, strict=True)}


def figures(nodes: int, pods: int, data: Path) -> dict[str, float]:
    """Return all figures by name."""
    waiting = asyncio.run(waiting_run(nodes, pods, data))
    creating, idle_ms = asyncio.run(creating_run(nodes, pods, data))
    for what, run in (("waiting", waiting), ("creating", creating)):
        print(f"{what}: {run.per_s:.0f} pods/s; CPU ms a pod: {run.cpu_ms}")
    values = (waiting.per_s, creating.per_s, idle_ms, waiting.cpu_ms["api"], waiting.cpu_ms["scheduler"])
    return dict(zip(NAMES, values, strict=True))


def main(argv: list[str]) -> None:
    """Measure, print a table, and the figures as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of published traces")
    asked = parser.parse_args(argv)
    results = figures(asked.nodes, asked.pods, asked.data)
    table = Table("figure", "value")
    for name, value in results.items():
        table.add_row(name, f"{value:,.2f}")
    Console(width=100).print(table)
    print(json.dumps({name: round(value, 3) for name, value in results.items()}))


if __name__ == "__main__":
    main(sys.argv[1:])
