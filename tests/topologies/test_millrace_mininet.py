"""The Mininet script: the same topology file, either switch, real pings between Mininet's hosts."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import finsy as fy
import pytest

from dataplane.program.loader import load_program
from dataplane.switch.compiled.program import Purpose, compile_program
from dataplane.topology.addressing import mac_at
from dataplane.topology.file import loads
from dataplane.topology.values import Topology
from tests.waiting import finish_within

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "p4" / "build"
DEADLINE_S = 60.0
TOPOLOGY = """
millrace: 1
name: pair
defaults: {access: {rate: 100 Mbit/s, delay: 10 us, queue_frames: 64}, link: {queue_frames: 64}}
switches: [{name: s1}, {name: s2}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s2}]
links: [{a: s1, b: s2, rate: 10 Mbit/s, delay: 2 ms}]
"""


@pytest.fixture(params=["millrace", pytest.param("bmv2", marks=pytest.mark.bmv2)])
def mininet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    for command, package in (("mnexec", "mininet"), ("ping", "iputils-ping"), ("ip", "iproute2")):
        if shutil.which(command) is None:
            pytest.skip(f"needs Debian's package {package}")
    if request.param == "bmv2" and shutil.which("simple_switch_grpc") is None:
        pytest.skip("needs simple_switch_grpc on the PATH")
    if request.param == "millrace":
        # So that finsy's ten seconds suffice on a busy machine, whose switches find it in the cache then.
        compile_program(load_program(BUILD / "fabric.json", BUILD / "fabric.p4info.txtpb"), Purpose.FORWARDING)
    file = tmp_path / "pair.yaml"
    file.write_text(TOPOLOGY)
    argv = [sys.executable, str(ROOT / "topologies" / "millrace_mininet.py"), str(file), "--switch", request.param]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(os.environ) | {"PYTHONPATH": str(ROOT)},
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()


@pytest.mark.root
def test_hosts_reach_each_other(mininet: subprocess.Popen[str]) -> None:
    topology = loads(TOPOLOGY)
    addresses = dict(_read_addresses(mininet.stdout))
    asyncio.run(finish_within(_install_paths(topology, addresses), DEADLINE_S))
    target = topology.host["h2"].ipv4
    output, _ = mininet.communicate(f"h1 ping -c 2 -i 0.2 -W 5 {target}\nexit\n", timeout=DEADLINE_S)
    assert "2 packets transmitted, 2 received, 0% packet loss" in output
    assert mininet.returncode == 0


def _read_addresses(lines: IO[str] | None) -> Iterator[tuple[str, str]]:
    assert lines is not None
    for line in lines:
        if line.strip() == "ready":
            return
        name, separator, rest = line.partition(": device ")
        assert separator, line
        yield name, rest.rpartition(" ")[2].strip()
    raise AssertionError("the script ended before it was ready")


async def _install_paths(topology: Topology, addresses: dict[str, str]) -> None:
    for node in topology.switches:
        options = fy.SwitchOptions(
            p4info=BUILD / "fabric.p4info.txtpb", p4blob=BUILD / "fabric.json", device_id=node.node_id
        )
        async with fy.Switch(node.name, addresses[node.name], options) as switch:
            for host in topology.hosts:
                port = 1 if topology.attachment[host.name].node == node.name else 2
                far = topology.neighbours[node.name][port]
                action = fy.P4TableAction("forward", egress_port=port, dst_mac=mac_at(topology, far.node, far.port))
                match = fy.P4TableMatch(dst_addr=str(host.ipv4))
                await switch.write([+fy.P4TableEntry("ipv4_destination_paths", match=match, action=action)])
