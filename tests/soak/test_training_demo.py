"""`millrace demo training` as a user runs it: a worker and the switch are killed, and the others train on."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]


def test_training_continues_without_a_worker_and_the_switch(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    command = [sys.executable, "-m", "controller.apps.cli", "demo", "training", "--workers", "3", "--steps", "45"]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "training.json").read_text())
    whole, alone, ring = summary["phases"]
    assert [phase["workers"] for phase in (whole, alone, ring)] == [3, 2, 2]
    assert [whole["way"], alone["way"]] == ["the switch"] * 2
    assert "gloo's ring" in ring["way"]
    assert summary["difference"] < 1e-5
    assert summary["same_parameters"]
    assert ring["loss"] < summary["losses"][0] / 3
    assert any("h3 is no longer a member: a mean is over 2 workers" in line for line in summary["said"])
    assert any("gloo's ring of workers 0, 1 is used, not the switch" in line for line in summary["said"])
    assert (tmp_path / "training.png").read_bytes().startswith(b"\x89PNG")
