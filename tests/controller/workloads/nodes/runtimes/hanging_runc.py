"""A runc that hangs in one of its commands."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from controller.workloads.nodes.runtimes.base import ContainerOrder, Runtime
from controller.workloads.nodes.runtimes.errors import RuntimeTimeoutError
from controller.workloads.nodes.runtimes.runc import RuncRuntime
from controller.workloads.nodes.runtimes.security import HostFolders
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.controller.workloads.nodes.runtimes.real_containers import DEADLINE_S
from tests.waiting import finish_within


def processes_of(folder: Path) -> list[str]:
    """Return command lines of processes that name a folder."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in line and int(process.name) != os.getpid():
            commands.append(line.replace(b"\0", b" ").decode())
    return commands


def hang(podman_storage: PodmanStorage, word: str) -> None:
    """Check the leftovers of a container if runc hangs in one command only."""
    program, sleeps = (podman_storage.folder / name for name in ("runc-that-hangs", "sleeps"))
    program.write_text(
        f'#!/bin/sh\nfor word in "$@"; do [ "$word" != {word} ] || exec {sleeps}; done\nexec runc "$@"\n'
    )
    sleeps.write_text("#!/bin/sh\nwhile :; do sleep 1; done\n")
    for each in (program, sleeps):
        each.chmod(0o755)

    async def use(runtime: Runtime) -> None:
        image = (await runtime.pull(podman_storage.image)).digest
        order = ContainerOrder(name="c1", labels={"millrace.node": "n1"}, image=image, command=("sleep", "60"))
        made = await runtime.create(order)
        await runtime.start_container(made)
        await (await runtime.exec(made, ("true",))).close()
        await runtime.list("n1")

    async def main() -> None:
        folder = podman_storage.folder / "runtime"
        folders = HostFolders(images=podman_storage.image_folders)
        runtime = RuncRuntime(folder, program=str(program), folders=folders, deadline_s=2)
        await runtime.start()
        with pytest.raises(RuntimeTimeoutError, match=rf"^runc[^\n]*: {word}[^\n]*: no answer within 2 s$"):
            await use(runtime)
        for record in runtime._records.all():
            await runtime.remove(record.id)
        assert list((folder / "containers").iterdir()) == []
        assert [line for line in processes_of(podman_storage.folder) if "sleeps" in line] == []

    asyncio.run(finish_within(main(), DEADLINE_S))
