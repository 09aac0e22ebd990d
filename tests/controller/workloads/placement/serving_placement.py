"""An API server with nodes that report, and workload controllers of it, in the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from controller.apiserver.client import ApiClient
from controller.apiserver.registry.placements import Binding, BindingRequest
from controller.apiserver.resources import Metadata, Node, Pod, PodGroup
from controller.apiserver.resources.hardware import Hardware, Request
from controller.apiserver.resources.node import NodeSpec, NodeStatus
from controller.apiserver.resources.pod import Container, Phase, PodSpec, Restart
from controller.apiserver.resources.pod_group import PodGroupSpec
from controller.workloads.placement.driver import MainController
from controller.workloads.placement.process import serve
from controller.workloads.placement.settings import PlacementSettings
from dataplane.local.deadline import local_timeout
from tests.controller.apiserver.api_server import serving, settings_in

WAIT_S = 120.0
HARDWARE = Hardware(cpu_milli=64_000)
TEMPLATE = PodSpec(
    containers=(Container(name="main", image="busybox", command=("run",)),), request=Request(cpu_milli=100)
)


def group_of(name: str, size: int, **more: object) -> PodGroup:
    """Return a group with a template; `restart` and `priority` are the template's."""
    of_template = {key: more.pop(key) for key in ("restart", "restart_limit", "location") if key in more}
    template = replace(TEMPLATE, **of_template)
    return PodGroup(
        metadata=Metadata(name=name),
        spec=PodGroupSpec(size=size, template=template, **more),  # type: ignore[arg-type]
    )


@dataclass(slots=True)
class Cluster:
    """The service, and actions of a test in place of nodes and scheduler."""

    client: ApiClient
    socket: str

    async def add_node(self, name: str, lease_s: float = 1000.0) -> Node:
        """Create a node that has reported once."""
        made = await self.client.of(Node).create(Node(metadata=Metadata(name=name), spec=NodeSpec(lease_s=lease_s)))
        return await self.client.of(Node).replace_status(
            replace(made, status=NodeStatus(ready=True, hardware=HARDWARE))
        )

    async def report(self, name: str) -> Node:
        """Let a node report that it is ready."""
        status = NodeStatus(ready=True, hardware=HARDWARE)
        node = Node(metadata=Metadata(name=name), status=status)
        return await self.client.of(Node).replace_status(node)

    async def bind(self, where: dict[str, str]) -> None:
        """Bind pods to nodes, together."""
        bindings = tuple(Binding(pod=pod, node=node) for pod, node in where.items())
        await self.client.bind(BindingRequest(bindings=bindings))

    async def set_phase(self, name: str, phase: Phase) -> None:
        """Let a pod's node report a phase."""
        pod = await self.client.of(Pod).get(name)
        await self.client.of(Pod).replace_status(replace(pod, status=replace(pod.status, phase=phase)))

    async def when(self, kind: type[Pod] | type[PodGroup] | type[Node], holds: Callable[[dict[str, object]], bool]):  # type: ignore[no-untyped-def]  # noqa: ANN201
        """Return all resources of a kind once a condition holds."""
        resources: dict[str, object] = {}
        async for told in self.client.of(kind).follow():
            if hasattr(told, "items"):
                resources = {resource.metadata.name: resource for resource in told.items}
            elif told.name and told.type != "DELETE":
                resources[told.name] = told.resource
            else:
                resources.pop(told.name, None)
            if holds(resources):
                return resources
        raise AssertionError("the watch ended")

    async def pods_when(self, holds: Callable[[dict[str, Pod]], bool]) -> dict[str, Pod]:
        """Return all pods once a condition holds."""
        return await self.when(Pod, holds)  # type: ignore[arg-type, no-any-return]

    async def groups_when(self, holds: Callable[[dict[str, PodGroup]], bool]) -> dict[str, PodGroup]:
        """Return all groups once a condition holds."""
        return await self.when(PodGroup, holds)  # type: ignore[arg-type, no-any-return]

    async def nodes_when(self, holds: Callable[[dict[str, Node]], bool]) -> dict[str, Node]:
        """Return all nodes once a condition holds."""
        return await self.when(Node, holds)  # type: ignore[arg-type, no-any-return]

    @asynccontextmanager
    async def controlled(self, settings: PlacementSettings | None = None) -> AsyncIterator[MainController]:
        """Run a workload controller until the block ends."""
        controllers, stop = asyncio.Queue[MainController](), asyncio.Event()
        settings = replace(settings or PlacementSettings(), api=self.socket)
        task = asyncio.create_task(serve(settings, stop, on_controller=controllers.put_nowait))
        try:
            yield await controllers.get()
        finally:
            stop.set()
            await task


def play(act: Callable[[Cluster], Awaitable[None]], folder: Path, wait_s: float = WAIT_S) -> None:
    """Run a function on a service over SQLite."""

    async def main() -> None:
        async with local_timeout(wait_s, "a test"), serving(settings_in(folder), folder) as served:
            await act(Cluster(served.client, served.socket))

    asyncio.run(main())


__all__ = ["HARDWARE", "TEMPLATE", "Cluster", "Restart", "group_of", "play"]
