"""Deadlines for local events: by available CPU time, not only by the clock."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from pathlib import Path

import pytest

from dataplane.local import deadline as local_deadline
from dataplane.local.deadline import (
    MOST_TIMES,
    LocalDeadline,
    local_timeout,
    runnable_threads,
    wait_for_exit,
    wait_readable,
)
from tests.waiting import comes_true


class Machine:
    """A machine with settable time and load."""

    def __init__(self, runnable: int = 1, cpus: int = 2) -> None:
        self.now_s, self.runnable, self.cpus = 100.0, runnable, cpus

    def deadline(self, limit_s: float) -> LocalDeadline:
        return LocalDeadline(
            limit_s, "podman: version", monotonic=lambda: self.now_s, runnable=lambda: self.runnable, cpus=self.cpus
        )

    def passes_after_s(self, deadline: LocalDeadline, step_s: float) -> float:
        began_s = self.now_s
        while not deadline.has_passed():
            self.now_s += step_s
        return self.now_s - began_s


@pytest.mark.parametrize(
    ("runnable", "cpus", "times"), [(1, 2, 1), (2, 2, 1), (4, 2, 2), (10, 2, 5), (1000, 2, MOST_TIMES), (10, 16, 1)]
)
def test_deadline_counts_share_of_cpus(runnable: int, cpus: int, times: int) -> None:
    machine = Machine(runnable, cpus)
    passed_s = machine.passes_after_s(machine.deadline(5.0), 0.25)
    assert 5.0 * times <= passed_s <= 5.0 * times + 0.25


def test_deadline_hardly_counts_own_standstill() -> None:
    machine = Machine()
    deadline = machine.deadline(10.0)
    machine.now_s += 60.0  # suspended
    assert not deadline.has_passed()
    assert machine.passes_after_s(deadline, 0.5) == 9.0
    always_stopped = machine.deadline(10.0)
    machine.now_s += 10.0 * MOST_TIMES
    assert always_stopped.has_passed()


def test_deadline_announces_the_wait_once(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(runnable=10)
    with caplog.at_level(logging.WARNING):
        machine.passes_after_s(machine.deadline(5.0), 0.25)
        quiet = Machine()
        quiet.passes_after_s(quiet.deadline(5.0), 0.25)
    assert [record.getMessage() for record in caplog.records] == [
        "podman: version: no answer yet after 5 s on a busy machine (10 threads want 2 CPUs): waiting for up to 50 s"
    ]


def test_runnable_threads_reads_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert runnable_threads() >= 1
    monkeypatch.setattr(local_deadline, "_LOADAVG", tmp_path / "loadavg")
    assert runnable_threads() == 1
    for text, runnable in (("9.84 5.1 2.0 12/345 6789\n", 12), ("0 0 0 0/1 1", 1), ("0.1 0.2", 1), ("a b c d e", 1)):
        (tmp_path / "loadavg").write_text(text)
        assert runnable_threads() == runnable


def test_local_timeout_ends_what_hangs() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with local_timeout(0.02, "a test"):
                await asyncio.Event().wait()

    asyncio.run(main())


def test_local_timeout_is_stretched_by_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "loadavg").write_text("900.0 900.0 900.0 100000/100001 1\n")
    monkeypatch.setattr(local_deadline, "_LOADAVG", tmp_path / "loadavg")

    async def main() -> str:
        async with local_timeout(0.5, "a test"):
            await asyncio.sleep(0.6)
        return "done"

    assert asyncio.run(main()) == "done"


def test_local_timeout_passes_errors_and_cancellation() -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="own"):
            async with local_timeout(60.0, "a test"):
                raise ValueError("own")
        task = asyncio.ensure_future(waiting())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def waiting() -> None:
        async with local_timeout(60.0, "a test"):
            await asyncio.Event().wait()

    asyncio.run(main())


def test_wait_for_exit_and_condition() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not wait_for_exit(process, 0.02, "a test")
        process.kill()
        assert wait_for_exit(process, 60.0, "a test")
    assert not comes_true(lambda: False, limit_s=0.02)
    answers = iter((False, False, True))
    assert comes_true(lambda: next(answers), limit_s=60.0)


def test_wait_readable_ends_with_data_end_or_deadline() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb", buffering=0) as writer:
        assert not wait_readable(reader, LocalDeadline(0.02, "a test"))
        writer.write(b"x")
        assert wait_readable(reader, LocalDeadline(60.0, "a test"))
        assert reader.read(1) == b"x"
        writer.close()
        assert wait_readable(reader, LocalDeadline(60.0, "a test"))
