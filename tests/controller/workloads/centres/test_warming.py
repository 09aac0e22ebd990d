"""An agent's warm process, which is replaced when it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import sys
from pathlib import Path

from controller.workloads.centres.programs import python_path
from controller.workloads.centres.settings import CentreSettings
from controller.workloads.centres.warming import Warmer
from tests.waiting import finish_within, until

WAIT_S = 60.0


def process_at(path: str) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(path)
        return int(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def test_dead_warm_process_is_replaced_and_ends_with_its_agent(tmp_path: Path) -> None:
    path = tmp_path / "warm.sock"
    environment = {"PATH": os.defpath} | python_path(CentreSettings(centre="c", state="s"))
    warmer = Warmer(sys.executable, ("json",), path, environment)

    async def ready() -> int:
        await until(lambda: warmer.environment != {}, "no warm process starts")
        return process_at(warmer.environment["MILLRACE_WARM"])

    async def main() -> None:
        running = asyncio.create_task(warmer.run())
        first = await ready()
        os.kill(first, signal.SIGKILL)
        await until(lambda: warmer.environment == {}, "the warm process's end is not noticed")
        second = await ready()
        assert second != first
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert warmer.environment == {}
        assert not Path(f"/proc/{second}").exists()

    asyncio.run(finish_within(main(), WAIT_S))
