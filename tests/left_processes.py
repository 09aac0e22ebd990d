"""Processes that a test has left running, such as jobs that outlive their parents."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def kill_those_of(folder: Path) -> None:
    """Kill all processes that work in a folder, or name it on their command line, until there are none."""
    while processes := _those_of(folder):
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def _those_of(folder: Path) -> list[int]:
    processes = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):  # It has ended meanwhile, or is another user's.
            words = (entry / "cmdline").read_bytes()
            works_in = (entry / "cwd").readlink()
            if os.fsencode(folder) in words or works_in.is_relative_to(folder):
                processes.append(int(entry.name))
    return processes


def processes_of_job(job: str) -> list[int]:
    """Return a job's processes by what the local engine writes into their environment; keepers are none of them."""
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if f"MILLRACE_JOB={job}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    processes.append(int(entry.name))
    return processes
