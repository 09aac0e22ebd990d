"""Containers created by runc under conmon, which stays with each: it writes the log, and the exit code at the end.

conmon forks, runs `runc create`, and reports the container's first process, or the failure, as JSON on a pipe whose
number is in _OCI_SYNCPIPE. It leads a process group that contains runc and runc's children. Source: conmon(8), conmon's
src/conmon.c; as podman and CRI-O use it.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.workloads.nodes.runtimes.errors import ContainerError, RuntimeAwayError, RuntimeTimeoutError
from controller.workloads.nodes.runtimes.logs import LOG_BYTES
from controller.workloads.nodes.runtimes.processes import child_environment, one_line
from dataplane.local.deadline import local_timeout
from dataplane.local.programs import kill_group


@dataclass(frozen=True, slots=True)
class Conmon:
    """Configuration of conmon: the programs, runc's folder, the folder of exit files, variables, and a deadline."""

    program: str
    runc: str
    root: Path
    exits: Path
    environment: Mapping[str, str]
    deadline_s: float

    def command(self, container: str, folder: Path) -> tuple[str, ...]:
        """Return the command that creates the container of the bundle in a folder."""
        return (
            *(self.program, "--api-version", "1", "--cid", container, "--cuuid", container, "--name", container),
            *("--runtime", self.runc, "--runtime-arg", "--root", "--runtime-arg", str(self.root)),
            *("--bundle", str(folder), "--persist-dir", str(folder), "--exit-dir", str(self.exits)),
            *("--container-pidfile", str(folder / "pid"), "--conmon-pidfile", str(folder / "conmon.pid")),
            *("--log-path", f"k8s-file:{folder / 'log'}", "--log-size-max", str(LOG_BYTES)),
            *("--full-attach", "--log-level", "error"),
        )

    async def create(self, container: str, folder: Path) -> int:
        """Create a container; return its first process, which waits for its start. A failure leaves nothing."""
        doing = f"create {container[:12]}"
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                process = await asyncio.create_subprocess_exec(
                    *self.command(container, folder),
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    stderr=DEVNULL,
                    env=child_environment({**self.environment, "_OCI_SYNCPIPE": str(writing)}),
                    pass_fds=(writing,),
                    # It leaves a file `oom` in its working folder, next to the one in its persist folder.
                    cwd=folder,
                    start_new_session=True,
                )
            except OSError as error:
                cause = (error.strerror or "").lower()
                raise RuntimeAwayError(f"conmon: {doing}: {self.program} cannot be started: {cause}") from error
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        try:
            async with local_timeout(self.deadline_s, f"runc: {doing}"):
                answer = await _read_all(reading)
                await process.wait()
        except BaseException as error:
            self.end(folder)
            if process.returncode is None:
                kill_group(process.pid)
                await process.wait()
            if isinstance(error, TimeoutError):
                raise RuntimeTimeoutError("runc", doing, self.deadline_s) from error
            raise
        return _process_of(answer, doing)

    @staticmethod
    def end(folder: Path) -> None:
        """Kill the conmon of a container that is not created yet, and the runc below it."""
        try:
            leader = int((folder / "conmon.pid").read_text())
        except (OSError, ValueError):
            return
        if str(folder).encode() in _command_line(leader):
            kill_group(leader)


async def _read_all(descriptor: int) -> bytes:
    """Return a pipe's content until a line is complete or all writers are gone; closes it."""
    reader = asyncio.StreamReader()
    opened = os.fdopen(descriptor, "rb", buffering=0)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_NONBLOCK)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), opened)
    try:
        return await reader.readline()
    finally:
        transport.close()


def _process_of(answer: bytes, doing: str) -> int:
    try:
        told = json.loads(answer)
        process, message = int(told["data"]), str(told.get("message") or "no reason given")
    except (ValueError, KeyError, TypeError) as error:
        text = one_line(answer.decode("utf-8", "replace"))
        raise ContainerError(f"conmon: {doing}: it ended without reporting a process: {text}") from error
    if process <= 0:
        raise ContainerError(f"runc: {doing}: {one_line(message)}")
    return process


def _command_line(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
