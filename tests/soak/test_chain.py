"""The running chain under each disturbance once; `python -m tests.soak.chain --minutes 30` is the whole."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_chain_recovers_from_each_disturbance() -> None:
    command = [sys.executable, "-m", "tests.soak.chain", "--minutes", "3", "--seed", "2"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads(ended.stdout.splitlines()[-1])
    assert report["problems"] == []
    assert len(report["recovery_s"]) == 9
    assert report["deaf_calls"] >= 4
