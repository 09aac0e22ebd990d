"""Services of unit pools under random kills, eight of them; `python -m tests.soak.balance` is the whole."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_eight_kills() -> None:
    command = [sys.executable, "-m", "tests.soak.balance", "--kills", "8", "--seed", "3"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "problems=[]" in ended.stdout
