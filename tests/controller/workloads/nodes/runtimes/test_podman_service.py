"""Podman's service outlives the processes that started it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from controller.workloads.nodes.runtimes.podman.runtime import PodmanRuntime
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.waiting import finish_within, until

pytestmark = [pytest.mark.root, pytest.mark.containers]


def test_old_service_leaves_its_successors_socket(tmp_path: Path, podman_storage: PodmanStorage) -> None:
    async def main() -> None:
        first = PodmanRuntime(tmp_path / "state", environment=podman_storage.environment)
        second = PodmanRuntime(tmp_path / "state", environment=podman_storage.environment)
        await first.start()
        (socket,) = (tmp_path / "state").glob("podman-*.sock")
        await second.start()
        (successor,) = (tmp_path / "state").glob("podman-*.sock")
        assert successor != socket
        for process in Path("/proc").glob("[0-9]*"):
            if str(socket).encode() in _command_of(process):
                await _end(process)
        assert await second.version()
        await second.close()
        await first.close()
        assert list((tmp_path / "state").glob("*.sock")) == []

    asyncio.run(finish_within(main(), 60))


async def _end(process: Path) -> None:
    os.kill(int(process.name), signal.SIGTERM)
    await until(lambda: _command_of(process) == b"", "podman's service does not end")


def _command_of(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
