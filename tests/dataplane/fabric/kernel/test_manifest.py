"""Manifests and processes of dead fabrics: what may be removed, what must not be touched; no root needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dataplane.errors import FabricError
from dataplane.fabric.kernel import manifest, namespaces
from dataplane.fabric.kernel.manifest import (
    Manifest,
    ProcessId,
    end_processes,
    find_leftovers,
    held_namespaces,
    remove_leftovers,
)
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[4]


def this_process() -> ProcessId:
    process_id = ProcessId.of(os.getpid())
    assert process_id is not None
    return process_id


def start(*argv: str) -> tuple[subprocess.Popen[bytes], ProcessId]:
    process = subprocess.Popen(argv)
    process_id = ProcessId.of(process.pid)
    assert process_id is not None
    return process, process_id


def test_a_process_is_its_number_and_its_start() -> None:
    own = this_process()
    assert own.is_alive()
    assert not ProcessId(own.pid, own.start_time + 1).is_alive()
    process, process_id = start("/bin/sleep", "60")
    process.kill()
    # Dead, though not yet reaped.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not process_id.is_alive()
    process.wait()
    assert ProcessId.of(process.pid) is None


def test_signals_reach_the_process_that_was_meant_or_none() -> None:
    process, process_id = start("/bin/sleep", "60")
    ProcessId(process_id.pid, process_id.start_time - 1).send(signal.SIGKILL)
    assert process.poll() is None
    process_id.send(signal.SIGKILL)
    assert process.wait(HANG_S) == -signal.SIGKILL
    process_id.send(signal.SIGKILL)


def test_what_ignores_sigterm_is_killed() -> None:
    argv = ["/bin/sh", "-c", "trap '' TERM; echo; while :; do sleep 0.05; done"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    process.stdout.close()
    process_id = ProcessId.of(process.pid)
    assert process_id is not None
    polite, second = start("/bin/sleep", "60")
    end_processes([process_id, second], 0.3)
    assert process.wait(HANG_S) == -signal.SIGKILL
    assert polite.wait(HANG_S) == -signal.SIGTERM


def test_a_manifest_reads_back(tmp_path: Path) -> None:
    manifest = Manifest("abc123", this_process(), ["mr-abc123-s1"], [ProcessId(5, 7)])
    manifest.save(tmp_path)
    assert Manifest.load(tmp_path) == manifest
    assert Manifest.load(tmp_path / "elsewhere") is None
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"fabric_id": 1, "owner": {"pid": 1, "start_time": 2}}'])
def test_a_manifest_that_is_none_names_its_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(FabricError, match=r"manifest\.json: "):
        Manifest.load(tmp_path)


def test_only_the_fabrics_of_the_dead_are_removed(tmp_path: Path) -> None:
    process, running = start("/bin/sleep", "60")
    for name, owner in (("alive", this_process()), ("dead", ProcessId(this_process().pid, 1))):
        (tmp_path / name).mkdir()
        Manifest(name, owner, [], [running] if name == "dead" else []).save(tmp_path / name)
    assert remove_leftovers(tmp_path) == ["dead"]
    assert process.wait(HANG_S) == -signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["alive"]
    assert remove_leftovers(tmp_path) == []


def test_broken_manifest_does_not_block_removal_of_others(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        Manifest(name, ProcessId(this_process().pid, 1)).save(tmp_path / name)
    (tmp_path / "b" / "manifest.json").write_text("{")
    problems: list[str] = []
    assert remove_leftovers(tmp_path, problems.append) == ["a", "c"]
    assert [problem.partition(": ")[0] for problem in problems] == [str(tmp_path / "b" / "manifest.json")]
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_a_folder_without_a_manifest_goes_when_it_is_old(tmp_path: Path) -> None:
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / "old", (0, 0))
    assert remove_leftovers(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_run_root_that_does_not_exist_holds_nothing(tmp_path: Path) -> None:
    assert remove_leftovers(tmp_path / "none") == []


def test_one_that_survives_sigkill_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Immortal:
        pid = 4

        def is_alive(self) -> bool:
            return True

        def send(self, number: signal.Signals) -> None:
            return

    with pytest.raises(FabricError, match=r"processes \[4\] do not end"):
        end_processes([Immortal()], 0.01)  # type: ignore[list-item]


def test_the_run_root_is_where_the_system_forgets_at_boot() -> None:
    assert manifest.RUN_ROOT.parts[1] == "run"


HOLDS = """
import sys, time
from pathlib import Path
from dataplane.fabric.kernel.manifest import held_namespaces
with held_namespaces("mr-held-a", "mr-held-b", run_root=Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_namespaces_of_a_benchmark_go_whatever_ends_it(tmp_path: Path, number: signal.Signals) -> None:
    def there() -> list[str]:
        return [name for name in ("mr-held-a", "mr-held-b") if (namespaces.RUN_NETNS / name).exists()]

    argv = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert len(there()) == 2
        assert find_leftovers(tmp_path) == []
        with pytest.raises(FabricError, match="mr-held-b already exists"), held_namespaces("mr-held-b"):
            pass
        process.send_signal(number)
        ended = process.wait(HANG_S)
    if number is signal.SIGKILL:
        (left,) = find_leftovers(tmp_path)
        assert (left.namespaces, left.pids) == (("mr-held-a", "mr-held-b"), ())
        assert remove_leftovers(tmp_path) == [left.fabric_id]
    else:
        assert ended == 128 + number
    assert there() == []
    assert list(tmp_path.iterdir()) == []
