"""Centres under random kills, ten of them; `python -m tests.soak.centres --kills 200` is the whole."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_ten_kills() -> None:
    command = [sys.executable, "-m", "tests.soak.centres", "--kills", "10", "--seed", "3"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "problems=[]" in ended.stdout
    assert "'succeeded': " in ended.stdout
