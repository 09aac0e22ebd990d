"""Resources of a node, and the counters of its network namespace."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from collectors.devices.root import Root
from controller.apiserver.agents.access import namespace_of
from controller.workloads.nodes.errors import NodeError
from controller.workloads.nodes.machine import Gauges, Machine, by_number, link_of, machine_of
from controller.workloads.nodes.settings import NodeSettings
from dataplane.clock import VirtualClock
from dataplane.fabric.kernel import namespaces
from tests.collectors.devices.machines import PCI, SERVER, SERVER_LINKS, pci
from tests.collectors.devices.nvml_library import environment_with_library
from tests.recorded import write_tree

TOPOLOGY = """\
millrace: 1
name: one
defaults: {access: {rate: 10 Mbit/s, delay: 1 us}}
switches: [{name: s1}]
hosts:
- {name: h1, switch: s1, cores: 4, devices: [{kind: gpu, count: 2}, {kind: npu}]}
- {name: h2, switch: s1}
"""


@pytest.fixture
def topology(tmp_path: Path) -> str:
    file = tmp_path / "one.yaml"
    file.write_text(TOPOLOGY)
    return str(file)


def settings(**more: object) -> NodeSettings:
    return NodeSettings(**({"node": "h1", "state": "state"} | more))  # type: ignore[arg-type]


def test_topology_hardware_overrides_the_machines(topology: str) -> None:
    stated = machine_of(settings(topology=topology), "no NVML")
    assert (stated.hardware.cpu_milli, stated.is_stated, stated.link_rate_bps) == (4000, True, 10_000_000)
    assert {number: kind.value for number, kind in by_number({}, stated.hardware).items()} == {
        0: "gpu",
        1: "gpu",
        2: "npu",
    }
    machine = machine_of(settings(node="h2", topology=topology), "no NVML")
    assert machine.hardware == machine_of(settings(), "no NVML").hardware
    assert (machine.is_stated, machine.link_rate_bps) == (False, 10_000_000)
    with pytest.raises(NodeError, match="topology one: has no host h3"):
        machine_of(settings(node="h3", topology=topology), "no NVML")


def test_path_of_a_network_namespace() -> None:
    assert namespace_of(None) is None
    assert namespace_of("blue") == Path("/run/netns/blue")
    assert namespace_of("/proc/1/ns/net") == Path("/proc/1/ns/net")
    assert namespace_of("ab12cd:h1") == Path("/run/netns/mr-ab12cd-h1")


def test_devices_keep_their_numbers_when_one_is_not_found(tmp_path: Path) -> None:
    root, folder = Root(write_tree(tmp_path / "machine", SERVER, SERVER_LINKS)), tmp_path / "state"
    folder.mkdir()
    first = machine_of(settings(), "no NVML", root, folder=folder)
    assert first.gone == {}
    shutil.rmtree(root.path / PCI / "0000:41:00.0")
    write_tree(root.path, pci("0000:21:00.0", "0x030200", "0x10de", "0x20b5"))
    second = machine_of(settings(), "no NVML", root, folder=folder)
    assert second.addresses == (*first.addresses, "0000:21:00.0")
    assert [device.number for device in second.hardware.devices if device.gone] == [0]
    assert second.gone == {0: "0000:41:00.0: it was not found when the manager started"}
    (folder / "devices.json").write_text("[")
    with pytest.raises(NodeError, match=r"devices\.json: .*: without it, devices are numbered anew"):
        machine_of(settings(), "no NVML", root, folder=folder)


INSTANCES = """
import sys
from pathlib import Path
from collectors.devices.nvml import open_nvml
from collectors.devices.root import Root
from controller.workloads.nodes.machine import machine_of
from controller.workloads.nodes.settings import NodeSettings
with open_nvml() as nvml:
    machine = machine_of(NodeSettings(node="h1", state="state"), nvml, Root(Path(sys.argv[1])))
    print([device.model for device in machine.hardware.devices], dict(machine.handles))
"""


def test_item_17_instances_are_devices_with_handles(tmp_path: Path) -> None:
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed (the extra nvml)")
    command = [sys.executable, "-c", INSTANCES, str(write_tree(tmp_path / "root", {}, {}))]
    environment = environment_with_library(tmp_path) | {"FAKE_NVML_INSTANCES": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    part = "Fake A1 MIG 2g.5gb"
    assert done.stdout == f"{['Fake A1', part, part]} { {0: 'GPU-1', 1: 'MIG-30', 2: 'MIG-31'} }\n"


GAUGES = """
import sys
from pathlib import Path
from collectors.devices.discovery import discover
from collectors.devices.nvml import open_nvml
from collectors.devices.root import Root
from controller.apiserver.resources.hardware import Hardware
from controller.cluster.hardware.nodes import node_of_machine
from controller.workloads.nodes.machine import Gauges, Machine
from controller.workloads.nodes.settings import NodeSettings
from dataplane.clock import VirtualClock
root = Root(Path(sys.argv[1]))
with open_nvml() as nvml:
    found = discover(root, nvml)
    machine = Machine(Hardware.of(node_of_machine("h1", found)), False, tuple(d.address for d in found.devices))
    settings = NodeSettings(node="h1", state="state")
    gauges = Gauges(settings, machine, VirtualClock(), nvml, cgroup="/millrace/h1-id", root=root)
    activity = gauges.read().activities[0]
    print(activity.busy, dict(activity.pods), round(activity.others, 2))
"""


def test_device_time_is_attributed_to_pods_by_control_group(tmp_path: Path) -> None:
    """A container in a pod's group, one of another node's pod, and a process that has ended."""
    pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed (the extra nvml)")
    tree = {
        "proc/10/cgroup": "12:cpu:/millrace/h1-id/pod-web/libpod-1\n0::/\n",
        "proc/11/cgroup": "0::/docker/5/millrace/h1-id/pod-web/libpod-2/nested\n",
        "proc/12/cgroup": "0::/millrace/h1-other/pod-web/libpod-3\n",
    }
    command = [sys.executable, "-c", GAUGES, str(write_tree(tmp_path / "root", tree, {}))]
    environment = environment_with_library(tmp_path)
    environment |= {"FAKE_NVML_BUSY": "97", "FAKE_NVML_PROCESSES": "10:30,11:20,12:25,13:5"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "0.97 {'web': 0.5} 0.3\n"


@pytest.fixture
def blue() -> Iterator[str]:
    """A network namespace with both ends of a veth pair."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    name = f"mr-{secrets.token_hex(3)}-h1"
    namespaces.create(name)
    try:
        namespaces.call(name, _make_device)
        yield name
    finally:
        namespaces.remove(name)


@pytest.mark.root
def test_a_hosts_own_counters_are_read_in_its_namespace(blue: str) -> None:
    clock = VirtualClock(10**9)
    machine = Machine(machine_of(settings(), "no NVML").hardware, is_stated=False, link_rate_bps=10_000_000)
    gauges = Gauges(settings(network_namespace=blue, interface="eth0"), machine, clock, "no NVML")
    assert gauges.read().rates is None
    namespaces.call(blue, lambda: _send(100, 458))
    clock.advance_to(2 * 10**9)
    rates = gauges.read().rates
    assert rates is not None
    link = link_of(rates, clock.now_ns() + 5)
    assert link is not None
    assert gauges.problem == ""
    # 458 bytes, 500 with headers, 524 on the wire; plus the kernel's own packets.
    assert 100 * 524 * 8 <= link.sent_bps < 100 * 524 * 8 + 20_000
    assert (link.rate_bps, link.age_ns) == (10_000_000, 5)
    gone = Gauges(settings(network_namespace="nowhere"), machine, clock, "no NVML")
    assert gone.read().rates is None
    assert gone.problem == "network counters: network namespace /run/netns/nowhere: No such file or directory"


def _make_device() -> None:
    with IPRoute() as ip:
        ip.link("add", ifname="eth0", kind="veth", peer="other")
        index, other = (ip.link_lookup(ifname=name)[0] for name in ("eth0", "other"))
        ip.addr("add", index=index, address="10.9.9.1", prefixlen=24, broadcast="10.9.9.255")
        for number in (index, other):
            ip.link("set", index=number, state="up")


def _send(packets: int, size: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for _ in range(packets):
            out.sendto(b"x" * size, ("10.9.9.255", 9))
