"""Thousands of calls of all commands with absurd values: one line, a documented status, no trace."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controller.apps.cli.hostile.calls import calls, problem_of
from tests.controller.apps.cli.hostile.sandbox import ROOT

CALLS = int(os.environ.get("MILLRACE_CALLS", "1500"))
"""Number of calls out of some 18,000; 0 runs all, which takes an hour or more."""
UNSHARE = ["unshare", "--net", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]


def _can_unshare() -> bool:
    path = shutil.which("unshare")
    return path is not None and subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not _can_unshare(), reason="no namespaces of its own")
def test_no_command_shows_a_stack_trace_or_hangs(tmp_path: Path) -> None:
    every, seed = list(calls()), random.randrange(1 << 32)
    random.Random(seed).shuffle(every)
    every = every[: CALLS or None]
    running = []
    for number in range(workers := os.cpu_count() or 1):
        (tmp_path / f"calls{number}").write_text(json.dumps(every[number::workers]))
        (folder := tmp_path / f"place{number}").mkdir()
        command = [*UNSHARE, sys.executable, "-m", "tests.controller.apps.cli.hostile.sandbox"]
        with (tmp_path / f"out{number}").open("wb") as output, (tmp_path / f"errors{number}").open("wb") as errors:
            words = [*command, str(tmp_path / f"calls{number}"), str(folder)]
            running.append(subprocess.Popen(words, cwd=ROOT, stdout=output, stderr=errors))
    ended = [process.wait() for process in running]
    assert ended == [0] * workers, "".join((tmp_path / f"errors{number}").read_text() for number in range(workers))
    lines = [line for number in range(workers) for line in (tmp_path / f"out{number}").read_text().splitlines()]
    results = [json.loads(line) for line in lines]
    assert len(results) == len(every)
    problems = [(problem, result["words"]) for result in results if (problem := problem_of(result)) is not None]
    assert problems == [], f"seed {seed}"
