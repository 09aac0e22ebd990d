"""The native core reads no byte behind a report, however it was cut or changed; in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIMIT_S = 120


def run(longer: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.collectors.native.guarded_run", str(longer)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_no_report_is_read_beyond_its_end() -> None:
    done = run(0)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10_000


def test_a_byte_too_many_would_end_it() -> None:
    assert run(1).returncode == -signal.SIGSEGV
