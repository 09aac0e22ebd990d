"""`millrace fabric up --daemons`: the daemons of a kernel fabric hear its reports, and end with it."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from controller.apps.up import command
from controller.apps.up.errors import UpError
from dataplane.fabric.kernel.manifest import RUN_ROOT
from dataplane.topology.file import load_topology
from tests.waiting import wait_until

TOPOLOGY = """
millrace: 1
name: one
collector: {host: c1}
switches: [{name: s1}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s1}, {name: c1, switch: s1}]
"""
GREEN_S = 180.0
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.mark.root
@pytest.mark.slow
@needs_root
def test_daemons_hear_reports_and_end_with_the_fabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, name = tmp_path / "one.yaml", f"t-{secrets.token_hex(3)}"
    file.write_text(TOPOLOGY, encoding="utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    h2 = str(load_topology(str(file)).host["h2"].ipv4)
    state = tmp_path / "state/millrace" / f"fabric-{name}"

    def fabric(*words: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "controller.apps.cli", "fabric", *words], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def health(daemon: str) -> str:
        return next(each.health.text for each in command.status(state).daemons if each.name == daemon)

    with tempfile.TemporaryDirectory(prefix="up") as run:
        monkeypatch.setenv("XDG_RUNTIME_DIR", run)
        try:
            fabric("up", str(file), "--name", name, "--daemons", "--detach")
            wait_until(lambda: "1 of 1 switches reconciled" in health("controller"), limit_s=GREEN_S)
            fabric("exec", "--fabric", name, "h1", "--", "ping", "-c", "20", "-i", "0.05", h2)
            wait_until(lambda: not health("collector").startswith("0 reports"), lambda: health("collector"))
        finally:
            fabric("down", name)
        with pytest.raises(UpError, match="no `millrace up` is running"):
            command.status(state)
    assert not (RUN_ROOT / name).exists()
