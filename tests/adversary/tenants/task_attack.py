"""What a hostile task tries at a centre whose jobs are processes: run by path, it prints what it could do as JSON.

    python task_attack.py SECRET SOCKET OUTSIDE PROCESS

A file that only the agent may read, a socket that only the agent may open, a folder that all may write into, a process
of the agent.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

_PTRACE_ATTACH = 16


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
    """Trace a process."""
    if ctypes.CDLL(None, use_errno=True).ptrace(_PTRACE_ATTACH, process, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def names(path: str) -> list[str]:
    """Return what is in a folder."""
    return sorted(each.name for each in Path(path).iterdir())


def main(secret: str, server: str, outside: str, process: str) -> dict[str, object]:
    """Try everything."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    return {
        "user": os.getuid(),
        "groups": os.getgroups(),
        "capabilities": [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")],
        "no_new_privs": status["NoNewPrivs"],
        "namespaces": {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("mnt", "pid", "ipc")},
        "processes": sorted(int(name) for name in names("/proc") if name.isdecimal()),
        "scratch": [names(path) for path in ("/tmp", "/var/tmp", "/dev/shm", "/run")],
        "beside": names(".."),
        "reads the secret": tried(lambda: Path(secret).read_bytes()),
        "opens the socket": tried(lambda: connect(server)),
        "writes outside": tried(lambda: Path(outside, "mine").write_text("x")),
        "writes a group": tried(lambda: Path("/sys/fs/cgroup/mine").mkdir()),
        "signals the agent": int(process) != os.getpid() and tried(lambda: os.kill(int(process), 0)),
        "traces the agent": tried(lambda: trace(int(process))),
        "traces the one above": tried(lambda: trace(1)),
        "reads the one above": tried(lambda: Path("/proc/1/environ").read_bytes()),
        "becomes root": tried(lambda: os.setuid(0)),
        "writes its own": tried(lambda: Path("mine").write_text("x")),
        "writes scratch": tried(lambda: Path("/tmp/mine").write_text("x")),
    }


if __name__ == "__main__":
    json.dump(main(*sys.argv[1:]), sys.stdout)
