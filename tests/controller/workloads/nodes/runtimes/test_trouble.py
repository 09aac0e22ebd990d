"""Runtimes that hang, die or run out of space, and managers that die: one line each, and no leftovers."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.workloads.nodes.runtimes.base import ContainerOrder, ContainerPhase, Ended, Runtime
from controller.workloads.nodes.runtimes.errors import ContainerError, ImageError, RuntimeAwayError, RuntimeTimeoutError
from controller.workloads.nodes.runtimes.podman import PodmanRuntime
from controller.workloads.nodes.runtimes.runc import RuncRuntime
from controller.workloads.nodes.runtimes.settings import RuntimeKind
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.controller.workloads.nodes.runtimes.hanging_runc import hang
from tests.controller.workloads.nodes.runtimes.real_containers import (
    DEADLINE_S,
    container,
    logged,
    only,
    started,
    until_ended,
)
from tests.waiting import finish_within

pytestmark = [pytest.mark.root, pytest.mark.containers]


def test_containers_outlive_the_runtime_and_are_adopted(kind: RuntimeKind, podman_storage: PodmanStorage) -> None:
    async def main() -> None:
        async with started(kind, podman_storage) as first:
            order = ContainerOrder(
                name="c1",
                labels={"millrace.node": "n1", "millrace.epoch": "3"},
                image=(await first.pull(podman_storage.image)).digest,
                command=(
                    "/bin/sh",
                    "-c",
                    "echo before; while ! test -e /tmp/go; do sleep 0.02; done; echo after; exit 5",
                ),
            )
            made = await first.create(order)
            await first.start_container(made)
            before = await only(first)
        assert before.pid is not None
        async with started(kind, podman_storage) as second:
            assert await only(second) == before
            ended = asyncio.ensure_future(anext(second.events()))
            await asyncio.sleep(0.3)
            Path(f"/proc/{before.pid}/root/tmp/go").touch()
            assert await ended == Ended(made)
            assert (await until_ended(second)).exit_code == 5
            assert await logged(second, made) == b"before\nafter\n"
            await second.remove(made)

    asyncio.run(finish_within(main(), DEADLINE_S))


def test_a_service_that_died_is_started_again(podman_storage: PodmanStorage) -> None:
    async def main() -> None:
        async with (
            started(RuntimeKind.PODMAN, podman_storage) as runtime,
            container(runtime, podman_storage, "sleep 60"),
        ):
            assert isinstance(runtime, PodmanRuntime)
            (socket,) = (podman_storage.folder / "runtime").glob("podman-*.sock")
            assert stat.S_IMODE(socket.stat().st_mode) & 0o077 == 0
            assert stat.S_IMODE((podman_storage.folder / "runtime").stat().st_mode) == 0o700
            service = runtime._service
            assert service is not None
            assert service.process is not None
            assert Path(f"/proc/{service.process.pid}/cwd").readlink() == podman_storage.folder / "runtime"
            os.kill(service.process.pid, signal.SIGKILL)
            states = await asyncio.gather(*(only(runtime) for _ in range(4)))
            assert {state.phase for state in states} == {ContainerPhase.RUNNING}

    asyncio.run(finish_within(main(), DEADLINE_S))


def test_a_podman_that_never_answers(tmp_path: Path) -> None:
    """A socket that accepts connections and stays silent."""

    async def main() -> None:
        connections = list[asyncio.StreamWriter]()
        server = await asyncio.start_unix_server(lambda _, writer: connections.append(writer), str(tmp_path / "s"))
        async with server:
            runtime = PodmanRuntime(tmp_path, socket=tmp_path / "s", deadline_s=0.3)
            for asked in (runtime.start(), runtime.list("n1"), runtime.stop("abc", 0), anext(runtime.events())):
                with pytest.raises(RuntimeTimeoutError, match=r"^podman: [^\n]*: no answer within 0.3 s$"):
                    await asked
            await runtime.close()
            for writer in connections:
                writer.close()

    asyncio.run(finish_within(main(), DEADLINE_S))


def test_socket_without_a_listener(tmp_path: Path) -> None:
    async def main() -> None:
        runtime = PodmanRuntime(tmp_path, socket=tmp_path / "nothing", deadline_s=1)
        with pytest.raises(RuntimeAwayError, match=r"^podman: version: its service is away: [^\n]*$"):
            await runtime.start()
        await runtime.close()
        runtime = PodmanRuntime(tmp_path, program="no-podman-here", deadline_s=1)
        with pytest.raises(RuntimeAwayError, match="no-podman-here cannot be started: no such file"):
            await runtime.start()
        await runtime.close()
        with pytest.raises(RuntimeAwayError, match="it cannot be started: no such file"):
            await RuncRuntime(tmp_path / "r", program="no-runc-here").start()

    asyncio.run(finish_within(main(), DEADLINE_S))


def test_a_runc_that_never_ends(podman_storage: PodmanStorage) -> None:
    """Other commands: tests/soak/containers.py."""
    hang(podman_storage, "create")


@pytest.fixture
def small_disk(podman_storage: PodmanStorage) -> Iterator[Path]:
    """A file system of 1 MB for an image of 2."""
    folder = podman_storage.folder / "runtime"
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_with_runc(podman_storage: PodmanStorage, small_disk: Path) -> None:
    async def main() -> None:
        async with started(RuntimeKind.RUNC, podman_storage) as runtime:
            with pytest.raises(ImageError, match=r"^image [^\n]*no space left on device[^\n]*$"):
                await runtime.pull(podman_storage.image)
            assert await runtime.images() == ()
            assert list((small_disk / "images").iterdir()) == []

    asyncio.run(finish_within(main(), DEADLINE_S))


def test_a_full_disk_with_podman(podman_storage: PodmanStorage) -> None:
    graph = podman_storage.folder / "graph"
    graph.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(graph)], check=True)

    async def main() -> None:
        async with started(RuntimeKind.PODMAN, podman_storage) as runtime:
            with pytest.raises(ImageError, match=r"^image [^\n]*no space left on device[^\n]*$"):
                await runtime.pull(podman_storage.image)
            assert await runtime.images() == ()

    try:
        asyncio.run(finish_within(main(), DEADLINE_S))
    finally:
        subprocess.run(["umount", "--lazy", str(graph)], check=True)


def test_no_room_for_a_container(podman_storage: PodmanStorage) -> None:
    """The disk fills up after the image is pulled."""

    async def main() -> None:
        async with started(RuntimeKind.RUNC, podman_storage) as runtime:
            image = (await runtime.pull(podman_storage.image)).digest
            containers = podman_storage.folder / "runtime" / "containers"
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", str(containers)], check=True)
            try:
                with pytest.raises(ContainerError, match=r"^runc: [^\n]*no space left on device$"):
                    await runtime.create(ContainerOrder(name="c1", image=image, command=("true",)))
                assert list(containers.iterdir()) == []
                assert list((podman_storage.folder / "runtime" / "runc").iterdir()) == []
            finally:
                subprocess.run(["umount", "--lazy", str(containers)], check=True)

    asyncio.run(finish_within(main(), DEADLINE_S))


def test_half_made_containers_of_a_dead_manager_go(podman_storage: PodmanStorage) -> None:
    async def main() -> None:
        async with started(RuntimeKind.RUNC, podman_storage) as runtime:
            assert isinstance(runtime, RuncRuntime)
            async with container(runtime, podman_storage, "sleep 60") as whole:
                half = await _made(runtime, podman_storage)
                (runtime._records.path(half) / "record.json").unlink()
                async with started(RuntimeKind.RUNC, podman_storage) as second:
                    assert [state.id for state in await second.list("n1")] == [whole]
                folders = (podman_storage.folder / "runtime" / "containers").iterdir()
                assert [folder.name for folder in folders] == [whole]

    asyncio.run(finish_within(main(), DEADLINE_S))


async def _made(runtime: Runtime, storage: PodmanStorage) -> str:
    image = (await runtime.pull(storage.image)).digest
    order = ContainerOrder(name="half", labels={"millrace.node": "n1"}, image=image, command=("sleep", "60"))
    return await runtime.create(order)
