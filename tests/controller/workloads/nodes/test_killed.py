"""The manager as a process with podman's containers, killed by SIGKILL, alone or with the API server."""

from __future__ import annotations

import asyncio
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from controller.apiserver.resources import Pod
from controller.apiserver.resources.pod import Container, Phase, Restart
from controller.workloads.nodes.guard.killing import processes_in
from controller.workloads.nodes.runtimes.settings import RuntimeSettings
from controller.workloads.nodes.state_folder import NodeFolder
from dataplane.cgroup_limits import group_folders, remove_empty
from dataplane.config import document_of
from dataplane.local.deadline import local_timeout
from tests.controller.apiserver.api_server import serving, settings_in
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.controller.workloads.nodes.node_world import World
from tests.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.root, pytest.mark.containers]

_WAIT_S = 90.0
_SLEEPS = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done")


class Process:
    """`millrace node serve` as a process that can be killed and restarted."""

    def __init__(self, folder: Path, settings: object) -> None:
        self._file, self._log = folder / "node.yaml", folder / "node.log"
        self._file.write_text(yaml.safe_dump(document_of(settings)))
        self._process: subprocess.Popen[bytes] | None = None
        self._has_parent = False

    def start(self, *before: str) -> None:
        """Start it, optionally through another program that is killed with it."""
        self._has_parent = bool(before)
        command = [*before, sys.executable, "-m", "controller.apps.cli", "node", "serve", "--settings", str(self._file)]
        with self._log.open("ab") as log:
            environment = {**os.environ, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            if self._has_parent:
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)
            self._process.wait(HANG_S)
            self._process = None


@contextmanager
def node(tmp_path: Path, storage: PodmanStorage, api: str) -> Iterator[Process]:
    """A manager's process; afterwards its guard, its containers and its control groups are gone."""
    runtime = RuntimeSettings(environment=storage.environment, image_folders=storage.image_folders)
    settings = World.settings_of(tmp_path, api, runtime=runtime, report_s=0.2)
    made = Process(tmp_path, settings)
    try:
        yield made
    finally:
        made.kill()
        (Path(settings.state) / "lease").unlink(missing_ok=True)
        guard = Path(settings.state) / "guard.lock"
        wait_until(lambda: not (guard.exists() and _lives(guard)), "the guard outlives its lease's file")
        _end_services(tmp_path)


@asynccontextmanager
async def world_in(tmp_path: Path) -> AsyncIterator[World]:
    (tmp_path / "api").mkdir(exist_ok=True)
    async with local_timeout(_WAIT_S, "a test"), serving(settings_in(tmp_path / "api"), tmp_path / "api") as served:
        yield World(tmp_path, served)


def test_containers_die_with_the_lease_without_manager_and_api(tmp_path: Path, podman_storage: PodmanStorage) -> None:
    lease_s = 2.0

    async def main() -> None:
        async with world_in(tmp_path) as world:
            await world.make_node(lease_s=lease_s)
            with node(tmp_path, podman_storage, world.served.socket) as process:
                process.start()
                await world.until(world.is_ready)
                await world.bind("a", containers=_containers(podman_storage), restart=Restart.NEVER)
                await world.in_phase("a", Phase.RUNNING)
                folders = _groups(tmp_path)
                assert len(processes_in(folders)) >= 1
                process.kill()
                killed = time.monotonic()
                # The last report before its death is over: nothing may run lease_s from now.
                while processes_in(folders):
                    await asyncio.sleep(0.01)
                    assert time.monotonic() < killed + lease_s
                # A restarted manager restarts the pod, whatever the policy: the pod did not end by itself.
                process.start()
                await world.pod_when("a", lambda pod: bool(_ids(pod)) and _restarts(pod) >= 1)
                assert processes_in(folders)
                await _delete(world, "a")
            remove_empty(_group(tmp_path))

    asyncio.run(main())


def test_renewed_lease_and_killed_manager_leave_containers_alone(tmp_path: Path, podman_storage: PodmanStorage) -> None:
    rng = random.Random(15)

    async def main() -> None:
        async with world_in(tmp_path) as world:
            await world.make_node(lease_s=20.0)
            with node(tmp_path, podman_storage, world.served.socket) as process:
                process.start()
                await world.until(world.is_ready)
                for name in ("a", "b"):
                    await world.bind(name, containers=_containers(podman_storage))
                before = {name: _ids(await world.in_phase(name, Phase.RUNNING)) for name in ("a", "b")}
                running = processes_in(_groups(tmp_path))
                for number in range(1):
                    process.kill()
                    last = await world.heartbeat_ns("h1")
                    process.start()
                    await world.bind(f"c{number}", containers=_containers(podman_storage))
                    await asyncio.sleep(rng.uniform(0.2, 1.2))  # killed while it starts, adopts or creates a container
                    process.kill()
                    process.start()
                    await world.in_phase(f"c{number}", Phase.RUNNING)
                    await world.until(lambda after=last: world.is_ready(after_ns=after))  # type: ignore[misc]
                for name, ids in before.items():
                    assert _ids(await world.pod(name)) == ids
                left = _shells(running)
                assert left <= processes_in(_groups(tmp_path))
                listed = _listed(podman_storage)
                assert len(listed) == len(set(listed)) == 3, listed
                for name in ("a", "b", "c0"):
                    await _delete(world, name)
                await world.until(lambda: _none_left(podman_storage))
            remove_empty(_group(tmp_path))

    asyncio.run(main())


def test_a_clock_that_is_off_by_a_day_changes_nothing(tmp_path: Path, podman_storage: PodmanStorage) -> None:
    if shutil.which("faketime") is None:
        pytest.skip("needs faketime: apt install faketime")

    async def main() -> None:
        async with world_in(tmp_path) as world:
            await world.make_node(lease_s=6.0)
            with node(tmp_path, podman_storage, world.served.socket) as process:
                process.start("faketime", "-f", "+1d")
                await world.until(world.is_ready)
                await world.bind("a", containers=_containers(podman_storage))
                pod = await world.in_phase("a", Phase.RUNNING)
                assert pod.status.started_ns is not None
                assert abs(pod.status.started_ns - time.time_ns()) < 60 * 10**9
                begun = time.monotonic()
                while time.monotonic() < begun + 6.5:  # longer than a lease
                    assert processes_in(_groups(tmp_path))
                    await asyncio.sleep(0.05)
                assert _ids(await world.pod("a")) == _ids(pod)
                await _delete(world, "a")
            remove_empty(_group(tmp_path))

    asyncio.run(main())


def _containers(storage: PodmanStorage) -> tuple[Container, ...]:
    return (Container(name="main", image=storage.image, command=_SLEEPS),)


async def _delete(world: World, name: str) -> None:
    await world.client.of(Pod).delete(name)
    await world.until_gone(name)


async def _none_left(storage: PodmanStorage) -> bool:
    return not _listed(storage)


def _ids(pod: Pod) -> tuple[str, ...]:
    return tuple(container.runtime_id for container in pod.status.containers if container.state == "running")


def _restarts(pod: Pod) -> int:
    return pod.status.containers[0].restarts


def _listed(storage: PodmanStorage) -> list[str]:
    """Return the pods of all podman containers."""
    done = subprocess.run(
        ["podman", "ps", "-a", "--format", '{{index .Labels "millrace.pod"}}'],
        env={**os.environ, **storage.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def _group(tmp_path: Path) -> str:
    return f"/millrace/h1-{NodeFolder(tmp_path / 'state-h1', 'h1').identity()}"


def _groups(tmp_path: Path) -> tuple[str, ...]:
    return group_folders(_group(tmp_path))


def _shells(processes: set[int]) -> set[int]:
    """Return the containers' first processes: their children come and go."""
    shells = set()
    for process in processes:
        words = Path(f"/proc/{process}/cmdline")
        if words.exists() and words.read_bytes().startswith(b"sh\0"):
            shells.add(process)
    assert shells
    return shells


def _end_services(folder: Path) -> None:
    """End podman services left by killed managers: they would end by themselves, but later."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[1:3] == [b"system", b"service"] and any(str(folder).encode() in word for word in words):
                descriptor = os.pidfd_open(int(entry.name))
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                select.select([descriptor], [], [], 10)
                os.close(descriptor)


def _lives(lock: Path) -> bool:
    text = lock.read_text().strip()
    return bool(text) and Path(f"/proc/{text}").exists()
