"""Virtual time without Linux features; a kernel fabric reports its requirements."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_virtual_time_runs_without_what_only_linux_has(tmp_path: Path) -> None:
    """Imports of `millrace demo`, a packet under telemetry, and the collector's state of it; see the script."""
    script = [sys.executable, str(ROOT / "tests/without_linux.py")]
    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        script, capture_output=True, text=True, cwd=tmp_path, env=os.environ | environment, timeout=300, check=False
    )
    assert done.stdout.splitlines() == ["gradients", "leaf1 spine1 leaf2"], done.stderr
    problem = "millrace: kernel fabrics need Linux (namespaces, netlink); virtual time runs anywhere"
    assert done.stderr.splitlines() == [problem]
    assert done.returncode == 1
    assert not list(tmp_path.iterdir())
