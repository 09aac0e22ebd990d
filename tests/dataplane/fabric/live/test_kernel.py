"""A long-running kernel fabric: a dead switch is restarted, and so is the fabric after kill -9."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from dataplane.errors import FabricError
from dataplane.fabric.kernel.manifest import RUN_ROOT, Manifest
from dataplane.fabric.live.stats import read_stats
from dataplane.fabric.live.values import FabricCounters
from tests.waiting import wait_until

pytestmark = pytest.mark.root

SETTINGS = """
topology: "leaf-spine:spines=1,leaves=1,hosts=2"
time: kernel
switches: {folder}/switches
reports: 127.0.0.1:{port}
demands: {folder}/demands.csv
stats_file: {folder}/stats.json
metrics: {{port: 0}}
"""
WAIT_S = 60.0


def start(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """Start the daemon; return it when it is ready, and where its metrics are."""
    command = [
        sys.executable,
        "-m",
        "controller.apps.cli",
        "fabric",
        "serve",
        "--settings",
        str(folder / "fabric.yaml"),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = next(process.stderr)
    assert "ready: 2 switches" in line, line + process.stderr.read()
    return process, line.split("metrics at ")[1].strip()


def ports_up(metrics: str) -> set[str]:
    """Return the switches of which a port is up, by the fabric's metrics."""
    with urllib.request.urlopen(metrics, timeout=WAIT_S) as answer:
        lines = answer.read().decode().splitlines()
    return set(re.findall(r'^millrace_switch_port_up\{.*switch="(\w+)"\} 1\.0$', "\n".join(lines), re.MULTILINE))


def answers(folder: Path, switch: str) -> bool:
    with grpc.insecure_channel(f"unix:{folder}/switches/{switch}.sock") as channel:
        version = p4r_grpc.P4RuntimeStub(channel).Capabilities(p4r.CapabilitiesRequest(), timeout=WAIT_S)
    return version.p4runtime_api_version.startswith("1.")


def until(folder: Path, holds: Callable[[FabricCounters], bool]) -> FabricCounters:
    """Return the first statistics that satisfy a condition."""
    last: list[FabricCounters] = []

    def look() -> bool:
        try:
            last[:] = [read_stats(folder / "stats.json")]
        except FabricError:
            return False
        return holds(last[0])

    wait_until(look, lambda: f"last statistics: {last}", limit_s=WAIT_S)
    return last[0]


def test_switches_and_the_fabric_itself_come_back(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector:
        collector.bind(("127.0.0.1", 0))
        text = SETTINGS.format(folder=tmp_path, port=collector.getsockname()[1])
        (tmp_path / "fabric.yaml").write_text(text, encoding="utf-8")
        (tmp_path / "demands.csv").write_text("bit/s,h1,h2\nh1,0,800000\nh2,0,0\n", encoding="utf-8")
        first, metrics = start(tmp_path)
        try:
            assert answers(tmp_path, "leaf1")
            until(tmp_path, lambda counters: counters.pid == first.pid and counters.traffic.sent > 0)
            (manifest,) = [
                candidate
                for path in RUN_ROOT.iterdir()
                if (candidate := Manifest.load(path)) and candidate.owner.pid == first.pid
            ]
            wait_until(
                lambda: ports_up(metrics) == {"leaf1", "spine1"}, lambda: f"up: {ports_up(metrics)}", limit_s=WAIT_S
            )
            manifest.processes[0].send(signal.SIGKILL)
            until(tmp_path, lambda counters: counters.restarts == 1)
        finally:
            first.kill()
            first.communicate()
        again, _ = start(tmp_path)
        try:
            assert answers(tmp_path, "leaf1")
            assert answers(tmp_path, "spine1")
            assert all(not process.is_alive() for process in manifest.processes)
        finally:
            again.terminate()
            again.communicate(timeout=WAIT_S)
    assert not (RUN_ROOT / manifest.fabric_id).exists()
