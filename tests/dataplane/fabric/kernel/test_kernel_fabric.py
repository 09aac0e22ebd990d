"""Topologies in the kernel: real frames through real switch processes, and nothing ever left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dataplane.errors import FabricError
from dataplane.fabric.hosts import flow_between
from dataplane.fabric.kernel import KernelFabric, KernelSettings, Target, remove_leftovers
from dataplane.fabric.kernel.agents import HostAgents
from dataplane.fabric.kernel.fabric import switch_device
from dataplane.fabric.kernel.namespaces import RUN_NETNS
from dataplane.linux import ask_receive_buffer
from dataplane.local.deadline import LocalDeadline
from dataplane.nic.devices.far_end import SWITCH_THERE, FarEnd, NamespacePaths
from dataplane.switch import bmv2
from dataplane.topology.file import loads
from dataplane.topology.values import Topology
from tests.dataplane.fabric.kernel.paths import install_paths
from tests.waiting import HANG_S, wait_until

ROOT = Path(__file__).parents[4]
BUILD = ROOT / "p4" / "build"
WAIT_S = 30.0
TOPOLOGY = """
millrace: 1
name: pair
defaults: {access: {rate: 100 Mbit/s, delay: 10 us, queue_frames: 64}, link: {queue_frames: 64}}
switches: [{name: s1}, {name: s2}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s2}]
links: [{a: s1, b: s2, rate: 10 Mbit/s, delay: 2 ms}]
"""


@pytest.fixture(scope="module")
def topology() -> Topology:
    return loads(TOPOLOGY)


@pytest.fixture
def settings(tmp_path: Path) -> KernelSettings:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    return KernelSettings(run_root=tmp_path / "run")


@pytest.fixture
def agents(fabric: KernelFabric) -> Iterator[HostAgents]:
    with HostAgents(fabric) as made:
        yield made


@pytest.fixture
def fabric(topology: Topology, settings: KernelSettings) -> Iterator[KernelFabric]:
    with KernelFabric(topology, settings) as running:
        running.wait_ready(WAIT_S)
        yield running


def reader_behind(port: int) -> str:
    """Return what takes the frames that a switch's port of this namespace sends."""
    there = FarEnd(socket.if_nametoindex(switch_device(port)), (), NamespacePaths())
    try:
        return there.look()
    finally:
        there.close()


def traces(fabric_id: str) -> list[str]:
    """Return what a fabric left behind: namespaces, and processes whose environment or arguments name it."""
    namespaces = [path.name for path in RUN_NETNS.glob(f"mr-{fabric_id}-*")]
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if fabric_id.encode() in (entry / "cmdline").read_bytes():
                    lines.append(entry.name)
            except OSError:
                continue
    return namespaces + lines


def open_udp(fabric: KernelFabric, host: str, family: int = socket.AF_INET) -> socket.socket:
    def make() -> socket.socket:
        opened = socket.socket(family, socket.SOCK_DGRAM)
        opened.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", 7000))
        opened.settimeout(5.0)
        return opened

    return fabric.call_in(host, make)


@pytest.mark.root
def test_datagrams_cross_two_switches_at_the_slow_links_rate(fabric: KernelFabric) -> None:
    install_paths(fabric)
    target = str(fabric.topology.host["h2"].ipv4)
    payload = bytes(range(256)) * 4
    with open_udp(fabric, "h1") as sender, open_udp(fabric, "h2") as receiver:
        sender.sendto(b"first", (target, 7000))
        assert receiver.recv(2000) == b"first"
        started_ns = time.monotonic_ns()
        for index in range(40):
            sender.sendto(index.to_bytes(2, "big") + payload, (target, 7000))
        received = [receiver.recv(2000) for _ in range(40)]
        took_ns = time.monotonic_ns() - started_ns
    assert received == [index.to_bytes(2, "big") + payload for index in range(40)]
    # No frame overtakes the rate of the middle link: 1068 bytes and 24 of overhead at 10 Mbit/s, then 2 ms of cable.
    assert took_ns >= 40 * (1068 + 24) * 8 * 100 + 2_000_000


@pytest.mark.root
def test_no_agent_sends_before_every_agent_can_receive(fabric: KernelFabric, agents: HostAgents) -> None:
    """An agent without CPU time at its start makes all wait; then nothing is lost."""
    install_paths(fabric)
    flow = flow_between(fabric.topology, 5, "h1", "h2", 800_000, stop_ns=200_000_000)
    agents.start("h1", send=(flow,), receive_ports=(), end_ns=700_000_000, seed=1)
    agents.start("h2", send=(), receive_ports=(flow.dst_port,), end_ns=700_000_000, seed=1)
    slow = agents._agents["h2"].process
    slow.send_signal(signal.SIGSTOP)
    wait_until(lambda: agents.waiting() == ("h2",), "h2 alone is awaited")
    slow.send_signal(signal.SIGCONT)
    wait_until(lambda: not agents.waiting(), "agents are ready")
    agents.begin(time.monotonic_ns() + 100_000_000)
    wait_until(lambda: not agents.running(), "agents have ended")
    load, received = agents.loads()[5], agents.receivers()["h2"].measure(5, 0, 10**9)
    assert load.planned == load.sent + load.skipped == 20
    assert (received.packets, received.lost) == (load.sent, 0)


@pytest.mark.root
def test_an_agent_that_ends_before_its_start_is_named(agents: HostAgents) -> None:
    agents.start("h1", send=(), receive_ports=(7, 7), end_ns=1, seed=1)
    with pytest.raises(FabricError, match=r"host h1: its agent: ended with status 1: .*Address already in use"):
        wait_until(lambda: not agents.waiting(), "agents are ready")


@pytest.mark.root
def test_cables_can_lose_one_way_and_break(fabric: KernelFabric) -> None:
    install_paths(fabric)
    there, back = ("h1", "h2"), ("h2", "h1")
    with open_udp(fabric, "h1") as one, open_udp(fabric, "h2") as two:

        def crosses(src: str, dst: str) -> bool:
            sender, receiver = (one, two) if src == "h1" else (two, one)
            receiver.settimeout(0.3)
            sender.sendto(b"x", (str(fabric.topology.host[dst].ipv4), 7000))
            try:
                return receiver.recv(10) == b"x"
            except TimeoutError:
                return False

        wait_until(lambda: crosses(*there) and crosses(*back), "both ways")
        fabric.lose("s1", "s2", lost=True)
        assert not crosses(*there)
        wait_until(lambda: crosses(*back), "the other way")
        fabric.lose("s1", "s2", lost=False)
        wait_until(lambda: crosses(*there), "the way that was lost")
        fabric.set_link("s2", "s1", up=False)
        assert not crosses(*there)
        assert not crosses(*back)
        fabric.set_link("s2", "s1", up=True)
        wait_until(lambda: crosses(*there) and crosses(*back), "both ways again")
    with pytest.raises(FabricError, match="pair: there is no cable between 'h1' and 's2'"):
        fabric.lose("h1", "s2", lost=True)


FRAMES = 640


@pytest.mark.root
def test_links_lose_their_share_and_jitter_keeps_the_order(settings: KernelSettings) -> None:
    """Only the middle link, with the kernel's own random numbers: half, within seven standard deviations."""
    rough = TOPOLOGY.replace("delay: 2 ms}", "delay: 2 ms, loss: 50%, jitter: 2ms}").replace("10 Mbit/s", "100 Mbit/s")
    with KernelFabric(loads(rough), settings) as fabric:
        fabric.wait_ready(WAIT_S)
        install_paths(fabric)
        with open_udp(fabric, "h1") as one, open_udp(fabric, "h2") as two:
            for sender, receiver, ends in ((one, two, ("s1", "s2")), (two, one, ("s2", "s1"))):
                ask_receive_buffer(receiver, 1 << 22)
                host = fabric.topology.host["h2" if receiver is two else "h1"]
                receiver.settimeout(0.05)
                received: list[int] = []
                for start in range(0, FRAMES, 32):
                    for index in range(start, start + 32):
                        sender.sendto(index.to_bytes(2, "big"), (str(host.ipv4), 7000))
                    # Frames in flight arrive before more are sent: no queue fills, however busy the machine.
                    deadline = LocalDeadline(WAIT_S, "a test")
                    while fabric.lost_by_chance(*ends) + len(received) < start + 32:
                        assert not deadline.has_passed()
                        with suppress(TimeoutError):
                            received.append(int.from_bytes(receiver.recv(10), "big"))
                lost = fabric.lost_by_chance(*ends)
                assert lost + len(received) == FRAMES
                assert abs(lost - FRAMES / 2) < 7 * (FRAMES * 0.5 * 0.5) ** 0.5
                assert received == sorted(received)
        assert fabric.lost_by_chance("h1", "s1") == 0
    with pytest.raises(FabricError, match="there is no cable between 'h1' and 's2'"):
        fabric.lost_by_chance("h1", "s2")


@pytest.mark.root
def test_ipv6_crosses_too_and_the_counters_say_so(fabric: KernelFabric) -> None:
    install_paths(fabric)
    target = str(fabric.topology.host["h1"].ipv6)
    with (
        open_udp(fabric, "h2", socket.AF_INET6) as sender,
        open_udp(fabric, "h1", socket.AF_INET6) as receiver,
    ):
        sender.sendto(b"six", (target, 7000))
        assert receiver.recv(100) == b"six"
    fabric.stop_switch("s1")
    ports = fabric.read_stats("s1")["ports"]
    assert (ports["2"]["rx_frames"], ports["1"]["tx_frames"]) == (1, 1)


@pytest.mark.root
@pytest.mark.bmv2
def test_the_same_topology_runs_on_bmv2(topology: Topology, settings: KernelSettings) -> None:
    if not bmv2.is_installed():
        pytest.skip("needs simple_switch_grpc on the PATH")
    with KernelFabric(topology, replace(settings, target=Target.BMV2, log_level="off")) as fabric:
        fabric.wait_ready(WAIT_S)
        install_paths(fabric)
        with open_udp(fabric, "h1") as sender, open_udp(fabric, "h2") as receiver:
            sender.sendto(b"bmv2", (str(topology.host["h2"].ipv4), 7000))
            assert receiver.recv(2000) == b"bmv2"


@pytest.mark.root
def test_a_switch_that_dies_is_named_and_can_be_started_again(fabric: KernelFabric) -> None:
    process = fabric._switches["s2"]
    process.kill()
    process.wait(HANG_S)
    with pytest.raises(FabricError, match="switch s2: killed by SIGKILL"):
        fabric.check()
    fabric.start_switch("s2")
    with pytest.raises(FabricError, match="switch s2 is already running"):
        fabric.start_switch("s2")
    fabric.wait_ready(WAIT_S)
    assert fabric.call_in("s1", lambda: reader_behind(2)) == SWITCH_THERE
    install_paths(fabric)
    fabric.stop_switch("s2", kill=True)
    with pytest.raises(FabricError, match="switch s2 is not running"):
        fabric.stop_switch("s2")


@pytest.mark.root
def test_processes_run_where_they_should_and_end_with_the_fabric(topology: Topology, settings: KernelSettings) -> None:
    with KernelFabric(topology, settings) as fabric:
        process = fabric.run_in("h1", ["/bin/sleep", "100"])
        inode = (RUN_NETNS / fabric.namespace("h1")).stat().st_ino
        assert Path(f"/proc/{process.pid}/ns/net").stat().st_ino == inode
        own = Path("/proc/self/ns/net").stat().st_ino
        with pytest.raises(FabricError, match="no node h9"):
            fabric.run_in("h9", ["/bin/true"])
        with pytest.raises(FabricError, match="/nowhere cannot be started"):
            fabric.run_in("h1", ["/nowhere"])
        assert Path("/proc/self/ns/net").stat().st_ino == own
    assert process.returncode is not None
    assert traces(fabric.fabric_id) == []
    assert not fabric.run_dir.exists()


@pytest.mark.root
def test_an_exception_leaves_nothing(topology: Topology, settings: KernelSettings) -> None:
    fabric = KernelFabric(topology, settings)
    with pytest.raises(ZeroDivisionError), fabric:
        raise ZeroDivisionError
    assert traces(fabric.fabric_id) == []
    assert list(settings.run_root.iterdir()) == []


@pytest.mark.root
def test_a_fabric_that_cannot_be_built_leaves_nothing(
    topology: Topology, settings: KernelSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = KernelFabric(topology, settings)

    def fail(name: str) -> None:
        raise FabricError(f"{name} fails")

    monkeypatch.setattr(fabric, "start_switch", fail)
    with pytest.raises(FabricError, match="s1 fails"):
        fabric.__enter__()
    assert traces(fabric.fabric_id) == []


@pytest.mark.root
def test_waiting_for_what_does_not_come_names_it(fabric: KernelFabric) -> None:
    (fabric.run_dir / "s1.ready").unlink()
    with pytest.raises(FabricError, match=r"switches s1 are not ready after 0\.1 s"):
        fabric.wait_ready(0.1)


SCRIPT = """
import sys, time
from pathlib import Path
from dataplane.fabric.hosts import flow_between
from dataplane.fabric.kernel import KernelFabric, KernelSettings
from dataplane.topology.file import loads
from dataplane.switch import bmv2

with KernelFabric(loads(sys.argv[2]), KernelSettings(run_root=Path(sys.argv[1]))) as fabric:
    fabric.wait_ready(30)
    print(fabric.fabric_id, flush=True)
    time.sleep(100)
"""


def run_elsewhere(settings: KernelSettings) -> tuple[subprocess.Popen[bytes], str]:
    """Build the fabric in another process; return it and the fabric's id."""
    argv = [sys.executable, "-c", SCRIPT, str(settings.run_root), TOPOLOGY]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    return process, process.stdout.readline().decode().strip()


@pytest.mark.root
def test_sigterm_removes_everything(settings: KernelSettings) -> None:
    process, fabric_id = run_elsewhere(settings)
    assert len(fabric_id) == 6
    with process:
        process.terminate()
        assert process.wait(HANG_S) == 128 + signal.SIGTERM
    assert traces(fabric_id) == []


@pytest.mark.root
def test_killed_fabric_is_cleaned_up_by_the_next_start(topology: Topology, settings: KernelSettings) -> None:
    process, fabric_id = run_elsewhere(settings)
    with process:
        assert remove_leftovers(settings.run_root) == []
        process.kill()
        process.wait(HANG_S)
    wait_until(lambda: not any(trace.isdecimal() for trace in traces(fabric_id)), "the switches go on")
    assert len(traces(fabric_id)) == 4
    with KernelFabric(topology, settings) as fabric:
        assert traces(fabric_id) == []
        assert [path.name for path in settings.run_root.iterdir()] == [fabric.fabric_id]


def test_without_root_the_error_is_one_clear_line(topology: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(FabricError, match="needs root"):
        KernelFabric(topology).__enter__()
