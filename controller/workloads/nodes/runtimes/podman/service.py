"""The process `podman system service`, started if no socket of a running one is named."""

from __future__ import annotations

import asyncio
import secrets
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from controller.workloads.nodes.runtimes.errors import RuntimeAwayError, RuntimeTimeoutError
from controller.workloads.nodes.runtimes.processes import child_environment, one_line
from dataplane.local.deadline import local_timeout

_LOOK_S: Final = 0.02
_IDLE_S: Final = 30
"""Idle time after which a service ends by itself, so that a killed manager leaves none."""
_STOP_S: Final = 5.0
_SAID_BYTES: Final = 4096


class PodmanService:
    """Our own service, behind a socket that only this user may open; conmon keeps containers without it."""

    def __init__(self, program: str, folder: Path, environment: Mapping[str, str], deadline_s: float) -> None:
        # An earlier service, whose manager was killed, removes its socket's path when it ends: never ours.
        self.socket = folder / f"podman-{secrets.token_hex(3)}.sock"
        self._program, self._deadline_s = program, deadline_s
        self._environment = child_environment(environment)
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._said = b""
        self._starting = asyncio.Lock()

    async def ensure(self) -> None:
        """Start it unless it runs; return once its socket is there."""
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                await self._start()

    async def renew(self, was: Process | None) -> None:
        """Restart it in place of a process that takes no requests, unless that has been done already."""
        async with self._starting:
            if self._process is was:
                await self.close()
                await self._start()

    @property
    def process(self) -> Process | None:
        """The process that runs now, as far as known."""
        return self._process

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._reading is not None:
            self._reading.cancel()
        self.socket.unlink(missing_ok=True)

    async def _start(self) -> None:
        self.socket.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in self.socket.parent.glob("podman-*.sock"):
            left.unlink(missing_ok=True)
        command = (self._program, "system", "service", "--time", str(_IDLE_S), f"unix://{self.socket}")
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                # Its conmon leaves a file `oom` in its working folder.
                cwd=self.socket.parent,
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=PIPE,
                env=self._environment,
                start_new_session=True,
                umask=0o077,
            )
        except OSError as error:
            raise RuntimeAwayError(
                f"podman: {self._program} cannot be started: {(error.strerror or '').lower()}"
            ) from error
        self._process, self._said = process, b""
        # It would end by SIGPIPE, or block, if its warnings were not read.
        self._reading = asyncio.create_task(self._read(process))
        try:
            async with local_timeout(self._deadline_s, "podman: start of its service"):
                await self._until_ready(process)
        except TimeoutError as error:
            await self.close()
            raise RuntimeTimeoutError("podman", "start of its service", self._deadline_s) from error

    async def _until_ready(self, process: Process) -> None:
        assert self._reading is not None
        while not self.socket.exists():
            if process.returncode is not None:
                await self._reading
                message = one_line(self._said.decode("utf-8", "replace"))
                raise RuntimeAwayError(f"podman: its service exits at once: {message or process.returncode}")
            await asyncio.sleep(_LOOK_S)

    async def _read(self, process: Process) -> None:
        """Read its messages, and keep the end of them."""
        assert process.stderr is not None
        while piece := await process.stderr.read(_SAID_BYTES):
            self._said = (self._said + piece)[-_SAID_BYTES:]
