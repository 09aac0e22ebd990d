"""A warm process next to the agent, which forks runners of probes: kept alive, and ended with the agent."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller.probing.running.warming.handing import VARIABLE
from dataplane.local.programs import end_group

LOGGER: Final = logging.getLogger("millrace.centre")
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 60.0
_READY_S: Final = 120.0
_PEER: Final = struct.Struct("3i")
"""struct ucred."""


class Warmer:
    """Keeps a warm process; `environment` holds the probes' variables while there is one."""

    def __init__(self, python: str, modules: Sequence[str], path: Path, environment: Mapping[str, str]) -> None:
        self._command = (python, "-m", "controller.probing.running.warm", str(path), *modules)
        self._path, self._environment = path, environment
        self._is_ready = False

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that make a probe ask the warm process; empty until that is ready: the probe then runs as usual."""
        return {VARIABLE: str(self._path)} if self._is_ready else {}

    async def run(self) -> None:
        """Keep a warm process alive until cancelled."""
        wait_s = _FIRST_WAIT_S
        _end_old(self._path)
        while True:
            try:
                code = await self._once()
            except OSError as error:
                LOGGER.warning("the warm process cannot be started: %s", error)
            else:
                LOGGER.warning("the warm process has ended (%s), starting another in %g s", code, wait_s)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    async def _once(self) -> int | None:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=dict(self._environment),
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            with suppress(TimeoutError):
                async with asyncio.timeout(_READY_S):
                    self._is_ready = bool(await process.stdout.readline())
            if self._is_ready:
                LOGGER.info("the warm process is ready")
                return await process.wait()
            return process.returncode
        finally:
            self._is_ready = False
            await end_group(process)


def _end_old(path: Path) -> None:
    """End the warm process of a killed agent: the one that listens at our address."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return
        process, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if user == os.geteuid():
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
