"""deploy/containerlab without Containerlab: its nodes are namespaces that run the file's commands."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
LAB = ROOT / "deploy/containerlab"
FILE: dict[str, Any] = yaml.safe_load((LAB / "millrace.clab.yml").read_text())
NODES: dict[str, dict[str, Any]] = FILE["topology"]["nodes"]
PREFIX = f"clabtest{os.getpid() % 10_000}"
BRIDGE = f"clab{os.getpid() % 10_000}"

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.timeout(600)]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def inside(node: str, *command: str) -> list[str]:
    """Return a command of a node, in the namespace of the one whose network it has."""
    owner = NODES[node].get("network-mode", f"container:{node}").removeprefix("container:")
    return ["ip", "netns", "exec", f"{PREFIX}-{owner}", *command]


def millrace(state: Path) -> dict[str, str]:
    """Return the environment of a node of the image millrace: the command on its PATH, and its own folder."""
    programs = state / "bin"
    programs.mkdir(parents=True)
    (programs / "millrace").write_text(f'#!/bin/sh\nexec {sys.executable} -m controller.apps.cli "$@"\n')
    (programs / "millrace").chmod(0o755)
    own = {
        "PYTHONPATH": str(ROOT),
        "XDG_RUNTIME_DIR": str(state),
        "XDG_STATE_HOME": str(state / "lib"),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    return dict(os.environ) | own


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Path]:
    """Run the lab in Containerlab's order: containers, then cables, then `exec`."""
    with ExitStack() as stack:
        ip("link", "add", BRIDGE, "type", "bridge")
        stack.callback(ip, "link", "del", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for node, spec in NODES.items():
            if "network-mode" not in spec:
                make_node(stack, node, spec["mgmt-ipv4"])
        for node, spec in NODES.items():
            if "entrypoint" in spec:
                start(stack, node, [spec["entrypoint"], *shlex.split(spec["cmd"])], tmp_path)
        for link in FILE["topology"]["links"]:
            (a, a_device), (b, b_device) = (end.split(":") for end in link["endpoints"])
            peer = ["peer", "name", b_device, "netns", f"{PREFIX}-{b}"]
            ip("link", "add", a_device, "netns", f"{PREFIX}-{a}", "type", "veth", *peer)
            for node, device in ((a, a_device), (b, b_device)):
                subprocess.run(inside(node, "ip", "link", "set", device, "up"), check=True)
        for node, spec in NODES.items():
            for command in spec.get("exec", ()):
                subprocess.run(inside(node, *shlex.split(command)), check=True, capture_output=True)
        settings = tmp_path / "lab"
        settings.mkdir()
        for bind in NODES["control"]["binds"]:
            text = (LAB / bind.split(":")[0]).read_text().replace("/lab/", f"{settings}/")
            (settings / bind.split(":")[0]).write_text(text)
        words = NODES["control"]["cmd"].replace("/lab/", f"{settings}/")
        start(stack, "control", ["millrace", *shlex.split(words)], tmp_path)
        yield tmp_path


def make_node(stack: ExitStack, node: str, address: str) -> None:
    namespace, outside = f"{PREFIX}-{node}", f"{BRIDGE}{node}"
    ip("netns", "add", namespace)
    stack.callback(ip, "netns", "del", namespace)
    ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    ip("link", "set", outside, "master", BRIDGE, "up")
    ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
    for device in ("eth0", "lo"):
        ip("-n", namespace, "link", "set", device, "up")


def start(stack: ExitStack, node: str, command: list[str], state: Path) -> None:
    log = stack.enter_context((state / f"{node}.log").open("w"))
    process = subprocess.Popen(inside(node, *command), env=millrace(state / node), stdout=log, stderr=log)
    stack.callback(process.wait, 60)
    stack.callback(process.terminate)


def eventually(node: str, *command: str, state: Path, patience_s: float = 240.0) -> str:
    """Run a command until it succeeds; return its output."""
    environment = {
        "PYTHONPATH": str(ROOT),
        "XDG_RUNTIME_DIR": str(state / node),
        "XDG_STATE_HOME": str(state / node / "lib"),
    }
    runs: list[subprocess.CompletedProcess[str]] = []

    def succeeds() -> bool:
        runs.append(
            subprocess.run(
                inside(node, *command), env=os.environ | environment, capture_output=True, text=True, check=False
            )
        )
        return runs[-1].returncode == 0

    def failure() -> str:
        logs = "".join(path.read_text()[-3000:] for path in state.glob("*.log"))
        return f"{runs[-1].stdout}{runs[-1].stderr}\n{logs}"

    wait_until(succeeds, failure, limit_s=patience_s, poll_s=1)
    return runs[-1].stdout


ECHO = """
import socket
at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
at.bind(("10.0.2.1", 5000))
while True:
    data, sender = at.recvfrom(100)
    at.sendto(data, sender)
"""
ASK = """
import socket
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.settimeout(1)
asking.bind(("10.0.1.1", 5001))
for number in range(200):
    asking.sendto(b"%d" % number, ("10.0.2.1", 5000))
    assert asking.recv(100) == b"%d" % number
"""


def paths_measured(lab: Path) -> set[tuple[str, ...]]:
    """Return the packets' ways as seen by the collector."""
    command = (sys.executable, "-m", "controller.apps.cli", "telemetry", "paths", "--format", "json")
    return {tuple(path["switches"]) for path in json.loads(eventually("control", *command, state=lab))}


def test_hosts_reach_one_another_and_the_collector_hears_of_it(lab: Path) -> None:
    with subprocess.Popen(inside("h2", sys.executable, "-c", ECHO)) as echo:
        try:
            eventually("h1", sys.executable, "-c", ASK, state=lab)
            eventually("control", sys.executable, "-m", "controller.apps.cli", "status", state=lab)
            for _ in range(30):
                eventually("h1", sys.executable, "-c", ASK, state=lab)
                if paths_measured(lab) == {("s1", "s2"), ("s2", "s1")}:
                    break
            else:
                pytest.fail(f"measured: {paths_measured(lab)}")
        finally:
            echo.terminate()
