"""The circle with real packets and real daemons: bytes cross intact, traffic moves, and killed daemons recover."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from controller.network.tables.entities import EntityKey
from dataplane.fabric.kernel import KernelFabric, remove_leftovers
from dataplane.fabric.kernel.manifest import RUN_ROOT, Manifest
from dataplane.fabric.kernel.namespaces import RUN_NETNS
from tests.integration.kernel_circle import (
    AROUND,
    MS,
    ROOT,
    TOPOLOGY,
    WAIT_S,
    Circle,
    contents,
    flow,
    managed,
    surge,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.root

TRANSFER_BYTES = 150_000


@pytest.fixture(scope="module")
def circle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Circle]:
    """Return the diamond with its three daemons, every switch filled."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    folder = tmp_path_factory.mktemp("circle")
    # In the default folder: should this process be killed, the next fabric removes its leftovers.
    with KernelFabric(TOPOLOGY) as fabric:
        running = Circle(fabric, folder)
        for name in ("collector", "paths", "controller"):
            running.start(name)
        fabric.wait_ready()
        running.until(lambda: running.log_count(": reconciled, ") >= len(TOPOLOGY.switches), "the controller")
        yield running


def address(host: str, family: int) -> str:
    node = TOPOLOGY.host[host]
    ip: IPv4Address | IPv6Address | None = node.ipv6 if family == socket.AF_INET6 else node.ipv4
    return str(ip)


FAMILIES = pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["ipv4", "ipv6"])


@FAMILIES
def test_the_kernels_ping_crosses(circle: Circle, family: int) -> None:
    ping = shutil.which("ping")
    if ping is None:
        pytest.skip("no ping: iputils is not installed")
    option = "-6" if family == socket.AF_INET6 else "-4"
    command = [ping, option, "-n", "-c", "3", "-i", "0.1", "-W", "5", address("hd", family)]
    process = circle.fabric.run_in("ha", command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, output.decode()
    assert b"3 received" in output


@FAMILIES
def test_a_tcp_transfer_arrives_intact_with_telemetry_in_it(circle: Circle, family: int) -> None:
    data = random.Random(family).randbytes(TRANSFER_BYTES)

    def listen() -> socket.socket:
        return socket.create_server((address("hb", family), 7000), family=family)

    def serve(listener: socket.socket) -> None:
        with listener, listener.accept()[0] as accepted:
            accepted.settimeout(WAIT_S)
            digest = hashlib.sha256()
            while part := accepted.recv(1 << 16):
                digest.update(part)
            accepted.sendall(digest.digest())

    def transfer() -> None:
        listener = circle.fabric.call_in("hb", listen)
        listener.settimeout(WAIT_S)
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        with circle.fabric.call_in(
            "hd", lambda: socket.create_connection((address("hb", family), 7000), WAIT_S)
        ) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            answer = client.recv(64)
        server.join(WAIT_S)
        assert answer == hashlib.sha256(data).digest()

    def ways() -> set[tuple[str, ...]]:
        """Return the ways of transfers in recent telemetry: on a busy machine not always of the last one."""
        transfer()
        ends = address("hd", family), address("hb", family), socket.IPPROTO_TCP
        paths = circle.snapshot().paths.items()
        return {state.switches for key, state in paths if (str(key.src), str(key.dst), key.protocol) == ends}

    circle.until(lambda: ways() == {("d", "b")}, "the transfer's telemetry")


def test_uncongested_traffic_is_lossless_and_seen_by_telemetry(circle: Circle) -> None:
    six = flow(4, "hd", "ha", 200_000, ip_version=6)
    with circle.traffic(flow(3, "ha", "hb", 200_000), six) as traffic:
        traffic.pass_packets(3, 30)
        traffic.pass_packets(4, 10)
        circle.until(lambda: circle.ways(six.dst_port) == {("d", "b", "a")}, "telemetry of the flow's path")
    traffic.assert_whole(3)
    traffic.assert_whole(4)
    assert sum(state.lost for state in circle.snapshot().reporters.values()) == 0


def test_a_flow_leaves_the_congested_link(circle: Circle) -> None:
    if circle.is_around():
        pytest.skip("the flow was moved by another test already")
    with circle.traffic(managed(1), surge(2)) as traffic:
        circle.until(circle.is_around, "a decision")
        decided_ns = traffic.now_ns()
        circle.until(circle.is_as_wanted, "its tables")
        traffic.pass_packets(1, 60)
        moved_ns = traffic.now_ns()
        traffic.pass_packets(1, 50)
        circle.until(lambda: circle.ways(managed(1).dst_port) == {AROUND}, "telemetry of the way around")
    congested = traffic.measure(1, decided_ns - 500 * MS, decided_ns)
    after = traffic.measure(1, moved_ns)
    assert congested.delay_mean_ns is not None
    assert after.delay_mean_ns is not None
    assert after.delay_mean_ns < congested.delay_mean_ns / 2
    assert (after.lost, after.late, after.duplicates) == (0, 0, 0)


def test_restarted_controller_leaves_correct_tables_alone(circle: Circle) -> None:
    circle.congest()
    before, routes, right = contents(circle.tables()), circle.routes(), circle.log_count(": reconciled, ")
    untouched = circle.log_count(": reconciled, 0 updates written")
    with circle.traffic(managed(8), flow(3, "ha", "hb", 200_000), flow(4, "hd", "ha", 200_000)) as traffic:
        circle.kill("controller")
        traffic.pass_packets(3, 20)
        circle.start("controller")
        circle.until(lambda: circle.log_count(": reconciled, ") == right + len(TOPOLOGY.switches), "the controller")
        traffic.pass_packets(4, 10)
    for number in (8, 3, 4):
        traffic.assert_whole(number)
    # On a busy machine the path server may reroute the flow meanwhile: only that may change.
    if circle.routes() == routes:
        assert circle.log_count(": reconciled, 0 updates written") == untouched + len(TOPOLOGY.switches)
        assert contents(circle.tables()) == before
    assert _standing(contents(circle.tables())) == _standing(before)


def test_a_killed_switch_is_filled_again(circle: Circle) -> None:
    circle.congest()
    before, routes, right = contents(circle.tables()), circle.routes(), circle.log_count("switch c: reconciled, ")
    with circle.traffic(managed(5), flow(3, "hb", "hd", 200_000), flow(4, "hd", "ha", 200_000)) as traffic:
        traffic.pass_packets(5, 10)
        circle.fabric.stop_switch("c", kill=True)
        traffic.pass_packets(3, 10)
        circle.fabric.start_switch("c")
        circle.until(lambda: circle.log_count("switch c: reconciled, ") == right + 1, "switch c")
        traffic.pass_packets(5, 20)
        # On a busy machine links die for a moment: then the flow may have left c, which has nothing to report.
        circle.until(lambda: "c" in _reporting(circle) or not circle.is_around(), "reports of c")
    # Only traffic through c was affected, and it has recovered.
    traffic.assert_whole(3)
    traffic.assert_whole(4)
    assert traffic.measure(5).lost > 0
    circle.until(circle.is_as_wanted, "the tables")
    after = contents(circle.tables())
    if circle.routes() == routes:
        assert after == before
    # A slow restart lets the switch's links die, and the flow is led around it: only that may change.
    assert _standing(after) == _standing(before)


def _standing(tables: dict[str, dict[object, object]]) -> dict[str, dict[object, object]]:
    """Return the tables without paths of single flows."""
    return {
        switch: {key: held for key, held in entries.items() if not _is_of_a_flow(key)}
        for switch, entries in tables.items()
    }


def _is_of_a_flow(key: object) -> bool:
    return isinstance(key, EntityKey) and key.table.endswith("_flow_paths")


def _reporting(circle: Circle) -> set[str]:
    """Return the switches that are on a path of the collector's snapshot."""
    return {name for state in circle.snapshot().paths.values() for name in state.switches}


def test_a_killed_path_server_remembers_its_routes(circle: Circle) -> None:
    circle.congest()
    before, routes = contents(circle.tables()), circle.routes()
    with circle.traffic(managed(6), flow(3, "hb", "ha", 200_000)) as traffic:
        traffic.pass_packets(6, 10)
        circle.kill("paths")
        traffic.pass_packets(6, 20)
        circle.start("paths")
        assert circle.routes() == routes
        circle.until(lambda: circle.path_status().snapshot_age_ns is not None, "a snapshot at the path server")
        traffic.pass_packets(6, 30)
    traffic.assert_whole(6)
    traffic.assert_whole(3)
    assert circle.routes() == routes
    assert contents(circle.tables()) == before


def test_after_a_killed_collector_telemetry_resumes(circle: Circle) -> None:
    circle.congest()
    before, routes = contents(circle.tables()), circle.routes()
    with circle.traffic(managed(7), flow(3, "hb", "ha", 200_000)) as traffic:
        traffic.pass_packets(7, 10)
        circle.kill("collector")
        traffic.pass_packets(7, 20)
        circle.start("collector")
        circle.until(
            # On a busy machine the path server may reroute the flow meanwhile.
            lambda: bool(ways := circle.ways(managed(7).dst_port)) and (ways == {AROUND} or circle.routes() != routes),
            "reports on the flow",
        )
        circle.until(lambda: _is_fresh(circle), "a fresh snapshot at the path server")
    traffic.assert_whole(7)
    traffic.assert_whole(3)
    if circle.routes() == routes:
        assert contents(circle.tables()) == before
    assert _standing(contents(circle.tables())) == _standing(before)


def _is_fresh(circle: Circle) -> bool:
    age_ns = circle.path_status().snapshot_age_ns
    return age_ns is not None and age_ns < 500 * MS


TRIANGLE = """
millrace: 1
name: triangle
collector: {host: hw}
synchronised_clocks: true
defaults: {link: {rate: 2 Mbit/s, delay: 1 ms, queue_frames: 32}, access: {rate: 50 Mbit/s, queue_frames: 64}}
switches: [{name: a}, {name: b}, {name: c}]
hosts: [{name: ha, switch: a}, {name: hb, switch: b}, {name: hw, switch: c}]
links: [{a: a, b: b}, {a: b, b: c}, {a: a, b: c}]
"""


def until(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, f"never: {what}", limit_s=WAIT_S, poll_s=0.05)


def manifest_of(owner: int) -> Manifest | None:
    """Return the manifest of the fabric that a process owns."""
    for run_dir in RUN_ROOT.glob("*"):
        manifest = Manifest.load(run_dir)
        if manifest is not None and manifest.owner.pid == owner:
            return manifest
    return None


def remains(manifest: Manifest) -> list[str]:
    """Return the leftovers of a fabric: processes, namespaces, its folder."""
    processes = [str(process.pid) for process in manifest.processes if process.is_alive()]
    namespaces = [path.name for path in RUN_NETNS.glob(f"mr-{manifest.fabric_id}-*")]
    return processes + namespaces + [str(path) for path in RUN_ROOT.glob(manifest.fabric_id)]


def test_what_a_killed_demo_leaves_is_removed(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    (tmp_path / "triangle.yaml").write_text(TRIANGLE, encoding="utf-8")
    command = [sys.executable, "-m", "controller.apps.cli", "demo", "--time", "kernel", "--out", str(tmp_path / "out")]
    command += ["--topology", str(tmp_path / "triangle.yaml")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (tmp_path / "log").open("wb") as log:
        demo = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        until(lambda: demo.poll() is not None or _agents_run(demo.pid), "the demo's hosts")
        assert demo.poll() is None, (tmp_path / "log").read_text()
        manifest = manifest_of(demo.pid)
        assert manifest is not None
        # Three switches, three daemons and the agents of two hosts.
        assert len(manifest.processes) == 8
        assert len(remains(manifest)) == 8 + 6 + 1
    finally:
        demo.kill()
        demo.wait(WAIT_S)
    remove_leftovers()
    assert remains(manifest) == []


def _agents_run(owner: int) -> bool:
    manifest = manifest_of(owner)
    return manifest is not None and len(list((RUN_ROOT / manifest.fabric_id).glob("*.flows"))) == 2
