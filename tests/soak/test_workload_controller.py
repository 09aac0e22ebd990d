"""The workload controller as a process that is killed (SIGKILL) at random moments, over a real API server.

Nodes are played in the test's loop, and keep to their leases; the scheduler is the real one. Groups come, grow, shrink
and go, nodes fall silent and return; at no time does a pod run on two nodes, and in the end all run.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.apiserver.registry.placements import Release, ReleaseRequest
from controller.apiserver.resources import Metadata, Node, Pod, PodGroup
from controller.apiserver.resources.node import NodeSpec, NodeStatus
from controller.apiserver.resources.pod import Phase
from controller.common.errors import ApiError
from controller.scheduling.process import serve as serve_scheduler
from controller.scheduling.settings import QueueSettings, SchedulerSettings
from tests.controller.workloads.placement.serving_placement import HARDWARE, Cluster, group_of, play
from tests.waiting import until

pytestmark = pytest.mark.slow

KILLS = 12
NODES = 6
LEASE_S = 2.0
MARGIN_S = 0.5
SEED = 5


@dataclass(slots=True)
class Manager:
    """A node: it reports, runs the pods bound to it, and stops everything when its lease ends."""

    name: str
    cluster: Cluster
    is_silent: bool = False
    lease_until_s: float = 0.0
    running: dict[str, int] = field(default_factory=dict)

    def now_running(self) -> dict[str, int]:
        if time.monotonic() >= self.lease_until_s:
            self.running.clear()
        return self.running

    async def run(self) -> None:
        spec = NodeSpec(lease_s=LEASE_S)
        await self.cluster.client.of(Node).create(Node(metadata=Metadata(name=self.name), spec=spec))
        while True:
            with suppress(ApiError):
                await self.step()
            await asyncio.sleep(0.1)

    async def step(self) -> None:
        self.now_running()
        if self.is_silent:
            return
        begun_s = time.monotonic()
        status = NodeStatus(ready=True, hardware=HARDWARE)
        await self.cluster.client.of(Node).replace_status(Node(metadata=Metadata(name=self.name), status=status))
        self.lease_until_s = begun_s + LEASE_S
        mine = (await self.cluster.client.of(Pod).list(fields=f"node={self.name}")).items
        if time.monotonic() >= self.lease_until_s:
            return  # the list is as old as the lease
        self.running = {pod.metadata.name: pod.status.epoch for pod in mine if pod.metadata.deleting_ns is None}
        for pod in mine:
            release = Release(pod=pod.metadata.name, epoch=pod.status.epoch)
            if pod.metadata.deleting_ns is not None:
                await self.cluster.client.release(ReleaseRequest(releases=(release,)))
            elif pod.status.phase is not Phase.RUNNING:
                await self.cluster.client.of(Pod).replace_status(
                    replace(pod, status=replace(pod.status, phase=Phase.RUNNING))
                )


@asynccontextmanager
async def started(settings: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (sys.executable, "-m", "controller.apps.cli", "placement", "serve", "--settings", str(settings))
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    while not (line := await process.stderr.readline()).startswith(b"millrace placement: ready: "):
        assert line, "the workload controller ended"
    drain = asyncio.create_task(process.stderr.read())
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await drain


@asynccontextmanager
async def scheduling(cluster: Cluster) -> AsyncIterator[None]:
    stop, queue = asyncio.Event(), QueueSettings(first_wait_ns=1_000_000, longest_wait_ns=500_000_000)
    task = asyncio.create_task(serve_scheduler(SchedulerSettings(api=cluster.socket, queue=queue), stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def change_something(cluster: Cluster, managers: list[Manager], rng: random.Random) -> None:
    """Make a random change, like users and machines."""
    groups = cluster.client.of(PodGroup)
    existing = (await groups.list()).items
    with suppress(ApiError):  # others were faster
        match rng.randrange(5):
            case 0:
                await groups.create(group_of(f"g{rng.randrange(8)}", rng.randint(1, 6)))
            case 1 if existing:
                group = rng.choice(existing)
                await groups.replace(replace(group, spec=replace(group.spec, size=rng.randint(1, 6))))
            case 2 if len(existing) > 3:
                await groups.delete(rng.choice(existing).metadata.name)
            case _:
                silent = [manager for manager in managers if manager.is_silent]
                manager = rng.choice(silent if len(silent) >= 2 else managers)
                manager.is_silent = not manager.is_silent


def check_once(managers: list[Manager]) -> None:
    running: dict[str, str] = {}
    for manager in managers:
        for pod in manager.now_running():
            assert pod not in running, f"{pod} runs on {running[pod]} and {manager.name}"
            running[pod] = manager.name


async def watch_over(managers: list[Manager]) -> None:
    while True:
        check_once(managers)
        await asyncio.sleep(0.02)


async def all_run(cluster: Cluster, managers: list[Manager]) -> bool:
    """Return whether each group has its pods, each runs where it is bound, and nothing else is there."""
    groups = (await cluster.client.of(PodGroup).list()).items
    pods = (await cluster.client.of(Pod).list()).items
    wanted = {f"{group.metadata.name}-{index}" for group in groups for index in range(group.spec.size)}
    running = {(pod, epoch) for manager in managers for pod, epoch in manager.now_running().items()}
    nodes = (await cluster.client.of(Node).list()).items
    shares = {(share.pod, share.epoch) for node in nodes for share in node.shares}
    bound = {(pod.metadata.name, pod.status.epoch) for pod in pods if pod.status.node is not None}
    return {pod.metadata.name for pod in pods} == wanted and running == shares == bound and len(bound) == len(wanted)


def test_killed_controller_loses_nothing_and_runs_nothing_twice(tmp_path: Path) -> None:
    rng = random.Random(SEED)

    async def act(cluster: Cluster) -> None:
        settings = tmp_path / "placement.yaml"
        settings.write_text(
            f"api: {cluster.socket}\nsilence: {{margin_s: {MARGIN_S}, nodes_per_s: 100, partition_nodes_per_s: 10}}\n"
            "flapping: {most: 1000}\n"
        )
        managers = [Manager(f"h{number}", cluster) for number in range(NODES)]
        async with asyncio.TaskGroup() as tasks, scheduling(cluster):
            others = [tasks.create_task(manager.run()) for manager in managers]
            others.append(tasks.create_task(watch_over(managers)))
            for _ in range(KILLS):
                async with started(settings) as process:
                    end = time.monotonic() + rng.uniform(0.2, 3.0)
                    while time.monotonic() < end:
                        await change_something(cluster, managers, rng)
                        await asyncio.sleep(rng.uniform(0, 0.2))
                    process.kill()
            for manager in managers:
                manager.is_silent = False
            async with started(settings):
                await until(lambda: all_run(cluster, managers), limit_s=300, poll_s=0.2)
            for task in others:
                task.cancel()

    play(act, tmp_path, wait_s=600)
