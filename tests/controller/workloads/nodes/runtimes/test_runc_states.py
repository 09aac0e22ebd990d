"""State of a runc container, from runc, its conmon and its folder; these tests need neither runc nor root."""

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
    """The folder of a container, whose conmon, as far as its words say, is a process that waits."""
    path = tmp_path / "containers" / CONTAINER
    path.mkdir(parents=True)
    conmon = subprocess.Popen([sys.executable, "-c", "input()", CONTAINER], stdin=subprocess.PIPE)
    # What a process is called is there a moment after its program has begun.
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
