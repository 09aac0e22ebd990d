"""Projects' shares of a full cluster, compared with their weights, through `millrace api` and `scheduler`.

Three projects of weights 1, 2 and 1 always have pods that wait, all of one size; a fourth asks for little. Pods end
at random, one after the other, and room goes to whoever's turn it is. What the fourth leaves is to be the others', in
proportion to their weights: the error is the largest difference from that of a share of the cluster, over the second
half of all ends.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

from controller.apiserver.client import ApiClient
from controller.apiserver.registry.placements import Release, ReleaseRequest
from controller.apiserver.resources import Metadata, Node, Pod, Project
from controller.apiserver.resources.hardware import Hardware, Request
from controller.apiserver.resources.node import NodeStatus
from controller.apiserver.resources.pod import Container, Phase, PodSpec
from controller.apiserver.resources.project import ProjectSpec
from tests.benchmarks.chaining import placing_daemons

_NODES: Final = 20
_CPU_MILLI: Final = 8_000
_WEIGHTS: Final = {"one": 1.0, "two": 2.0, "three": 1.0}
_SIZE_MILLI: Final = 1_000
"""Size of every pod: with different sizes, the pod that first finds room need not belong to the smallest share."""
_LITTLE: Final = 8
"""Pods that the fourth project runs: a twentieth of the cluster."""
_WAITING: Final = 30


def fair_share_error(ends: int = 1_200, seed: int = 1) -> float:
    """Return the largest difference of a project's share of the cluster from what its weight gives it."""
    return asyncio.run(_run(ends, seed))


async def _run(ends: int, seed: int) -> float:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with placing_daemons.api(folder) as (_, client), placing_daemons.scheduler(folder):
            await _prepare(client)
            cluster = _Cluster(client)
            following = asyncio.create_task(cluster.follow())
            try:
                await cluster.refill()
                await cluster.until_full()
                held = Counter[str]()
                for number in range(ends):
                    await cluster.end_one(rng)
                    if number >= ends // 2:
                        held.update(cluster.held())
            finally:
                following.cancel()
    samples = ends - ends // 2
    total = _NODES * _CPU_MILLI
    shares = {project: held[project] / samples / total for project in _WEIGHTS}
    left = 1 - held["little"] / samples / total
    return max(abs(shares[project] - left * weight / sum(_WEIGHTS.values())) for project, weight in _WEIGHTS.items())


async def _prepare(client: ApiClient) -> None:
    for name, weight in _WEIGHTS.items():
        await client.of(Project).create(Project(metadata=Metadata(name=name), spec=ProjectSpec(weight=weight)))
    for number in range(_NODES):
        status = NodeStatus(ready=True, hardware=Hardware(cpu_milli=_CPU_MILLI))
        await client.of(Node).create(Node(metadata=Metadata(name=f"h{number}"), status=status))


class _Cluster:
    """The pods, as a watch tells them, and what ends and replaces them."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._pods: dict[str, Pod] = {}
        self._made = Counter[str]()
        self._changed = asyncio.Event()

    async def follow(self) -> None:
        async for told in self._client.of(Pod).follow():
            if hasattr(told, "items"):
                self._pods = {pod.metadata.name: pod for pod in told.items}
            elif told.name and told.resource is not None and told.type != "DELETE":
                self._pods[told.name] = told.resource
            self._changed.set()

    async def refill(self) -> None:
        """Create pending pods for every project that should have some."""
        there, waiting = Counter[str](), Counter[str]()
        for pod in self._pods.values():
            there[pod.metadata.project] += pod.status.node is not None
            waiting[pod.metadata.project] += pod.status.phase is Phase.PENDING
        for project in (*_WEIGHTS, "little"):
            wanted = _LITTLE - there[project] if project == "little" else _WAITING
            for _ in range(wanted - waiting[project]):
                self._made[project] += 1
                await self._create(project, f"{project}-{self._made[project]}")

    async def until_full(self) -> None:
        """Wait until nothing more fits: less is free than the largest pod needs."""
        while sum(self.held().values()) < _NODES * _CPU_MILLI - _SIZE_MILLI + 1:
            await self.refill()
            await self._next()

    async def end_one(self, rng: random.Random) -> None:
        """End a random pod, and wait until its share is reassigned."""
        running = sorted(name for name, pod in self._pods.items() if pod.status.node is not None)
        name = rng.choice(running)
        before = self._pods[name].status.epoch
        await self._client.release(ReleaseRequest(releases=(Release(pod=name, phase=Phase.SUCCEEDED),)))
        while self._pods[name].status.epoch == before and self._pods[name].status.node is not None:
            await self._next()
        await self.refill()
        await self.until_full()

    def held(self) -> Counter[str]:
        """Return what projects hold, in thousandths of a core."""
        held_milli: defaultdict[str, int] = defaultdict(int)
        for pod in self._pods.values():
            if pod.status.node is not None:
                held_milli[pod.metadata.project] += pod.spec.request.cpu_milli
        return Counter(held_milli)

    async def _create(self, project: str, name: str) -> None:
        container = Container(name="main", image="registry.example/train:1")
        spec = PodSpec(containers=(container,), request=Request(cpu_milli=_SIZE_MILLI))
        made = await self._client.of(Pod).create(Pod(metadata=Metadata(name=name, project=project), spec=spec))
        self._pods.setdefault(name, made)

    async def _next(self) -> None:
        self._changed.clear()
        await self._changed.wait()
