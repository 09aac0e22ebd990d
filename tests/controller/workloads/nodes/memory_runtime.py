"""An in-memory container runtime, also for behaviour that a real one shows only when broken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

from controller.workloads.nodes.runtimes.base import (
    ContainerOrder,
    ContainerPhase,
    ContainerState,
    Ended,
    ExecSession,
    Image,
    Output,
    Terminal,
)
from controller.workloads.nodes.runtimes.errors import ImageError, NoSuchContainerError, OrderError, RuntimeTimeoutError
from dataplane.cgroups import Usage


class MemoryRuntime:
    """An in-memory runtime; `calls` are operations on containers, with their pods' names."""

    def __init__(self) -> None:
        self.containers: dict[str, ContainerState] = {}
        self.orders: dict[str, ContainerOrder] = {}
        self.calls: list[tuple[str, str]] = []
        self.hangs: set[str] = set()
        """Pods whose containers hang on creation and stop, and `list`."""
        self.deadline_s = 0.05
        self.absent: set[str] = set()
        self.cpu_ns: dict[str, int] = {}
        self.written_bytes: dict[str, int] = {}
        self.log = b"said\n"
        self._ends: asyncio.Queue[Ended] = asyncio.Queue()
        self._number = 0

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def version(self) -> str:
        return "memory 1"

    async def pull(self, image: str) -> Image:
        if image in self.absent:
            raise ImageError(f"image {image} is not there")
        return Image(f"sha256:{image}", (image,), 1000)

    async def images(self) -> tuple[Image, ...]:
        return (Image("sha256:image", ("image",), 1000),)

    async def remove_image(self, digest: str) -> None:
        self.calls.append(("remove image", digest))

    async def written(self, id: str) -> int:  # noqa: A002
        return self.written_bytes.get(self._pod(id), 0)

    async def create(self, order: ContainerOrder) -> str:
        pod = order.labels["millrace.pod"]
        await self._maybe_hang(pod, f"create {order.name}")
        if any(container.name == order.name for container in self.containers.values()):
            raise OrderError(f"container {order.name} is there already")
        self._number += 1
        key = f"{self._number:012d}"
        self.containers[key] = ContainerState(
            id=key, name=order.name, labels=order.labels, phase=ContainerPhase.CREATED, image_digest=order.image or ""
        )
        self.orders[key] = order
        self.calls.append(("create", pod))
        return key

    async def start_container(self, id: str) -> None:  # noqa: A002
        self.containers[id] = replace(self.containers[id], phase=ContainerPhase.RUNNING, started_ns=1)
        self.calls.append(("start", self._pod(id)))

    async def stop(self, id: str, grace_s: float) -> None:  # noqa: A002
        await self._maybe_hang(self._pod(id), f"stop {id}")
        self.calls.append(("stop", self._pod(id)))
        self.end(id, 143)

    async def kill(self, id: str) -> None:  # noqa: A002
        self.end(id, 137)

    async def remove(self, id: str) -> None:  # noqa: A002
        if id in self.containers:
            self.calls.append(("remove", self._pod(id)))
            del self.containers[id]

    async def list(self, node: str) -> tuple[ContainerState, ...]:
        await self._maybe_hang("list", "list")
        return tuple(container for container in self.containers.values() if container.labels["millrace.node"] == node)

    async def usage(self, id: str) -> Usage:  # noqa: A002
        if id not in self.containers:
            raise NoSuchContainerError(f"there is no container {id}")
        return Usage(cpu_ns=self.cpu_ns.get(self._pod(id), 0), memory_bytes=1 << 20)

    async def logs(
        self,
        id: str,  # noqa: A002
        *,
        follow: bool = False,
        tail: int | None = None,
        since_ns: int | None = None,
    ) -> AsyncGenerator[Output, None]:
        yield Output(1, self.log)

    async def exec(
        self,
        id: str,  # noqa: A002
        command: tuple[str, ...],
        *,
        terminal: Terminal | None = None,
    ) -> ExecSession:
        raise OrderError("there are no processes")

    async def events(self) -> AsyncGenerator[Ended, None]:
        while True:
            yield await self._ends.get()

    def end(self, key: str, code: int) -> None:
        """End a container."""
        if self.containers[key].phase is ContainerPhase.RUNNING:
            state = replace(self.containers[key], phase=ContainerPhase.EXITED, exit_code=code, finished_ns=2)
            self.containers[key] = state
            self._ends.put_nowait(Ended(key))

    def running(self, pod: str) -> tuple[str, ...]:
        """Return a pod's running containers."""
        return tuple(
            key
            for key, container in self.containers.items()
            if container.labels["millrace.pod"] == pod and container.phase is ContainerPhase.RUNNING
        )

    async def _maybe_hang(self, what: str, doing: str) -> None:
        if what in self.hangs:
            await asyncio.sleep(self.deadline_s)
            raise RuntimeTimeoutError("memory", doing, self.deadline_s)

    def _pod(self, key: str) -> str:
        return self.containers[key].labels["millrace.pod"]
