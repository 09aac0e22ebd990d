"""Native code reads no byte behind a report or frame, however it was cut or changed; in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIMIT_S = 120


def run(what: str, longer: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.collectors.native.guarded_run", what, str(longer)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


@pytest.mark.parametrize(("what", "least"), [("reports", 10_000), ("frames", 100)])
def test_nothing_is_read_beyond_its_end(what: str, least: int) -> None:
    done = run(what, 0)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > least


@pytest.mark.parametrize("what", ["reports", "frames"])
def test_a_byte_too_many_would_end_it(what: str) -> None:
    assert run(what, 1).returncode == -signal.SIGSEGV
