"""Runtimes' programs, run with a deadline, and the killing of containers' processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from controller.workloads.nodes.runtimes.errors import ContainerError, RuntimeAwayError, RuntimeTimeoutError
from dataplane.cgroups import Group, group_of
from dataplane.local import programs
from dataplane.local.deadline import local_timeout

T = TypeVar("T")

_LOGRUS: Final = re.compile(r'time=(?:"[^"]*"|\S+) level=\w+ msg=("(?:[^"\\]|\\.)*"|\S+)')
_OURS: Final = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})
_LONGEST: Final = 400
"""Most characters kept of a program's message."""


def child_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a runtime's program: ours without systemd's variables, and `more`.

    Otherwise runc would delay a container's start until a message to NOTIFY_SOCKET, and pass that to the container.
    """
    return {name: value for name, value in os.environ.items() if name not in _OURS} | dict(more or {})


async def run_program(
    command: Sequence[str],
    doing: str,
    *,
    deadline_s: float,
    environment: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> bytes:
    """Return a program's standard output; raise ContainerError with its last message if it fails.

    It gets its own process group, which is killed when the deadline passes or the caller is cancelled.
    """
    name = os.path.basename(command[0])  # noqa: PTH119 - a word of a command
    try:
        ended = await programs.run(
            command,
            deadline_s=deadline_s,
            doing=f"{name}: {doing}",
            environment=child_environment(environment),
            pass_fds=pass_fds,
        )
    except TimeoutError as error:  # an OSError, too
        raise RuntimeTimeoutError(name, doing, deadline_s) from error
    except OSError as error:
        raise RuntimeAwayError(f"{name}: {doing}: it cannot be started: {(error.strerror or '').lower()}") from error
    if ended.exit_code:
        raise ContainerError(f"{name}: {doing}: {one_line(ended.said.decode('utf-8', 'replace')) or ended.exit_code}")
    return ended.output


async def in_thread(work: Callable[[], T], runtime: str, doing: str, deadline_s: float) -> T:
    """Return the result of a function that may wait for a disk; raise RuntimeTimeoutError after the deadline.

    A thread that hangs in the kernel is left there; most likely a network disk has gone.
    """
    try:
        async with local_timeout(deadline_s, f"{runtime}: {doing}"):
            return await asyncio.to_thread(work)
    except TimeoutError as error:
        raise RuntimeTimeoutError(runtime, doing, deadline_s) from error


def _message(line: str) -> str:
    """Return the message of a logrus line, as runc, podman and skopeo write them; any other line unchanged."""
    if (match := _LOGRUS.match(line)) is None:
        return line
    try:
        return " ".join(str(json.loads(match[1])).split())
    except ValueError:  # a bare word, or Go's escapes that are not JSON's
        return match[1].strip('"')


def kill_member(process: int, group: Group) -> None:
    """Kill a process, if it is (still) in a control group: its number may have been reused."""
    with suppress(OSError):
        descriptor = os.pidfd_open(process)
        try:
            folders = group_of(process=str(process)).folders
            if any(folders.get(name) == folder for name, folder in group.folders.items()):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def one_line(text: str) -> str:
    """Return a program's text as one line of bounded length; only the messages of log lines."""
    line = "; ".join(_message(part.strip()) for part in text.splitlines() if part.strip())
    return line if len(line) <= _LONGEST else f"...{line[-_LONGEST:]}"
