"""Kill all processes of control groups, version 1 and 2, and of those below them."""

from __future__ import annotations

import contextlib
import os
import signal
import time

_POLL_S = 0.01
_MONITORS = "conmon"
"""Group within a pod's, next to its containers', for podman's monitors, which report how containers ended.

Pods' groups are directly below the node's, and the names of groups in them are the runtime's, never a user's.
"""


def processes_in(folders: tuple[str, ...]) -> set[int]:
    """Return the processes in control groups and below them, monitors excepted."""
    processes: set[int] = set()
    for top in folders:
        depth = top.rstrip("/").count("/")
        for folder, below, _ in os.walk(top):
            if folder.count("/") - depth == 1 and _MONITORS in below:
                below.remove(_MONITORS)
            processes.update(_members(folder))
    return processes


def kill_all(folders: tuple[str, ...], until_s: float) -> int:
    """Kill until none is left, or CLOCK_MONOTONIC is past `until_s`; return how many were seen.

    A killed process may have started another one meanwhile, so it looks again until there is none.
    """
    seen: set[int] = set()
    while True:
        processes = processes_in(folders)
        seen |= processes
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if not processes or time.monotonic() > until_s:
            return len(seen)
        time.sleep(_POLL_S)


def _members(folder: str) -> list[int]:
    try:
        with open(f"{folder}/cgroup.procs", encoding="ascii") as file:  # noqa: PTH123 - pathlib takes long to load
            return [int(line) for line in file if line.strip().isdecimal() and int(line) > 1]
    except OSError:
        return []  # the group is gone, and its processes with it
