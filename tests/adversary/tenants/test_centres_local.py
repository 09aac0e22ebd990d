"""A hostile task at a centre whose jobs are processes of the agent's machine: nothing outside its folder changes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from controller.workloads.centres.engines.base import JOB_ENDED, JobMark, JobOrder, JobPhase, JobState
from controller.workloads.centres.engines.jobs.keeping import SANDBOXING
from controller.workloads.centres.engines.jobs.places import make_folder, read_end, read_file, remove
from controller.workloads.centres.engines.local.engine import LocalEngine
from controller.workloads.centres.engines.local.isolation import Isolation, free_uid, problem_of_sandboxes, uids_of
from controller.workloads.centres.errors import CentreError, EngineError
from controller.workloads.centres.settings import ControlGroups, LocalSettings, UnitSettings
from controller.workloads.centres.units import Found
from dataplane.local.deadline import local_timeout
from tests.left_processes import kill_those_of
from tests.sandboxes import local_settings
from tests.waiting import until

WAIT_S = 120.0
ATTACK = Path(__file__).with_name("task_attack.py")
NESTED = Path(__file__).with_name("unprivileged_agent.py")
CORES = tuple(sorted(os.sched_getaffinity(0)))
COULD = {"writes its own", "writes scratch"}
"""All that the attack may be able to do."""


@contextmanager
def agents_own(folder: Path) -> Iterator[tuple[str, ...]]:
    """Yield what the attack is given: the agent's secret, its socket, a folder open to all, its process."""
    secret, outside = folder / "engine/secret", folder / "open"
    secret.parent.mkdir(exist_ok=True)
    secret.write_text("a token")
    secret.chmod(0o600)
    outside.mkdir(exist_ok=True)
    outside.chmod(0o777)
    with socket.socket(socket.AF_UNIX) as listening:
        path = folder / "engine/api.sock"
        path.unlink(missing_ok=True)
        listening.bind(str(path))
        path.chmod(0o666)  # the kernel alone does not keep it
        listening.listen()
        yield str(secret), str(path), str(outside), str(os.getpid())


def order(folder: Path, task: str, *argv: str, **more: Any) -> JobOrder:
    """Return an order that runs at once."""
    mark = JobMark("c1", task, f"uid-{task}", 1)
    return JobOrder(mark=mark, argv=argv, folder=folder / "jobs" / task, unit="core", units=1, **more)


async def outcome(folder: Path, *orders: JobOrder, **settings: Any) -> list[JobState]:
    """Run jobs, all at the same time; return how they ended. Their folders stay."""
    local = local_settings(control_groups=ControlGroups.NEVER, **settings)
    units = (UnitSettings(name="core", count=1),)
    engine = LocalEngine(local, units, folder / "engine", f"/millrace-test-{os.getpid()}", lambda _: Found(CORES, 1000))
    async with local_timeout(WAIT_S, "a test"):
        await engine.start()
        try:
            jobs = [await engine.submit(each) for each in orders]

            async def have_ended() -> bool:
                return all(state.phase in JOB_ENDED for state in (await engine.states(jobs)).values())

            await until(have_ended, limit_s=WAIT_S, poll_s=0.01)
            states = await engine.states(jobs)
            return [states[job] for job in jobs]
        finally:
            await engine.close()


def attacked(folder: Path) -> list[dict[str, Any]]:
    """Return what two tasks could do, one after the other."""
    with agents_own(folder) as given:
        # As a file of the task: a task cannot see a checkout below /tmp.
        files = {"attack.py": ATTACK.read_bytes()}
        argv = (sys.executable, "attack.py", *given)
        orders = [order(folder, task, *argv, files=files) for task in ("first", "second")]
        states = asyncio.run(outcome(folder, *orders))
    for each, state in zip(orders, states, strict=True):
        assert state.phase is JobPhase.SUCCEEDED, (each.folder / "stderr").read_text()
    return [json.loads((each.folder / "stdout").read_text()) for each in orders]


def check(findings: dict[str, Any], name: str) -> None:
    """Check that a task could do nothing beyond its rights."""
    assert {what for what, could in findings.items() if could is True} == COULD
    assert (findings["capabilities"], findings["no_new_privs"]) == ([0] * 5, "1")
    own = {kind: str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("mnt", "pid", "ipc")}
    assert all(findings["namespaces"][kind] != own[kind] for kind in own)
    assert findings["processes"] == [1, 2]
    assert findings["beside"] == [name]
    # Of /tmp only the paths to its own folder and to the interpreter, which are there in tests.
    assert findings["scratch"][1:3] == [[], []]
    interpreter = {path.parts[2] for path in (Path(sys.prefix), ATTACK) if path.is_relative_to("/tmp")}
    assert set(findings["scratch"][0]) <= {
        "pytest-of-root",
        f"pytest-of-{os.environ.get('USER', 'root')}",
        *interpreter,
    }


def test_a_task_reaches_nothing_of_the_agents(tmp_path: Path) -> None:
    if (problem := problem_of_sandboxes()) is not None:
        pytest.skip(f"no namespaces here: {problem}")
    first, second = attacked(tmp_path)
    check(first, "first")
    check(second, "second")
    assert list((tmp_path / "open").iterdir()) == []
    if os.geteuid() == 0:
        assert len({os.geteuid(), first["user"], second["user"]}) == 3, "each has a user of its own"
        assert first["groups"] == []


@pytest.mark.root
def test_without_root_a_task_reaches_nothing_either(tmp_path: Path) -> None:
    """The agent is itself a job here, which has the interpreter, no capability and another user."""
    nested = order(
        tmp_path, "agent", sys.executable, str(NESTED), environment={"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    (state,) = asyncio.run(outcome(tmp_path, nested))
    stderr = (nested.folder / "stderr").read_text()
    if "cannot have namespaces" in stderr:
        pytest.skip(stderr.splitlines()[-1])
    assert state.phase is JobPhase.SUCCEEDED, stderr
    findings = json.loads((nested.folder / "stdout").read_text())
    assert {what for what, could in findings.items() if could is True} == COULD
    assert (findings["capabilities"], findings["no_new_privs"]) == ([0] * 5, "1")
    assert (findings["processes"], findings["beside"]) == ([1, 2], ["first"])


@pytest.mark.root
def test_links_in_a_jobs_folder_are_not_written_through(tmp_path: Path) -> None:
    target, folder = tmp_path / "shadow", tmp_path / "jobs/a"
    target.write_text("root's")
    folder.mkdir(parents=True)
    for name in ("script", "stdout", "stderr"):
        (folder / name).symlink_to(target)
    os.chown(folder, 65_534, 65_534)
    (state,) = asyncio.run(outcome(tmp_path, order(tmp_path, "a", "sh", "script", files={"script": b"echo mine"})))
    assert (state.phase, target.read_text(), target.stat().st_uid) == (JobPhase.SUCCEEDED, "root's", 0)
    assert not (folder / "script").is_symlink()
    assert (folder / "stdout").read_text() == "mine\n"


@pytest.mark.root
def test_a_folder_is_its_users_only_once_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, list[str]]] = []
    real = os.fchown

    def noted(descriptor: int, user: int, group: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        given.append((path.name, sorted(each.name for each in (tmp_path / "jobs/a").iterdir())))
        real(descriptor, user, group)

    monkeypatch.setattr(os, "fchown", noted)
    make_folder(tmp_path / "jobs/a", {"b": b"1", "c/d": b"#!/bin/sh"}, (65_534, 65_534))
    assert given[-1] == ("a", ["b", "c"])
    owners = {path.stat().st_uid for path in (tmp_path / "jobs").rglob("*")}
    assert (owners, stat.S_IMODE((tmp_path / "jobs/a/c/d").stat().st_mode)) == ({65_534}, 0o700)


def test_folders_that_others_can_swap_are_refused(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs").chmod(0o777)
    with pytest.raises(OSError, match="other users may write into it: chmod go-w"):
        make_folder(tmp_path / "jobs/a", {}, None)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(OSError, match="directory"):
        make_folder(tmp_path / "link/a", {}, None)


def test_what_a_task_leaves_is_read_without_harm(tmp_path: Path) -> None:
    secret, folder = tmp_path / "secret", tmp_path / "job"
    secret.write_text("a token")
    folder.mkdir()
    (folder / "link").symlink_to(secret)
    os.mkfifo(folder / "pipe")
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(-3, os.SEEK_END)
        file.write(b"end")
    (tmp_path / "swapped").symlink_to(folder)
    for directory, name in ((folder, "link"), (folder, "pipe"), (folder, "huge"), (tmp_path / "swapped", "huge")):
        with pytest.raises(CentreError, match=f"^{name}: "):
            read_file(directory, name, 1000)
    assert read_end(folder, "huge", 3) == b"end"


def test_deep_folders_of_a_task_are_removed(tmp_path: Path) -> None:
    script = "import os\nfor n in range(1500):\n os.mkdir('d'); os.chdir('d')"
    (state,) = asyncio.run(outcome(tmp_path, order(tmp_path, "deep", sys.executable, "-S", "-c", script)))
    assert state.phase is JobPhase.SUCCEEDED
    remove(tmp_path / "jobs/deep")
    assert not (tmp_path / "jobs/deep").exists()


def test_tasks_run_as_the_agents_user_only_where_that_is_said(tmp_path: Path) -> None:
    (state,) = asyncio.run(outcome(tmp_path, order(tmp_path, "a", "id", "-u"), unsafe_same_user=True))
    assert state.phase is JobPhase.SUCCEEDED
    assert (tmp_path / "jobs/a/stdout").read_text().strip() == str(os.geteuid())
    (note,) = Isolation(LocalSettings(unsafe_same_user=True), (), Path(sys.executable)).notes
    assert "jobs run as the agent's user" in note


@pytest.mark.root
def test_a_job_below_a_closed_folder_runs_and_sees_nothing() -> None:
    with tempfile.TemporaryDirectory(dir="/var/lib", prefix="millrace-test-") as name:
        folder = Path(name)
        (folder / "beside").write_text("")
        script = "ls .. ../..; for n in 1 2 3 4 5 6 7 8; do sleep 5 & done; echo all"
        (state,) = asyncio.run(outcome(folder, order(folder, "a", "sh", "-c", script), processes=6))
        assert (folder / "jobs/a/stdout").read_text().split() == ["..:", "a", "../..:", "jobs"]
        # Its processes are counted without control groups, too.
        assert (state.phase, "fork" in (folder / "jobs/a/stderr").read_text()) == (JobPhase.FAILED, True)


@pytest.mark.root
def test_where_no_sandbox_can_be_made_it_is_said(tmp_path: Path) -> None:
    """The kernel makes no user namespaces for a process in a chroot."""
    script = (
        'mount --rbind / "$1" && exec chroot "$1" setpriv --reuid=12345 --regid=12345 --clear-groups "$2" -I -S "$3"'
    )
    words = ("sh", str(tmp_path), "/usr/bin/python3", str(SANDBOXING))
    command = ("unshare", "--mount", "--propagation=private", "sh", "-c", script, *words)
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "namespaces: Operation not permitted\n")


def test_numbers_of_jobs_are_nobodys(tmp_path: Path) -> None:
    for name in ("etc", "proc/self"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("passwd", "group", "subgid"):
        (tmp_path / "etc" / name).write_text("")
    for name in ("uid_map", "gid_map"):
        (tmp_path / "proc/self" / name).write_text("0 0 4294967295\n")
    (tmp_path / "etc/subuid").write_text("u:100000:65536\n")
    assert uids_of(None, tmp_path) == range(1_900_000_000, 1_900_004_096)
    for wanted, problem in (((165_000, 2000), "u of /etc/subuid has 165000"), ((4_294_967_000, 900), "uid_map")):
        with pytest.raises(EngineError, match=problem):
            uids_of(wanted, tmp_path)
    (tmp_path / "proc/self/uid_map").write_text("0 100000 65536\n")
    assert uids_of(None, tmp_path) == range(60_600, 61_112)
    (tmp_path / "etc/passwd").write_text("someone:x:60700:60700::/:/bin/sh\n")
    with pytest.raises(EngineError, match=r"local\.uids: .*; 60600 to 61111: someone of /etc/passwd has 60700"):
        uids_of(None, tmp_path)
    assert free_uid(range(2_000_000_000, 2_000_000_003), {2_000_000_000, 2_000_000_002}) == 2_000_000_001
    with pytest.raises(EngineError, match="all 1 numbers are taken"):
        free_uid(range(2_000_000_000, 2_000_000_001), {2_000_000_000})


@pytest.fixture(autouse=True)
def left(tmp_path: Path) -> Iterator[None]:
    """End what a test has left."""
    yield
    kill_those_of(tmp_path)
