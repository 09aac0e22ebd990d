"""Real programs on units of a quarter of a core: how much faster more units make them, measured under CPU quotas.

A unit is 25 ms of CPU time in each 100 ms (cgroup quota), as centres' units of less than a core are; programs run in
one process or two. Needs root and a writable control group of the controller cpu, version 1 or 2.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

COUNTS: Final = (1, 2, 3, 4, 6, 8)
CORES_MILLI: Final = 250
_PERIOD_US: Final = 100_000
_LIMIT_S: Final = 120.0

_ALONE: Final = """
import numpy, time
def work(parts):
    a = numpy.random.default_rng(1).random((160, 160))
    for _ in range(parts):
        a = a @ a
        a /= numpy.abs(a).max()
"""
_PROGRAMS: Final = {
    # About 0.8 s of CPU time each, whatever the number of processes.
    "one process": "work(4000)",
    "two processes": "fork(lambda: work(2000))",
    "a third alone, then two processes": "work(1333); fork(lambda: work(1333))",
    "two processes that wait as long as they work": "fork(lambda: [(work(250), time.sleep(0.05)) for _ in range(8)])",
    "one process that waits twice as long as it works": "[(work(500), time.sleep(0.2)) for _ in range(8)]",
}
_FORK: Final = """
import os, sys
def fork(part):
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            part()
            os._exit(0)
        children.append(child)
    for child in children:
        if os.waitpid(child, 0)[1]:
            sys.exit(1)
work(1)
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.readline()
"""


def measured(repetitions: int) -> dict[str, dict[int, list[float]]]:
    """Return run times by program and number of units; raise OSError where no control group can be made."""
    with _group() as group:
        return {
            name: {units: [_run(group, text, units) for _ in range(repetitions)] for units in COUNTS}
            for name, text in _PROGRAMS.items()
        }


@contextmanager
def _group() -> Iterator[Path]:
    """Give a control group of our own."""
    top = next((folder for folder in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")) if _has_quota(folder)), None)
    if top is None:
        raise OSError("no controller for CPU quotas")
    group = top / f"millrace-scaling-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        group.rmdir()


def _has_quota(top: Path) -> bool:
    is_first = (top / "cpu.cfs_quota_us").exists() or (top / "cpu.shares").exists()
    is_second = "cpu" in _words(top / "cgroup.subtree_control")
    return os.access(top, os.W_OK) and (is_first or is_second)


def _words(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").split() if file.exists() else []


def _run(group: Path, text: str, units: int) -> float:
    """Return the run time of a program on this many units, without its start."""
    quota_us = _PERIOD_US * CORES_MILLI * units // 1000
    if (group / "cpu.cfs_quota_us").exists():
        (group / "cpu.cfs_quota_us").write_text(str(quota_us), encoding="utf-8")
    else:
        (group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}", encoding="utf-8")
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-c", f"{_ALONE}{_FORK}{text}"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **single}
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the program did not begin: {text}")
        (group / "cgroup.procs").write_text(str(process.pid), encoding="utf-8")
        begin_s = time.perf_counter()
        process.stdin.write("\n")
        process.stdin.flush()
        code = process.wait(_LIMIT_S)
        took_s = time.perf_counter() - begin_s
    if code:
        raise RuntimeError(f"the program ended with {code}: {text}")
    return took_s
