"""The runner as a program: its output files, start-up time, and error messages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from controller.probing import files
from controller.probing.running import results
from controller.probing.running.report import EXIT_CODES, Outcome
from controller.probing.values import Implementation, KernelUse, Library, Link, ProbeTask, sizes_of
from dataplane.topology.values import DeviceKind
from tests.waiting import HANG_S

HERE = Path(__file__).parent


def use(name: str, entry: str, repetitions: int = 1, splits: str = "", **sizes: int) -> KernelUse:
    code = Implementation(DeviceKind.CPU, Library.PYTHON, f"user_kernels:{entry}")
    shape = sizes_of(sizes)
    return KernelUse(name, name.partition(".")[0], 1, shape, repetitions, 1000 * repetitions, code, 1e-9, splits=splits)


def gemm(name: str, n: int, repetitions: int) -> KernelUse:
    code = Implementation(DeviceKind.CPU, Library.NUMPY, "controller.probing.kernels.dense:dgemm", True)
    return KernelUse(name, "dgemm", 1, sizes_of({"m": n, "n": n, "k": n}), repetitions, 1, code, 1e-9)


def start(folder: Path, probe: ProbeTask, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a probe task, which leaves `result.json`."""
    (folder / "probe.json").write_text(files.dumps(probe, as_json=True))
    arguments = ("probe.json", "--at-least-s", "0", "--out", "result.json", *options)
    return launch(folder, arguments, **environment)


def launch(folder: Path, arguments: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "controller.probing.running", *arguments]
    paths = os.pathsep.join([str(HERE), str(HERE.parents[4])])
    env = {**os.environ, "PYTHONPATH": paths, **environment}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=False, env=env)


def test_probe_task_runs_alone_and_reports_times_and_errors(tmp_path: Path) -> None:
    links = (Link("k1", "k3"), Link("k2", "k3"))
    probe = ProbeTask("p", "hpc", (gemm("k1", 64, 3), gemm("k2", 64, 2), gemm("k3", 32, 1)), links)
    done = start(tmp_path, probe, "--repeat", "4")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    result = results.read(tmp_path / "result.json")
    assert result.outcome is Outcome.SUCCEEDED
    assert len(result.repetitions) == 4
    for repetition in result.repetitions:
        assert {name: len(times) for name, times in repetition.kernels_s.items()} == {"k1": 3, "k2": 2, "k3": 1}
        assert repetition.run_time_s >= sum(sum(times) for times in repetition.kernels_s.values())
        assert max(repetition.accuracies.values()) < 1e-12
    assert result.steady_s.keys() == {"k1", "k2", "k3"}
    assert result.wall_s is not None
    assert result.start_s is not None
    assert result.wall_s > result.start_s > 0
    assert (result.peak_memory_bytes or 0) > 1 << 20
    run = results.to_probe_run(result, unit="small")
    assert (run.unit, run.units, run.outcome) == ("small", 1, "succeeded")
    assert run.kernels_s["k1"] == tuple(sum(repetition.kernels_s["k1"]) / 3 for repetition in result.repetitions)


def test_nothing_slow_is_imported_that_no_kernel_needs(tmp_path: Path) -> None:
    (tmp_path / "probe.json").write_text(files.dumps(ProbeTask("p", "hpc", (gemm("k", 8, 1),)), as_json=True))
    heavy = {"msgspec", "yaml", "argparse", "scipy", "networkx", "typer", "litestar", "pyarrow", "controller.apiserver"}
    text = f"import sys; from controller.probing.running import command, work, crew;print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=HANG_S, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("entry", "outcome", "problem"),
    [
        ("bad_raise", Outcome.CRASH, "kernel bad.1: run: ValueError: no such thing"),
        ("bad_segfault", Outcome.CRASH, "use bad: SIGSEGV (Segmentation fault)"),
        ("bad_kill", Outcome.OUT_OF_MEMORY, "use bad: killed, probably for lack of memory"),
        ("bad_exit", Outcome.CRASH, "use bad: the program exited with code 3"),
        ("bad_leave", Outcome.CRASH, "SystemExit: 4"),
        ("bad_memory", Outcome.OUT_OF_MEMORY, "kernel bad.1: run: out of memory"),
        ("bad_wrong", Outcome.WRONG_VALUE, "use bad: its output has a relative error of 0.5, at most 1e-09 is allowed"),
        ("bad_nan", Outcome.WRONG_VALUE, "use bad: its output has invalid numbers, at most 1e-09 is allowed"),
        ("bad_make", Outcome.REFUSED, "kernel bad.1: make: RuntimeError: cannot be made"),
        ("nowhere", Outcome.REFUSED, "kernel bad.1: module user_kernels has no nowhere"),
    ],
)
def test_failing_kernel_is_named_with_its_error(tmp_path: Path, entry: str, outcome: Outcome, problem: str) -> None:
    probe = ProbeTask("p", "hpc", (use("good", "numbered"), use("bad", entry)), (Link("good", "bad"),))
    done = start(tmp_path, probe)
    assert done.returncode == EXIT_CODES[outcome]
    assert done.stderr == f"probe p: {outcome.value}: {problem}\n"
    result = results.read(tmp_path / "result.json")
    assert (result.outcome, result.problem, result.use) == (outcome, problem, "bad")
    assert results.to_probe_run(result).run_times_s == ()


def test_a_kernel_that_hangs_is_killed_at_the_deadline_and_named(tmp_path: Path) -> None:
    probe = ProbeTask("p", "hpc", (use("good", "numbered"), use("bad", "bad_hang")))
    for deadline_s in (1, 8, 32):
        done = start(tmp_path, probe, "--deadline-s", str(deadline_s))
        assert done.returncode == EXIT_CODES[Outcome.HANG]
        result = results.read(tmp_path / "result.json")
        if result.use == "bad":  # On a busy machine it may not have started yet.
            break
    assert (result.outcome, result.problem) == (Outcome.HANG, f"use bad: not done after {deadline_s} s")


def test_output_of_a_kernel_is_not_in_the_result(tmp_path: Path) -> None:
    probe = ProbeTask("p", "hpc", (use("sum", "total", n=4),))
    (tmp_path / "probe.json").write_text(files.dumps(probe, as_json=True))
    done = launch(tmp_path, ("probe.json", "--at-least-s=0"))
    assert results.decode(done.stdout.encode()).outcome is Outcome.SUCCEEDED
    assert "kernels may print" in done.stderr


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core only")
def test_several_units_share_the_work_of_one_probe_task(tmp_path: Path) -> None:
    """Strong scaling: the split size is divided, and each process has its own core."""
    probe = ProbeTask(
        "p", "hpc", (use("sum", "total", 2, "n", n=7), use("last", "numbered", n=0)), (Link("sum", "last"),)
    )
    seen = tmp_path / "seen"
    seen.mkdir()
    done = start(tmp_path, probe, "--units", "2", TEST_FOLDER=str(seen))
    assert done.returncode == 0, done.stderr
    parts = sorted(path.read_text().split(" ", 1) for path in seen.iterdir())
    cores = sorted(os.sched_getaffinity(0))
    assert parts == [["3", f"[{cores[1]}]"], ["4", f"{cores[:2]}"]]
    result = results.read(tmp_path / "result.json")
    assert (result.units, result.cores) == (2, 2)
    assert len(result.repetitions[0].kernels_s["sum"]) == 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core only")
@pytest.mark.parametrize("entry", ["bad_raise", "bad_kill"])
def test_failing_helper_process_is_reported(tmp_path: Path, entry: str) -> None:
    probe = ProbeTask("p", "hpc", (use("bad", entry, 1, "n", n=8),))
    done = start(tmp_path, probe, "--units", "2")
    assert done.returncode in {EXIT_CODES[Outcome.CRASH], EXIT_CODES[Outcome.OUT_OF_MEMORY]}
    assert results.read(tmp_path / "result.json").use == "bad"


def test_more_cores_than_there_are_is_refused(tmp_path: Path) -> None:
    done = start(tmp_path, ProbeTask("p", "hpc", (use("k", "numbered"),)), "--units", "4000", "--cores", "4001")
    assert done.returncode == EXIT_CODES[Outcome.REFUSED]
    assert "4000 units need 4001 cores, but this process may use" in results.read(tmp_path / "result.json").problem


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("none.json",), "none.json: No such file or directory"),
        ((), "0 files of probe tasks, expected one"),
        (("a", "--units", "0"), "--units: '0' is not a whole number between 1 and 4096"),
        (("a", "--units"), "--units: '' is not a whole number"),
        (("a", "--repeat", "1", "--repeat", "2"), "--repeat is given twice"),
        (("a", "--deadline-s", "nan"), "--deadline-s: 'nan' is not a number of seconds"),
        (("a", "--unit", "1"), "--unit is not an option"),
    ],
)
def test_wrong_command_lines_are_one_line(
    tmp_path: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from controller.probing.running.command import main  # noqa: PLC0415 - only here in this process

    assert main(arguments, 0.0) == EXIT_CODES[Outcome.REFUSED]
    assert capsys.readouterr().err.startswith(f"probe: {message}")
