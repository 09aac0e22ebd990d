"""From manifests to real containers: podman and runc, in hosts' namespaces, over switches; and user errors."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.apiserver.resources import Node, Pod
from controller.apiserver.resources.pod import Phase
from controller.workloads.nodes.process import serve as serve_node
from controller.workloads.nodes.runtimes.settings import RuntimeKind, RuntimeSettings
from controller.workloads.nodes.settings import NodeSettings
from dataplane.fabric.kernel import KernelFabric
from tests.controller.workloads.nodes.busybox_image import (
    podman_environment,
    remove_podman_storage,
    skip_without_containers,
    write_layout,
)
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.integration.placement_world import CommandResult, PlacementWorld, fabric_of
from tests.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.root, pytest.mark.containers, pytest.mark.slow]

SCRIPT = r"""
pod:
  name: server
  image: IMAGE
  command: [sh, -c, "echo hello > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"]
  cpu: 500m
  memory: 64 MiB
  location: {node: h3}
  stop_grace: 1 s
---
pod:
  name: reader
  image: IMAGE
  command: [sh, -c, "while :; do printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 ADDRESS 8080; sleep 0.2; done"]
  cpu: 500m
  devices: [{kind: gpu, share: 500m}]
  peers: [{pod: server, min_bandwidth: 5 Mbit/s, max_delay: 2 ms}]
  stop_grace: 1 s
"""


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodmanStorage]:
    skip_without_containers("podman", "runc", "conmon", "skopeo", "umoci")
    folder = tmp_path_factory.mktemp("pods")
    environment = podman_environment(folder / "podman")
    digest = write_layout(folder / "image")
    try:
        yield PodmanStorage(folder / "podman", environment, f"oci:{folder / 'image'}:latest", digest)
    finally:
        remove_podman_storage(folder / "podman", environment)


@pytest.fixture
def service(storage: PodmanStorage, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A podman service that a test may pause; created before the world, whose managers need it to their end."""
    command = ["podman", "system", "service", "--time", "0", f"unix://{tmp_path}/podman.sock"]
    process = subprocess.Popen(command, env={**os.environ, **storage.environment}, stderr=subprocess.DEVNULL)
    try:
        wait_until((tmp_path / "podman.sock").exists, "podman's service has no socket")
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(HANG_S)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A podman storage too small for an image; created before the world, too."""
    folder = tmp_path / "full"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], check=True)
    environment = podman_environment(folder / "podman")
    try:
        yield environment
    finally:
        remove_podman_storage(folder / "podman", environment)
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def world(storage: PodmanStorage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlacementWorld]:
    with PlacementWorld(tmp_path_factory.mktemp("w"), storage) as running:
        yield running
    assert running.containers() == []


@pytest.fixture
def fabric(world: PlacementWorld) -> Iterator[KernelFabric]:
    with fabric_of(world.topology, world.folder) as running:
        yield running


def test_pod_script_runs_is_killed_restarts_and_is_deleted(world: PlacementWorld, fabric: KernelFabric) -> None:
    script = SCRIPT.replace("ADDRESS", str(fabric.topology.host["h3"].ipv4))
    in_namespace = {name: fabric.namespace(name) for name in ("h2", "h3")}
    runc = world.node_settings(
        "h2",
        network_namespace=in_namespace["h2"],
        runtime=RuntimeSettings(kind=RuntimeKind.RUNC, image_folders=world.storage.image_folders),
    )
    world.start(serve_node, runc)
    settings = world.node_settings("h3", network_namespace=in_namespace["h3"])
    with world.process(settings) as manager:
        world.until_ready("h2", "h3")
        world.apply(script, "--wait")
        assert (world.pod("server").status.node, world.pod("reader").status.node) == ("h3", "h2")
        why = world.run("pod explain reader").out
        assert "1 of 2 nodes could run it" in why
        assert "it has 0 of 1 gpu │ h3" in why
        assert "network figures were nominal" in why
        world.until(lambda: "hello" in world.run("pod logs reader").out, "an answer over the switches")
        assert world.run("pod exec server false").code == 1
        assert world.run("pod exec server cat /tmp/index.html") == CommandResult("hello\n", "", 0)
        assert world.type("pod exec -i server cat", b"typed") == (b"typed", 0)
        assert world.run("pod exec server ls /nowhere").code == 1
        _survives_its_managers_death(world, manager, settings)
    bundles = Path(runc.state) / "containers"
    assert len(list(bundles.iterdir())) == 1
    assert world.run("pod delete reader --wait").code == 0
    world.until(lambda: world.containers() == [], lambda: f"no containers: {world.containers()}")
    world.until(lambda: not list(bundles.iterdir()), "no bundle of runc's")


def test_mistakes_are_clear_lines_and_the_rest_is_unaffected(
    service: subprocess.Popen[bytes],
    full_disk: dict[str, str],
    world: PlacementWorld,
    storage: PodmanStorage,
    tmp_path: Path,
) -> None:
    world.start(serve_node, world.node_settings("h1"))
    with (
        world.process(world.node_settings("h2", token_file=str(world.token("h1")))),
        world.process(world.node_settings("h3"), before=_A_DAY_SLOW),
    ):
        folders = storage.image_folders
        hangs = RuntimeSettings(
            environment=storage.environment, image_folders=folders, socket=tmp_path / "podman.sock", deadline_s=5.0
        )
        world.start(serve_node, world.node_settings("h4", runtime=hangs))
        world.start(
            serve_node, world.node_settings("h5", runtime=RuntimeSettings(environment=full_disk, image_folders=folders))
        )
        world.until_ready("h1", "h3", "h4", "h5")
        world.apply(_sleeping("good", "h1") + _sleeping("slow", "h3") + _sleeping("held", "h4"), "--wait")
        ids = {name: _id(world.pod(name)) for name in ("good", "slow")}
        _mistakes_in_scripts(world)
        world.apply(_sleeping("full", "h5"))
        world.wait_for(
            "full", lambda pod: "no space left on device" in str(pod.status.reasons), "the full disk is told"
        )
        # It retries, and each attempt costs time of a busy machine.
        assert world.run("pod delete full --wait").code == 0
        service.send_signal(signal.SIGSTOP)
        world.until(lambda: not world.client.of(Node).get("h4").status.ready, "a node whose runtime hangs is not ready")
        assert "podman" in world.client.of(Node).get("h4").status.reason
        service.send_signal(signal.SIGCONT)
        world.until_ready("h4")
        assert "may not" in world.log("h2")
        assert "h2" not in {node.metadata.name for node in world.client.of(Node).list().items if node.status.ready}
        beat_ns = world.client.of(Node).get("h3").status.heartbeat_ns
        assert beat_ns is not None
        assert abs(time.time_ns() - beat_ns) < 60 * 10**9  # the server's time, not that machine's
        world.apply(_sleeping("lazy", "h1", "idle_limit: 1 s"))
        lazy = world.wait_for("lazy", lambda pod: pod.status.phase is Phase.SUCCEEDED, "idle")
        assert "idle" in str(lazy.status.reasons)
        assert {name: _id(world.pod(name)) for name in ids} == ids
        names = "good slow held nowhere once huge"
        assert world.run(f"pod delete {names} --wait").code == 0, world.run("pod list").out
        world.until(lambda: world.containers() == [], lambda: f"no containers: {world.containers()}")


def _mistakes_in_scripts(world: PlacementWorld) -> None:
    result = world.run("pod apply -f -", "pod: {name: x, image: y, memroy: 5 MiB}")
    assert result.err.startswith("millrace: <stdin>:1: pod.memroy: unknown key; did you mean `memory`? (known: ")
    assert (result.out, result.err.count("\n"), result.code) == ("", 1, 1)
    world.apply("pod: {name: huge, image: IMAGE, cpu: 1000}")
    wanted = "cpu: 1000000 thousandths of cores wanted"
    world.until(lambda: wanted in world.run("pod explain huge").out, lambda: world.run("pod explain huge").out)
    for name, restart, phase in (("nowhere", "always", Phase.STARTING), ("once", "never", Phase.FAILED)):
        world.apply(f"pod: {{name: {name}, image: 'oci:/nowhere:latest', location: {{node: h1}}, restart: {restart}}}")
        refused = world.wait_for(
            name,
            lambda pod, phase=phase: pod.status.phase is phase and pod.status.reasons,  # type: ignore[misc]
            "its image is told",
        )
        assert "/nowhere" in str(refused.status.reasons)


_A_DAY_SLOW = """
import time
real, real_ns = time.time, time.time_ns
time.time, time.time_ns = lambda: real() - 86400, lambda: real_ns() - 86400 * 10**9
"""


def _sleeping(name: str, node: str, more: str = "") -> str:
    return f"""
---
pod:
  name: {name}
  image: IMAGE
  command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.2; done"]
  location: {{node: {node}}}
  {more}
"""


def _survives_its_managers_death(
    world: PlacementWorld, manager: subprocess.Popen[bytes], settings: NodeSettings
) -> None:
    """Kill the manager, then the container under another manager: it survives, then is recreated."""
    before = _id(world.pod("server"))
    assert before is not None
    manager.kill()
    manager.wait()
    with world.process(settings):
        report_ns = world.client.of(Node).get("h3").status.heartbeat_ns
        world.until(lambda: world.client.of(Node).get("h3").status.heartbeat_ns != report_ns, "a report")
        assert _id(world.pod("server")) == before
        world.podman("kill", before)
        made = world.wait_for("server", lambda pod: _id(pod) not in (None, before), "made again")
        # On a machine so busy that the lease ends it is killed once more.
        assert made.status.containers[0].restarts >= 1
        answers = world.run("pod logs reader").out.count("hello")
        world.until(lambda: world.run("pod logs reader").out.count("hello") > answers, "an answer again")
        assert world.run("pod delete server --wait").code == 0


def _id(pod: Pod) -> str | None:
    return next((container.runtime_id for container in pod.status.containers if container.state == "running"), None)
