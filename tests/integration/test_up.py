"""`millrace up`: everything starts, is killed, comes back green, and loses nothing. tests/soak/up.py does it longer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_what_is_killed_is_green_again() -> None:
    words = ["--topology", "leaf-spine", "--kills", "1", "--seed", "3", "--pause-s", "0.2"]
    command = [sys.executable, "-m", "tests.soak.up", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["problems"] == []
    assert report["kills"] == dict.fromkeys(
        ("fabric", "collector", "paths", "controller", "api", "scheduler", "placement"), 1
    )
    assert report["acknowledged"] > 0
