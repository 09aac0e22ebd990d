"""State of a runc container from runc, its conmon and its folder; without runc and root."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.workloads.nodes.runtimes.base import ContainerPhase
from controller.workloads.nodes.runtimes.runc.records import Record
from controller.workloads.nodes.runtimes.runc.runtime import RuncRuntime

CONTAINER = "c0ffee" * 8
RECORD = Record(id=CONTAINER, name="main", labels={}, cgroup="none-of-its-own")
STOPPED = {CONTAINER: {"status": "stopped", "pid": 0}}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a container whose conmon, judging by its command line, is a sleeping process."""
    path = tmp_path / "containers" / CONTAINER
    path.mkdir(parents=True)
    conmon = subprocess.Popen([sys.executable, "-c", "input()", CONTAINER], stdin=subprocess.PIPE)
    # A process's name changes slightly after its program has started.
    while CONTAINER.encode() not in Path(f"/proc/{conmon.pid}/cmdline").read_bytes():
        pass
    (path / "conmon.pid").write_text(str(conmon.pid))
    yield path
    conmon.kill()
    conmon.communicate()


def test_stopped_container_runs_until_conmon_reports_its_exit(tmp_path: Path, folder: Path) -> None:
    runtime = RuncRuntime(tmp_path)
    state = runtime._state(RECORD, STOPPED)
    assert (state.phase, state.pid, state.exit_code) == (ContainerPhase.RUNNING, None, None)
    (folder / "exit").write_text("3")
    state = runtime._state(RECORD, STOPPED)
    assert (state.phase, state.exit_code) == (ContainerPhase.EXITED, 3)


def test_container_without_conmon_exited_with_an_unknown_code(tmp_path: Path, folder: Path) -> None:
    (folder / "conmon.pid").unlink()
    state = RuncRuntime(tmp_path)._state(RECORD, STOPPED)
    assert (state.phase, state.exit_code) == (ContainerPhase.EXITED, None)
