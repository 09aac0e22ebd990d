"""Runs by a warm process for a runner: the same results, and no process outlives its client."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.probing.running.warming.handing import VARIABLE
from tests.waiting import HANG_S, wait_until

KERNELS = """
import json, os, socket, time
import numpy as np

class Kernel:
    def __init__(self, sizes): self.sizes = sizes
    def accuracy(self, output): return 0.0
    def close(self): pass

class Where(Kernel):
    def run(self, inputs): return float(os.getppid())

class Crashing(Kernel):
    def run(self, inputs): os.abort()

class Hanging(Kernel):
    def run(self, inputs):
        with open("pid", "w") as file: file.write(str(os.getpid()))
        time.sleep(600)
        return 0.0

class Placed(Kernel):
    def run(self, inputs):
        with open("placed", "w") as file:
            devices = [name for _, name in socket.if_nameindex()]
            priority = os.getpriority(os.PRIO_PROCESS, 0)
            json.dump({"devices": devices, "priority": priority, "cores": sorted(os.sched_getaffinity(0))}, file)
        return 0.0

def placed(sizes, seed): return Placed(sizes)
def where(sizes, seed): return Where(sizes)
def crashing(sizes, seed): return Crashing(sizes)
def hanging(sizes, seed): return Hanging(sizes)
"""
ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with kernels and probe tasks."""
    folder = tmp_path_factory.mktemp("warm")
    (folder / "warm_kernels.py").write_text(KERNELS)
    for name in ("where", "crashing", "hanging", "placed"):
        entry = {"device": "cpu", "library": "python", "entry": f"warm_kernels:{name}"}
        use: dict[str, object] = {
            "name": name,
            "kernel": name,
            "version": 1,
            "sizes": {},
            "repetitions": 1,
            "executions": 1,
        }
        probe = {"millrace": 1, "name": name, "category": "hpc"}
        uses = [use | {"implementation": entry, "tolerance": 1e-9}]
        (folder / f"{name}.json").write_text(json.dumps(probe | {"uses": uses}))
    return folder


@pytest.fixture(scope="module")
def warm(folder: Path) -> Iterator[Path]:
    """Return the socket of a warm process."""
    path = folder / "warm.sock"
    words = [sys.executable, "-m", "controller.probing.running.warm", str(path)]
    with subprocess.Popen(words, env=_environment(folder), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("warm after")
        yield path
        process.kill()


def _environment(folder: Path, **more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{ROOT}:{folder}", "OPENBLAS_NUM_THREADS": "1"} | more


def _runner(folder: Path, probe: str, path: Path | str) -> subprocess.Popen[str]:
    words = ["-m", "controller.probing.running", f"{probe}.json", "--at-least-s", "0"]
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env=_environment(folder, **{VARIABLE: str(path)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_result_comes_by_the_clients_streams(folder: Path, warm: Path) -> None:
    output, errors = _runner(folder, "where", warm).communicate(timeout=HANG_S)
    result = json.loads(output)
    assert (result["outcome"], errors) == ("succeeded", "")
    assert result["start_s"] > 0


def test_exit_codes_are_those_of_the_run(folder: Path, warm: Path) -> None:
    process = _runner(folder, "crashing", warm)
    output, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 10
    assert "SIGABRT" in errors
    assert json.loads(output)["outcome"] == "crash"
    missing = _runner(folder, "missing", warm)
    _, errors = missing.communicate(timeout=HANG_S)
    assert (missing.returncode, errors) == (2, "probe: missing.json: No such file or directory\n")


@pytest.mark.parametrize("path", ["", "no.sock"])
def test_runner_starts_without_a_warm_process(folder: Path, path: str) -> None:
    process = _runner(folder, "where", path)
    output, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 0
    assert json.loads(output)["outcome"] == "succeeded"


def test_run_ends_with_its_client(folder: Path, warm: Path) -> None:
    mark = folder / "pid"
    mark.unlink(missing_ok=True)
    process = _runner(folder, "hanging", warm)
    wait_until(lambda: mark.exists() and mark.read_text() != "", "the kernel does not start")
    watched = os.pidfd_open(int(mark.read_text()))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=HANG_S)
    assert select.select([watched], [], [], 60)[0], "the fork has outlived its client"
    os.close(watched)


def test_warm_runs_nothing_for_a_client_that_gave_up(folder: Path, warm: Path) -> None:
    """On a busy machine an order may wait longer than its client, which then runs the probe itself."""
    mark = folder / "pid"
    mark.unlink(missing_ok=True)
    words = ["hanging.json", "--at-least-s", "0"]
    order = {
        "arguments": words,
        "environment": _environment(folder),
        "folder": str(folder),
        "path": [],
        "started_s": time.monotonic(),
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(warm))
        process, _, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        os.kill(process, signal.SIGSTOP)
        with Path(os.devnull).open("r+") as streams:
            socket.send_fds(client, [json.dumps(order).encode()], [streams.fileno()] * 3)
    os.kill(process, signal.SIGCONT)
    output, _ = _runner(folder, "where", warm).communicate(timeout=HANG_S)
    assert json.loads(output)["outcome"] == "succeeded"
    assert not mark.exists()


@pytest.mark.root
def test_fork_is_in_the_clients_place(folder: Path, warm: Path) -> None:
    words = ["unshare", "--net", "nice", "-n", "5", "taskset", "-c", "0", sys.executable, "-m"]
    words += ["controller.probing.running", "placed.json", "--at-least-s", "0"]
    environment = _environment(folder, **{VARIABLE: str(warm)})
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    where = json.loads((folder / "placed").read_text())
    priority = min(os.getpriority(os.PRIO_PROCESS, 0) + 5, 19)
    assert where == {"devices": ["lo"], "priority": priority, "cores": [0]}
