"""An API server with nodes, and schedulers of it, in the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from msgspec.structs import replace

from controller.apiserver.client import ApiClient
from controller.apiserver.resources import Decision, Metadata, Node, Pod
from controller.apiserver.resources.decision import Outcome
from controller.apiserver.resources.hardware import Hardware, Request
from controller.apiserver.resources.node import NodeStatus
from controller.apiserver.resources.pod import Container, PodSpec
from controller.scheduling.process import serve
from controller.scheduling.serving.scheduler import Scheduler
from controller.scheduling.settings import QueueSettings, SchedulerSettings
from dataplane.local.deadline import local_timeout
from tests.controller.apiserver.api_server import serving, settings_in
from tests.controller.scheduling.pods.clusters import node

WAIT_S = 120.0
QUICK = QueueSettings(first_wait_ns=1_000_000, longest_wait_ns=1_000_000_000)


@dataclass(slots=True)
class Cluster:
    """The service, and actions of a test on it."""

    client: ApiClient
    socket: str

    async def add_node(self, name: str, cores: int = 4, gpus: tuple[str, ...] = ()) -> Node:
        """Create a ready node."""
        made = await self.client.of(Node).create(Node(metadata=Metadata(name=name)))
        status = NodeStatus(ready=True, hardware=Hardware.of(node(name, cores=cores, gpus=gpus)))
        return await self.client.of(Node).replace_status(replace(made, status=status))

    async def add_pod(self, name: str, cores: int = 1, **more: object) -> Pod:
        """Create a pending pod."""
        spec = PodSpec(
            containers=(Container(name="c", image="image"),),
            request=Request(cpu_milli=1000 * cores),
            **more,  # type: ignore[arg-type]
        )
        return await self.client.of(Pod).create(Pod(metadata=Metadata(name=name), spec=spec))

    async def pods_when(self, holds: Callable[[dict[str, Pod]], bool]) -> dict[str, Pod]:
        """Return all pods once a condition holds."""
        pods: dict[str, Pod] = {}
        async for told in self.client.of(Pod).follow():
            if hasattr(told, "items"):
                pods = {pod.metadata.name: pod for pod in told.items}
            elif told.resource is not None and told.type != "DELETE":
                pods[told.name] = told.resource
            else:
                pods.pop(told.name, None)
            if holds(pods):
                return pods
        raise AssertionError("the watch ended")

    async def decision_about(self, pod: str, outcome: Outcome, words: str = "") -> Decision:
        """Return the first decision about a pod with this outcome and these words in its reason."""
        async for told in self.client.of(Decision).follow():
            decisions = told.items if hasattr(told, "items") else () if told.resource is None else (told.resource,)
            for decision in decisions:
                if pod in decision.spec.subjects and decision.spec.outcome is outcome and words in decision.spec.reason:
                    return decision
        raise AssertionError("the watch ended")

    @asynccontextmanager
    async def scheduling(self, settings: SchedulerSettings | None = None) -> AsyncIterator[Scheduler]:
        """Run a scheduler until the block ends."""
        schedulers = asyncio.Queue[Scheduler]()
        stop = asyncio.Event()
        settings = SchedulerSettings(queue=QUICK) if settings is None else settings
        made = SchedulerSettings(
            api=self.socket,
            queue=settings.queue,
            profiles=settings.profiles,
            topology=settings.topology,
            metrics=settings.metrics,
        )
        task = asyncio.create_task(serve(made, stop, on_scheduler=schedulers.put_nowait))
        try:
            yield await schedulers.get()
        finally:
            stop.set()
            await task


class Play(Protocol):
    """Runs a function on a cluster."""

    def __call__(self, act: Callable[[Cluster], Awaitable[None]]) -> None: ...


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Run a function on a service over SQLite."""

    def run(act: Callable[[Cluster], Awaitable[None]]) -> None:
        async def main() -> None:
            settings = settings_in(tmp_path, None)
            async with local_timeout(WAIT_S, "a test"), serving(settings, tmp_path) as served:
                await act(Cluster(served.client, served.socket))

        asyncio.run(main())

    return run


def placed_name(name: str) -> Callable[[dict[str, Pod]], bool]:
    """Return a condition for `pods_when`: the pod is placed."""
    return lambda pods: name in pods and pods[name].status.node is not None
