"""Processes that may not be our children: noticing their ends, and killing all of a job's."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from dataplane.cgroups import group_at, kill_in

_KILLING_S: Final = 5.0
_POLL_S: Final = 0.01


class Watched:
    """A process whose end is reported once to `on_end`; confined to one event loop."""

    def __init__(self, process: int, on_end: Callable[[], None]) -> None:
        self.process = process
        self._loop = asyncio.get_running_loop()
        try:
            self._descriptor = os.pidfd_open(process)
        except ProcessLookupError:
            self._descriptor = -1
            self._loop.call_soon(on_end)
        else:
            self._loop.add_reader(self._descriptor, on_end)

    def close(self) -> None:
        """Stop watching; reap it if it was our child and has ended."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        with suppress(ChildProcessError):
            os.waitpid(self.process, os.WNOHANG)


def end_all_of(marker: str, group: str | None) -> bool:
    """Kill all processes in a control group, and those with a word in their environment; return whether none is left.

    A process that has wiped its environment, and is in no control group, is not found.
    """
    due_s = time.monotonic() + _KILLING_S
    while True:
        is_left = group is not None and kill_in(group_at(group))
        for process in _with(marker.encode()):
            is_left = True
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if not is_left or time.monotonic() > due_s:
            return not is_left
        time.sleep(_POLL_S)


def _with(marker: bytes) -> list[int]:
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if marker in (entry / "environ").read_bytes().split(b"\0"):
                    processes.append(int(entry.name))
    return processes
