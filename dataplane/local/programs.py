"""Programs run with a deadline, each in its own process group, which is killed when the deadline passes."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from dataplane.local.deadline import local_timeout


@dataclass(frozen=True, slots=True)
class Ended:
    """Result of a program that has ended: its exit code (-N: signal N killed it), its standard output and error."""

    exit_code: int
    output: bytes
    said: bytes


async def run(
    command: Sequence[str],
    *,
    deadline_s: float,
    doing: str,
    environment: Mapping[str, str] | None = None,
    sent: bytes | None = None,
    pass_fds: Sequence[int] = (),
) -> Ended:
    """Run a program to its end, with `sent` on its standard input; `environment` None is ours.

    Raises OSError if it cannot be started and TimeoutError after the deadline, which a busy machine stretches
    (`local_deadline`; `doing` is for its line). Its group is killed then, and when the caller is cancelled.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=DEVNULL if sent is None else PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=environment,
        start_new_session=True,
        pass_fds=pass_fds,
    )
    try:
        async with local_timeout(deadline_s, doing):
            output, errors = await process.communicate(sent)
    finally:
        close_pipes(process)
        await end_group(process)
    return Ended(process.returncode or 0, output, errors)


async def end_group(process: Process) -> None:
    """Kill a process that leads a group, and the group, unless it has ended."""
    if process.returncode is None:
        kill_group(process.pid)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def close_pipes(process: Process) -> None:
    """Close our ends of a process's pipes: waiting for it would otherwise require reading them to the end."""
    transport: asyncio.SubprocessTransport = process._transport  # type: ignore[attr-defined]  # noqa: SLF001 - no other way
    for number in (0, 1, 2):
        if (pipe := transport.get_pipe_transport(number)) is not None:
            pipe.close()


def kill_group(leader: int) -> None:
    """Kill a process group; a missing one is fine."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
