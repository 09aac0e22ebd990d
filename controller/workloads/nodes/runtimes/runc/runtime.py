"""Runc under conmon as a runtime: the node manager's calls as folders and short-lived commands."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

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
from controller.workloads.nodes.runtimes.bundle import Bind, Process, config_of, hold_mounts, read_bundle
from controller.workloads.nodes.runtimes.errors import ContainerError, ImageError, NoSuchContainerError, OrderError
from controller.workloads.nodes.runtimes.images.limits import ImageLimits, taken_by
from controller.workloads.nodes.runtimes.images.reference import parse_reference
from controller.workloads.nodes.runtimes.images.rootfs import UnpackedImages
from controller.workloads.nodes.runtimes.images.staging import ImageFiles
from controller.workloads.nodes.runtimes.inotify import MOVED_TO, Inotify
from controller.workloads.nodes.runtimes.logs import read_log
from controller.workloads.nodes.runtimes.processes import run_program
from controller.workloads.nodes.runtimes.runc.conmon import Conmon
from controller.workloads.nodes.runtimes.runc.copying import Room
from controller.workloads.nodes.runtimes.runc.exec import start_exec
from controller.workloads.nodes.runtimes.runc.overlay import mount_binds, mount_root, unmount_all
from controller.workloads.nodes.runtimes.runc.records import Record, Records
from controller.workloads.nodes.runtimes.seccomp import PROFILE, read_profile
from controller.workloads.nodes.runtimes.security import IMAGE_FOLDER, HostFolders, check_order
from dataplane.cgroups import Usage, group_at, kill_in, oom_kills_in, processes_in, remove_group, usage_in

_LOOK_S: Final = 0.02
_MOST_LOOK_S: Final = 0.25
_PARENT: Final = "/millrace"


@dataclass(frozen=True, slots=True)
class _Ready:
    """Resolved image or bundle of a container."""

    root: int
    """A descriptor of the folder."""
    process: Process
    binds: tuple[Bind, ...]
    digest: str = ""
    hostname: str | None = None
    is_copied: bool = False


class RuncRuntime:
    """Containers of runc, with all their data in `folder`: images, bundles, logs, exit codes, runc's own state.

    `folders` are the machine's folders that bundles may lie in, and containers may see; `seccomp` is the profile of
    system calls, None for none.
    """

    def __init__(
        self,
        folder: Path,
        *,
        program: str = "runc",
        conmon: str = "conmon",
        environment: Mapping[str, str] | None = None,
        folders: HostFolders = HostFolders(),  # noqa: B008 - frozen
        limits: ImageLimits = ImageLimits(),  # noqa: B008 - frozen
        seccomp: Path | None = PROFILE,
        deadline_s: float = 30.0,
        pull_deadline_s: float = 600.0,
    ) -> None:
        self._folder, self._folders, self._deadline_s = folder, folders, deadline_s
        self._program = shutil.which(program) or program
        self._environment = dict(environment or {})
        self._root, self._exits = folder / "runc", folder / "exits"
        self._records = Records(folder / "containers")
        self._limits = limits
        files = ImageFiles((*folders.images, folder / IMAGE_FOLDER), limits, pull_deadline_s)
        self._images = UnpackedImages(folder / "images", self._environment, files, pull_deadline_s)
        self._conmon = Conmon(conmon, self._program, self._root, self._exits, self._environment, deadline_s)
        self._profile = seccomp
        self._seccomp: Mapping[str, Any] | None = None

    async def start(self) -> None:
        """Check that runc and conmon are installed; remove the half-made remains of a process that died."""
        for folder in (self._folder, self._root, self._exits, self._records.folder, self._folder / IMAGE_FOLDER):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._profile is not None:
            self._seccomp = await asyncio.to_thread(read_profile, self._profile)
        await self.version()
        await run_program((self._conmon.program, "--version"), "version", deadline_s=self._deadline_s)
        await asyncio.to_thread(self._images.clean)
        for container in self._records.unfinished():
            self._conmon.end(self._records.path(container))
            await self._erase(container)

    async def close(self) -> None:
        """Do nothing: only containers keep running."""

    async def version(self) -> str:
        """Return runc's version."""
        words = (await self._runc("--version", doing="version")).decode("utf-8", "replace").split()
        return " ".join(("runc", *words[2:3]))

    async def pull(self, image: str) -> Image:
        """Return the image, fetched and unpacked if missing."""
        return await self._images.pull(image)

    async def images(self) -> tuple[Image, ...]:
        """Return the images that are unpacked."""
        return await asyncio.to_thread(self._images.list)

    async def remove_image(self, digest: str) -> None:
        """Remove an image that no container uses."""
        if any(record.image_digest == digest for record in await asyncio.to_thread(self._records.all)):
            raise ImageError(f"image {digest}: a container uses it")
        await self._images.remove(digest)

    async def written(self, id: str) -> int:  # noqa: A002
        """Return the bytes written to its own layer; if that is a copy of its root folder, all of it."""
        self._records.read(id)
        folder = self._records.path(id)
        # The mount at rootfs, by us or another manager, is the image below that layer.
        layers = [folder / "upper", *(() if os.path.ismount(folder / "rootfs") else (folder / "rootfs",))]
        taken = [await asyncio.to_thread(taken_by, layer) for layer in layers]
        return sum(each.nbytes for each in taken)

    async def create(self, order: ContainerOrder) -> str:
        """Create a container of an existing image, or of a bundle's folder."""
        check_order(order)
        if any(record.name == order.name for record in self._records.all()):
            raise OrderError(f"container {order.name}: the name is taken")
        container = uuid4().hex
        cgroup = f"{order.cgroup_parent or _PARENT}/{container}"
        folder = self._records.path(container)
        try:
            with ExitStack() as stack:
                ready = await self._ready(order, stack)
                await asyncio.to_thread(self._lay_out, folder, ready, order, cgroup)
                await self._conmon.create(container, folder)
            # The container has its own mounts by now.
            await asyncio.to_thread(unmount_all, folder / "mounts")
            self._records.write(
                Record(
                    id=container, name=order.name, labels=dict(order.labels), cgroup=cgroup, image_digest=ready.digest
                )
            )
        except BaseException as error:
            await asyncio.shield(self._erase(container, cgroup))
            if isinstance(error, OSError):
                reason = (error.strerror or str(error)).lower()
                raise ContainerError(f"runc: create {order.name}: {reason}") from error
            raise
        return container

    async def start_container(self, id: str) -> None:  # noqa: A002
        """Let its first process execute the command."""
        self._records.read(id)
        await self._runc("start", id, doing=f"start {id[:12]}")
        self._records.set_started(id)

    async def stop(self, id: str, grace_s: float) -> None:  # noqa: A002
        """Send SIGTERM, later SIGKILL."""
        with suppress(NoSuchContainerError):
            record = self._records.read(id)
            await self._signal(id, "TERM")
            if not await self._has_ended(id, grace_s):
                await asyncio.to_thread(kill_in, group_at(record.cgroup))
                await self._signal(id, "KILL")
                if not await self._has_ended(id, self._deadline_s):
                    raise ContainerError(f"runc: stop {id[:12]}: it survives SIGKILL")

    async def kill(self, id: str) -> None:  # noqa: A002
        """Kill all processes of its control group."""
        with suppress(NoSuchContainerError):
            await asyncio.to_thread(kill_in, group_at(self._records.read(id).cgroup))

    async def remove(self, id: str) -> None:  # noqa: A002
        """Remove it; kill it if it runs."""
        with suppress(NoSuchContainerError):
            await self._erase(id, self._records.read(id).cgroup)

    async def list(self, node: str) -> tuple[ContainerState, ...]:
        """Return all containers with this node's label."""
        records = await asyncio.to_thread(self._records.all)
        wanted = [record for record in records if record.labels.get(NODE_LABEL) == node]
        states = await self._known() if wanted else {}
        return await asyncio.to_thread(lambda: tuple(self._state(record, states) for record in wanted))

    async def usage(self, id: str) -> Usage:  # noqa: A002
        """Return its control group's usage."""
        record = self._records.read(id)
        group = group_at(record.cgroup)
        if not group.folders or self._records.ending(id) is not None:
            raise NoSuchContainerError(f"runc: usage of {id[:12]}: it is not running")
        return usage_in(group)

    async def logs(
        self,
        id: str,  # noqa: A002
        *,
        follow: bool = False,
        tail: int | None = None,
        since_ns: int | None = None,
    ) -> AsyncGenerator[Output]:
        """Yield its output."""
        self._records.read(id)

        async def is_running() -> bool:
            return self._runs(id)

        path = self._records.path(id) / "log"
        outputs = read_log(path, is_running=is_running if follow else None, tail=tail, since_ns=since_ns)
        try:
            async for output in outputs:
                yield output
        finally:
            await outputs.aclose()

    async def exec(
        self,
        id: str,  # noqa: A002
        command: tuple[str, ...],
        *,
        terminal: Terminal | None = None,
    ) -> ExecSession:
        """Start a process in a running container."""
        record = self._records.read(id)
        if not self._runs(id):
            raise ContainerError(f"runc: exec in {id[:12]}: it is not running")
        folder = self._records.path(id)
        pid_file, process_file = (folder / f"{what}-{uuid4().hex}" for what in ("exec", "process"))
        process_file.write_text(json.dumps(_process_in(folder, command, terminal)))
        words = ("exec", "--process", str(process_file), "--pid-file", str(pid_file), id)
        whole = (self._program, "--root", str(self._root), *words)
        try:
            return await start_exec(
                whole,
                f"exec in {id[:12]}",
                environment=self._environment,
                group=group_at(record.cgroup),
                pid_file=pid_file,
                terminal=terminal,
                deadline_s=self._deadline_s,
            )
        finally:
            process_file.unlink(missing_ok=True)

    async def events(self) -> AsyncGenerator[Ended]:
        """Yield containers as they end: conmon creates a file for each in one folder."""
        with Inotify() as inotify:
            inotify.watch(self._exits, MOVED_TO)
            while True:
                for change in await inotify.changes():
                    if change.name.isalnum():
                        yield Ended(change.name)

    async def _ready(self, order: ContainerOrder, stack: ExitStack) -> _Ready:
        """Return a container's resolved image or bundle; raise ContainerError if it is missing or refused."""
        mounts = await hold_mounts(order.mounts, self._folders, stack, self._deadline_s)
        if order.bundle is not None:
            bundle = await read_bundle(order.bundle, self._folders, stack, self._deadline_s)
            binds = (*bundle.mounts, *mounts)
            return _Ready(bundle.root, bundle.process, binds, hostname=bundle.hostname, is_copied=bundle.is_others)
        image = await asyncio.to_thread(self._images.find, parse_reference(order.image or ""))
        if image is None:
            raise ImageError(f"image {order.image}: does not exist here")
        root = os.open(image.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, root)
        return _Ready(root, image.process, mounts, image.image.digest)

    def _lay_out(self, folder: Path, ready: _Ready, order: ContainerOrder, cgroup: str) -> None:
        """Write a container's bundle."""
        folder.mkdir(mode=0o700)
        mounts = mount_binds(ready.binds, folder)
        config = config_of(order, ready.process, mounts, cgroup=cgroup, seccomp=self._seccomp, hostname=ready.hostname)
        (folder / "config.json").write_text(json.dumps(config))
        room = Room(self._limits.most_bytes, self._limits.most_files)
        mount_root(ready.root, folder, room, is_copied=ready.is_copied)

    async def _erase(self, container: str, cgroup: str | None = None) -> None:
        """Remove everything of a container, whole or half made."""
        folder = self._records.path(container)
        with suppress(NoSuchContainerError):
            await self._forget(container)
        if cgroup is not None:
            group = group_at(cgroup)
            while await asyncio.to_thread(kill_in, group):
                await asyncio.sleep(_LOOK_S)
            await asyncio.to_thread(remove_group, group)
        await asyncio.to_thread(unmount_all, folder)
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        (self._exits / container).unlink(missing_ok=True)

    async def _forget(self, container: str) -> None:
        """Have runc forget a container; raise NoSuchContainerError if it does not know it."""
        if not (self._root / container).exists():
            raise NoSuchContainerError(f"runc: there is no container {container[:12]}")
        await self._runc("delete", "--force", container, doing=f"delete {container[:12]}")

    async def _signal(self, container: str, name: str) -> None:
        try:
            await self._runc("kill", container, name, doing=f"send SIG{name} to {container[:12]}")
        except ContainerError:
            if self._runs(container):
                raise

    async def _has_ended(self, container: str, wait_s: float) -> bool:
        """Return whether a container ends within `wait_s`."""
        loop, look_s = asyncio.get_running_loop(), _LOOK_S
        until = loop.time() + wait_s
        while self._runs(container):
            if loop.time() >= until:
                return False
            await asyncio.sleep(min(look_s, max(until - loop.time(), 0)))
            look_s = min(look_s * 1.5, _MOST_LOOK_S)
        return True

    def _runs(self, container: str) -> bool:
        """Return whether it still runs: conmon has reported no end, and its first process exists."""
        if self._records.ending(container) is not None:
            return False
        conmon, first = (self._records.pid(container, name) for name in ("conmon.pid", "pid"))
        if conmon is not None and _is_conmon_of(conmon, container):
            return True
        # Its conmon was killed: nobody will report its end, but it counts as running while it runs.
        return first is not None and first in processes_in(group_at(self._records.read(container).cgroup))

    async def _known(self) -> dict[str, Mapping[str, Any]]:
        """Return runc's state of each container."""
        listed = json.loads(await self._runc("list", "--format", "json", doing="list")) or []
        return {entry["id"]: entry for entry in listed}

    def _state(self, record: Record, states: Mapping[str, Mapping[str, Any]]) -> ContainerState:
        entry = states.get(record.id, {})
        status = entry.get("status", "stopped")
        # runc notices a process's end before its conmon has written it; only the latter counts.
        is_awaited = bool(entry) and status == "stopped" and self._runs(record.id)
        ending = self._records.ending(record.id)
        phase = (
            ContainerPhase.EXITED
            if ending is not None or (status == "stopped" and not is_awaited)
            else ContainerPhase.CREATED
            if status in ("created", "creating")
            else ContainerPhase.RUNNING
        )
        has_ended = phase is ContainerPhase.EXITED
        short = has_ended and (
            bool(oom_kills_in(group_at(record.cgroup))) or self._records.was_short_of_memory(record.id)
        )
        return ContainerState(
            id=record.id,
            name=record.name,
            labels=record.labels,
            phase=phase,
            pid=None if has_ended or is_awaited else int(entry["pid"]),
            exit_code=None if ending is None else ending.exit_code,
            started_ns=self._records.started_ns(record.id),
            finished_ns=None if ending is None else ending.time_ns,
            is_out_of_memory=short,
            image_digest=record.image_digest,
        )

    async def _runc(self, *words: str, doing: str) -> bytes:
        command = (self._program, "--root", str(self._root), *words)
        return await run_program(command, doing, deadline_s=self._deadline_s, environment=self._environment)


def _process_in(folder: Path, command: tuple[str, ...], terminal: Terminal | None) -> dict[str, Any]:
    """Return the process of an exec: the container's own, with another command and perhaps a terminal."""
    process: dict[str, Any] = json.loads((folder / "config.json").read_bytes())["process"]
    process["args"], process["terminal"] = command, terminal is not None
    if terminal is not None:
        process["consoleSize"] = {"height": terminal.rows, "width": terminal.columns}
    return process


def _is_conmon_of(process: int, container: str) -> bool:
    """Return whether a process exists and is a container's conmon."""
    try:
        return container.encode() in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
