"""An API server and its node managers, in the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from collectors.devices.root import Root
from controller.apiserver.client import ApiClient
from controller.apiserver.registry.placements import Binding, BindingRequest
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.hardware import DeviceShare
from controller.apiserver.resources.node import NodeSpec
from controller.apiserver.resources.pod import Container, Phase, PodSpec
from controller.common.errors import NotFoundError
from controller.workloads.nodes.machine import MACHINE
from controller.workloads.nodes.process import serve
from controller.workloads.nodes.runtimes.base import Runtime
from controller.workloads.nodes.settings import NodeSettings, RestartSection
from dataplane.local.deadline import local_timeout
from tests.controller.apiserver.api_server import Served, serving, settings_in
from tests.waiting import until

WAIT_S = 60.0
QUICK = RestartSection(first_wait_s=0.02, longest_wait_s=0.1, young_s=30)


@dataclass(slots=True)
class World:
    """The service, and actions of a test on it."""

    folder: Path
    served: Served

    @property
    def client(self) -> ApiClient:
        """Its administrator's."""
        return self.served.client

    def settings(self, node: str = "h1", **more: object) -> NodeSettings:
        return self.settings_of(self.folder, self.served.socket, node, **more)

    @staticmethod
    def settings_of(folder: Path, api: str, node: str = "h1", **more: object) -> NodeSettings:
        state = str(folder / f"state-{node}")
        return replace(NodeSettings(node=node, state=state, api=api, restart=QUICK, report_s=0.05), **more)

    @asynccontextmanager
    async def managing(
        self,
        runtime: Runtime | None,
        settings: NodeSettings | None = None,
        *,
        ready: bool = True,
        root: Root = MACHINE,
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Run a manager until the block ends, then stop it like a kill."""
        stop = asyncio.Event()
        wanted = settings or self.settings()
        before = await self.heartbeat_ns(wanted.node)
        task = asyncio.create_task(serve(wanted, stop, runtime=runtime, root=root))
        try:
            if ready:
                await self.until(lambda: self.is_ready(wanted.node, after_ns=before), task)
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(
        self, holds: Callable[[], Awaitable[bool]], task: asyncio.Task[None] | None = None, poll_s: float = 0.01
    ) -> None:
        """Return once a condition holds; raise the error of a manager that ends first."""

        async def does_hold() -> bool:
            if await holds():
                return True
            if task is not None and task.done():
                await task
                raise AssertionError("the manager has ended")
            return False

        await until(does_hold, limit_s=WAIT_S, poll_s=poll_s)

    async def is_ready(self, node: str = "h1", after_ns: int = 0) -> bool:
        try:
            status = (await self.client.of(Node).get(node)).status
        except NotFoundError:
            return False
        return status.ready and (status.heartbeat_ns or 0) > after_ns

    async def heartbeat_ns(self, node: str) -> int:
        try:
            return (await self.client.of(Node).get(node)).status.heartbeat_ns or 0
        except NotFoundError:
            return 0

    async def make_node(self, name: str = "h1", **spec: object) -> None:
        await self.client.of(Node).create(Node(metadata=Metadata(name=name), spec=NodeSpec(**spec)))  # type: ignore[arg-type]

    async def bind(
        self, name: str, node: str = "h1", *, image: str = "image", devices: tuple[int, ...] = (), **spec: object
    ) -> None:
        """Create a pod and bind it."""
        containers = spec.pop("containers", (Container(name="main", image=image),))
        made = PodSpec(containers=containers, **spec)  # type: ignore[arg-type]
        await self.client.of(Pod).create(Pod(metadata=Metadata(name=name), spec=made))
        await self.rebind(name, node, devices)

    async def rebind(self, name: str, node: str = "h1", devices: tuple[int, ...] = ()) -> None:
        shares = tuple(DeviceShare(number=number) for number in devices)
        binding = Binding(pod=name, node=node, devices=shares)
        await self.client.bind(BindingRequest(bindings=(binding,)))

    async def pod(self, name: str) -> Pod:
        return await self.client.of(Pod).get(name)

    async def pod_when(self, name: str, holds: Callable[[Pod], bool]) -> Pod:
        """Return a pod once a condition holds."""
        pod = await self.pod(name)

        async def does_hold() -> bool:
            nonlocal pod
            pod = await self.pod(name)
            return holds(pod)

        await until(does_hold, lambda: pod.status, limit_s=WAIT_S, poll_s=0.01)
        return pod

    async def in_phase(self, name: str, phase: Phase) -> Pod:
        return await self.pod_when(name, lambda pod: pod.status.phase is phase)

    async def until_gone(self, name: str) -> None:
        async def is_gone() -> bool:
            try:
                await self.pod(name)
            except NotFoundError:
                return True
            return False

        await until(is_gone, f"pod {name} stays", limit_s=WAIT_S, poll_s=0.01)


def play(folder: Path, act: Callable[[World], Awaitable[None]]) -> None:
    """Run a function on a service over SQLite."""

    async def main() -> None:
        (folder / "api").mkdir(exist_ok=True)
        async with local_timeout(WAIT_S, "a test"), serving(settings_in(folder / "api"), folder / "api") as served:
            await act(World(folder, served))

    asyncio.run(main())
