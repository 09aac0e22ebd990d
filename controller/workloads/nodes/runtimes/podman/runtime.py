"""Podman as a runtime: the node manager's calls as calls of its REST service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import httpx

from controller.workloads.nodes.runtimes.base import (
    NODE_LABEL,
    ContainerOrder,
    ContainerPhase,
    ContainerState,
    Ended,
    ExecSession,
    Image,
    Output,
    Terminal,
)
from controller.workloads.nodes.runtimes.errors import (
    ContainerError,
    NoSuchContainerError,
    OrderError,
    RuntimeAwayError,
)
from controller.workloads.nodes.runtimes.images.limits import ImageLimits
from controller.workloads.nodes.runtimes.images.staging import ImageFiles, remove_unfinished
from controller.workloads.nodes.runtimes.logs import read_log
from controller.workloads.nodes.runtimes.podman.client import PodmanClient
from controller.workloads.nodes.runtimes.podman.ends import EndWatch
from controller.workloads.nodes.runtimes.podman.exec import start_exec
from controller.workloads.nodes.runtimes.podman.images import PodmanImages
from controller.workloads.nodes.runtimes.podman.memory import MemoryWatch
from controller.workloads.nodes.runtimes.podman.service import PodmanService
from controller.workloads.nodes.runtimes.podman.specification import specification_of
from controller.workloads.nodes.runtimes.security import IMAGE_FOLDER, HostFolders
from dataplane.cgroups import Usage, group_at, usage_in
from dataplane.clock import NS_PER_S

_COPIES: Final = "image-copies"
_LOOK_S: Final = 0.01
_MOST_LOOK_S: Final = 0.5
_ENDED: Final = frozenset({"exited", "stopped", "dead", "removing"})
_RUNNING: Final = frozenset({"running", "paused", "stopping"})


class PodmanRuntime:
    """Containers of podman, by the service behind `socket`, or by its own service with a socket in `folder`.

    `environment` is added to ours for its own service (such as CONTAINERS_CONF), `folders` are the machine's
    folders that image files may lie in.
    """

    def __init__(
        self,
        folder: Path,
        *,
        socket: Path | None = None,
        program: str = "podman",
        environment: Mapping[str, str] | None = None,
        folders: HostFolders = HostFolders(),  # noqa: B008 - frozen
        limits: ImageLimits = ImageLimits(),  # noqa: B008 - frozen
        deadline_s: float = 30.0,
        pull_deadline_s: float = 600.0,
    ) -> None:
        self._service: PodmanService | None = None
        if socket is None:
            self._service = PodmanService(program, folder, environment or {}, deadline_s)
            socket = self._service.socket
        self._client = PodmanClient(socket, deadline_s)
        self._deadline_s, self._folder = deadline_s, folder
        self._memory, self._ends = MemoryWatch(), EndWatch()
        files = ImageFiles((*folders.images, folder / IMAGE_FOLDER), limits, pull_deadline_s)
        self._images = PodmanImages(self._call, files, folder / _COPIES, pull_deadline_s)

    async def start(self) -> None:
        """Start the service, unless it is external, and make sure that it answers."""
        for folder in (self._folder, self._folder / IMAGE_FOLDER):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        await asyncio.to_thread(remove_unfinished, self._folder / _COPIES)
        await self.version()

    async def close(self) -> None:
        """End the service that `start` has started."""
        self._memory.close()
        self._ends.close()
        await self._client.close()
        if self._service is not None:
            await self._service.close()

    async def version(self) -> str:
        """Return podman's version."""
        answer = json.loads(await self._call("GET", "version", "version"))
        return f"podman {answer['Version']}"

    async def pull(self, image: str) -> Image:
        """Return the image, fetched if missing."""
        return await self._images.pull(image)

    async def images(self) -> tuple[Image, ...]:
        """Return the images in podman's storage."""
        return await self._images.list()

    async def remove_image(self, digest: str) -> None:
        """Remove an image that no container uses."""
        await self._images.remove(digest)

    async def written(self, id: str) -> int:  # noqa: A002
        """Return the bytes written to its own layer."""
        answer = await self._call("GET", f"containers/{id}/json", f"size of {id[:12]}", query={"size": "true"})
        return int(json.loads(answer).get("SizeRw") or 0)

    async def create(self, order: ContainerOrder) -> str:
        """Create a container of an existing image."""
        if order.bundle is not None or order.image is None:
            raise OrderError(f"container {order.name}: podman runs images; only the runc runtime runs bundles")
        doing = f"create {order.name}"
        image_id = await self._images.id_of(order.image)
        body = specification_of(order, image_id, tuple(await self._images.annotations_of(image_id)))
        return str(json.loads(await self._call("POST", "containers/create", doing, body=body))["Id"])

    async def start_container(self, id: str) -> None:  # noqa: A002
        """Start it."""
        self._memory.forget(id)
        await self._call("POST", f"containers/{id}/start", f"start {id[:12]}")
        await self._watch(id)

    async def stop(self, id: str, grace_s: float) -> None:  # noqa: A002
        """Stop it gracefully."""
        query = {"timeout": str(max(0, round(grace_s))), "ignore": "true"}
        deadline_s = self._deadline_s + grace_s
        await self._gone_is_fine("POST", f"containers/{id}/stop", f"stop {id[:12]}", query, deadline_s)

    async def kill(self, id: str) -> None:  # noqa: A002
        """Kill it."""
        try:
            await self._gone_is_fine("POST", f"containers/{id}/kill", f"kill {id[:12]}", {"signal": "KILL"})
        except ContainerError:
            if (await self._state_of(id)).get("Running"):
                raise

    async def remove(self, id: str) -> None:  # noqa: A002
        """Remove it by force."""
        query = {"force": "true", "v": "true", "timeout": "0"}
        await self._gone_is_fine("DELETE", f"containers/{id}", f"remove {id[:12]}", query)

    async def list(self, node: str) -> tuple[ContainerState, ...]:
        """Return all containers with this node's label."""
        entries = await self._entries({"label": [f"{NODE_LABEL}={node}"]})
        for entry in entries:
            if entry["State"] in _RUNNING:
                await self._watch(entry["Id"])
        # Each may wait for the kernel: one after the other, many that end at once would hold up the node's report.
        await asyncio.gather(*(self._memory.settle(entry["Id"]) for entry in entries if entry["State"] in _ENDED))
        self._memory.keep(entry["Id"] for entry in entries)
        digests = {image_id: stored.image.digest for image_id, stored in (await self._images.stored()).items()}
        return tuple(_state(entry, digests, self._memory) for entry in entries)

    async def usage(self, id: str) -> Usage:  # noqa: A002
        """Return its control group's usage."""
        state = await self._state_of(id)
        if not state.get("Running") or "CgroupPath" not in state:
            raise NoSuchContainerError(f"podman: usage of {id[:12]}: it is not running")
        return usage_in(group_at(str(state["CgroupPath"])))

    async def logs(
        self,
        id: str,  # noqa: A002
        *,
        follow: bool = False,
        tail: int | None = None,
        since_ns: int | None = None,
    ) -> AsyncGenerator[Output]:
        """Yield its output."""
        inspected = json.loads(await self._call("GET", f"containers/{id}/json", f"logs of {id[:12]}"))
        path = Path(inspected["HostConfig"]["LogConfig"]["Path"])

        async def is_running() -> bool:
            return bool((await self._state_of(id)).get("Running"))

        async with aclosing(
            read_log(path, is_running=is_running if follow else None, tail=tail, since_ns=since_ns)
        ) as outputs:
            async for output in outputs:
                yield output

    async def exec(
        self,
        id: str,  # noqa: A002
        command: tuple[str, ...],
        *,
        terminal: Terminal | None = None,
    ) -> ExecSession:
        """Start a process in a running container."""
        return await start_exec(
            self._call, self._client.socket, id, command, terminal=terminal, deadline_s=self._deadline_s
        )

    async def events(self) -> AsyncGenerator[Ended]:
        """Yield containers as they end, once podman knows it: the running ones, and all that are started here."""
        with self._ends.listening() as queue:
            for entry in await self._entries({"status": ["running"]}):
                await self._watch(entry["Id"])
            while True:
                container = await queue.get()
                await self._until_known(container)
                yield Ended(container)

    async def _until_known(self, container: str) -> None:
        """Wait until podman has noticed a container's end, which it does when queried."""
        wait_s = _LOOK_S
        while (await self._state_of(container)).get("Running"):
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _MOST_LOOK_S)

    async def _entries(self, filters: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], ...]:
        """Return podman's list of containers."""
        query = {"all": "true", "filters": json.dumps(filters)}
        return tuple(json.loads(await self._call("GET", "containers/json", "list", query=query)) or ())

    async def _call(self, method: str, path: str, doing: str, **more: Any) -> bytes:  # noqa: ANN401
        """Call the service; restart our own if it has ended."""
        if self._service is None:
            return await self._client.call(method, path, doing, **more)
        await self._service.ensure()
        process = self._service.process
        try:
            return await self._client.call(method, path, doing, **more)
        except RuntimeAwayError as error:
            # It exits by itself when idle for a while, possibly at this moment. Do not repeat calls that may have been
            # carried out already.
            if method != "GET" and not isinstance(error.__cause__, httpx.ConnectError):
                raise
            await self._service.renew(process)
            return await self._client.call(method, path, doing, **more)

    async def _gone_is_fine(
        self, method: str, path: str, doing: str, query: Mapping[str, str], deadline_s: float | None = None
    ) -> None:
        try:
            await self._call(method, path, doing, query=query, deadline_s=deadline_s)
        except NoSuchContainerError:
            return

    async def _watch(self, id: str) -> None:  # noqa: A002
        """Watch the end and the memory of a running container from when it is first seen."""
        if not self._ends.has(id):
            state = await self._state_of(id)
            if state.get("Running") and state.get("Pid"):
                # One that ends at this moment still runs and has no group any more.
                if "CgroupPath" in state:
                    self._memory.add(id, group_at(str(state["CgroupPath"])))
                self._ends.add(id, int(state["Pid"]))

    async def _state_of(self, id: str) -> dict[str, Any]:  # noqa: A002
        try:
            answer = await self._call("GET", f"containers/{id}/json", f"look at {id[:12]}")
        except NoSuchContainerError:
            return {}
        state: dict[str, Any] = json.loads(answer)["State"]
        return state


def _state(entry: Mapping[str, Any], digests: Mapping[str, str], memory: MemoryWatch) -> ContainerState:
    state = entry["State"]
    phase = (
        ContainerPhase.EXITED
        if state in _ENDED
        else ContainerPhase.RUNNING
        if state in _RUNNING
        else ContainerPhase.CREATED
    )
    has_ended = phase is ContainerPhase.EXITED
    return ContainerState(
        id=entry["Id"],
        name=entry["Names"][0],
        labels=entry["Labels"] or {},
        phase=phase,
        pid=entry["Pid"] or None,
        exit_code=entry["ExitCode"] if has_ended else None,
        started_ns=max(entry["StartedAt"], 0) * NS_PER_S or None,
        finished_ns=entry["ExitedAt"] * NS_PER_S if has_ended else None,
        is_out_of_memory=has_ended and memory.has_killed(entry["Id"]),
        image_digest=digests.get(entry["ImageID"], ""),
    )
