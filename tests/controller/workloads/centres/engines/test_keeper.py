"""The keeper of each job as run on a Slurm or Ray node: standalone, copied next to its record, without Millrace."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.workloads.centres.engines.base import JobMark, JobOrder, JobPhase
from controller.workloads.centres.engines.jobs.folders import JobFolder, JobFolders, keeper_command
from controller.workloads.centres.engines.jobs.keeping import KEEPER, START_FILE, Ended, Start, read_record
from tests.waiting import HANG_S, wait_until

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def prepared(root: Path, *argv: str, **more: Any) -> JobFolder:
    given: dict[str, Any] = {"environment": ENVIRONMENT, "grace_s": 5.0, **more}
    order = JobOrder(mark=JobMark("c1", "a", "uid", 1), argv=argv, folder=root / "a", unit="core", units=1, **given)
    return JobFolders("test", root / "records").prepare(order, passes="CLUSTER_")


def test_bogus_record_files_are_ignored_without_waiting(tmp_path: Path) -> None:
    whole, pipe, link = tmp_path / "whole", tmp_path / "pipe", tmp_path / "link"
    whole.write_bytes(msgspec.json.encode(Ended(0)))
    os.mkfifo(pipe)
    link.symlink_to(whole)
    assert [read_record(path, Ended) for path in (whole, pipe, link, tmp_path)] == [Ended(0), None, None, None]


@contextmanager
def kept(folder: JobFolder) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        keeper_command(sys.executable, folder.path), env={"CLUSTER_RANK": "3", "OTHER": "4"}
    ) as keeper:
        try:
            yield keeper
        finally:
            keeper.kill()


def output(folder: JobFolder) -> str:
    path = folder.path / "stdout"
    return path.read_text() if path.exists() else ""


def test_it_is_a_program_of_python_3_7_that_loads_little() -> None:
    ast.parse(KEEPER.read_text(), feature_version=(3, 7))
    asked = f"import sys; exec(open({str(KEEPER)!r}).read(), {{'__name__': 'keeper'}}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", asked], capture_output=True, text=True, check=True)
    heavy = {"asyncio", "subprocess", "threading", "typing", "pathlib", "logging", "msgspec", "controller", "dataplane"}
    assert not heavy & set(done.stdout.split())


def test_keeper_exits_with_the_jobs_code_and_records_its_end(tmp_path: Path) -> None:
    folder = prepared(tmp_path, "sh", "-c", "pwd; env | sort; exit 7")
    with kept(folder) as keeper:
        assert keeper.wait(HANG_S) == 7
    lines = output(folder).splitlines()
    assert lines[0] == str(folder.path)
    assert set(lines[1:]) >= {"CLUSTER_RANK=3", "PATH=/usr/bin:/bin"}
    assert "OTHER=4" not in lines
    ended = folder.told
    assert ended is not None
    assert (ended.exit_code, ended.reason, ended.phase, ended.why) == (7, "", JobPhase.FAILED, "exit code 7")
    assert (ended.finished_ns or 0) > (ended.started_ns or 0) > 0
    assert ended.cpu_s is not None


def test_a_folder_moves_with_its_record(tmp_path: Path) -> None:
    folder = prepared(tmp_path, "pwd")
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder.path, moved)
    assert subprocess.run(keeper_command(sys.executable, moved), check=False).returncode == 0
    assert (moved / "stdout").read_text() == f"{moved}\n"


def test_non_executable_differs_from_a_missing_program(tmp_path: Path) -> None:
    folder = prepared(tmp_path, "./script", files={"script": b"no program\n"})
    with kept(folder) as keeper:
        assert keeper.wait(HANG_S) == 126
    assert folder.told is not None
    assert folder.told.reason == "it cannot be started: ./script: Permission denied"
    folder = prepared(tmp_path, "no-such-program")
    with kept(folder) as keeper:
        assert keeper.wait(HANG_S) == 127
    assert folder.told is not None
    assert folder.told.reason == "it cannot be started: no-such-program: No such file or directory"


def test_termination_reaches_each_process_once(tmp_path: Path) -> None:
    other = "trap 'echo other; exit' TERM; echo on; while :; do sleep 0.02; done"
    # It ends by the signal alone, not because the other, which may get it before, has ended.
    told = 'until [ "$told" ]; do sleep 0.02; done'
    first = f'trap "told=1; echo first" TERM; setsid sh -c "{other}" & {told}; wait; exit 3'
    folder = prepared(tmp_path, "sh", "-c", first)
    with kept(folder) as keeper:
        wait_until(lambda: "on" in output(folder), "the job does not begin")
        keeper.terminate()
        assert keeper.wait(HANG_S) == 3
    assert sorted(output(folder).split()) == ["first", "on", "other"]
    assert folder.told is not None
    assert (folder.told.exit_code, folder.told.reason) == (3, "it was cancelled")


def test_a_job_ends_with_its_keeper(tmp_path: Path) -> None:
    folder = prepared(tmp_path, "sh", "-c", "echo $$; exec sleep 1000")
    with kept(folder) as keeper:
        wait_until(lambda: output(folder).endswith("\n"), "the job does not begin")
        process = Path("/proc", output(folder).strip())
        assert process.exists()
        keeper.kill()
        wait_until(lambda: not process.exists() or "State:\tZ" in (process / "status").read_text(), "it runs on")
    assert folder.told is None, "the end is unknown"


def test_orphans_are_let_go_of_while_the_job_runs(tmp_path: Path) -> None:
    script = "for n in 1 2 3; do (setsid true &); done; echo on; while [ ! -e go ]; do sleep 0.02; done"
    folder = prepared(tmp_path, "sh", "-c", script)
    with kept(folder) as keeper:
        wait_until(lambda: "on" in output(folder), "the job does not begin")
        children = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children")
        wait_until(lambda: len(children.read_text().split()) == 1, "those that have ended are still there")
        (folder.path / "go").touch()
        assert keeper.wait(HANG_S) == 0


def test_signal_after_the_end_is_left_pending() -> None:
    asked = (
        "import os, runpy, signal\n"
        f"keeper = runpy.run_path({str(KEEPER)!r}, run_name='keeper')\n"
        "woken, wake = os.pipe2(os.O_NONBLOCK)\n"
        "keeper['hand_on'](woken); print(sorted(signal.sigpending()))\n"
        "os.write(wake, bytes([signal.SIGCHLD, signal.SIGTERM]))\n"
        "keeper['hand_on'](woken); print(signal.sigpending() == {signal.SIGTERM})\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "True"]


def test_at_most_one_keeper_runs_a_job_that_is_known_by_its_lock(tmp_path: Path) -> None:
    start = Start(
        argv=("sh", "-c", "echo ran >> ran"),
        environment=ENVIRONMENT,
        folder=str(tmp_path),
        limit_s=None,
        grace_s=0.0,
        output_limit_bytes=1024,
        ended_file="exit.json",
        takes_lock=True,
    )
    (tmp_path / START_FILE).write_bytes(msgspec.json.encode(start))
    command = (sys.executable, "-I", "-S", str(KEEPER), str(tmp_path))
    assert [subprocess.run(command, check=False).returncode for _ in range(2)] == [0, 1]
    assert (tmp_path / "ran").read_text() == "ran\n"


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"exit_code": "0"}', b'{"exit_code": 0, "more": 1}', b"\xff"])
def test_invalid_records_of_an_end_are_ignored(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "ended.json").write_bytes(text)
    assert read_record(tmp_path / "ended.json", Ended) is None
    assert read_record(tmp_path, Ended) is None
    (tmp_path / "ended.json").write_text(json.dumps({"exit_code": 128 + signal.SIGTERM}))
    assert read_record(tmp_path / "ended.json", Ended) == Ended(143)
