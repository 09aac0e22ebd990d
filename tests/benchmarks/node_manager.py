"""Cost of a node's manager: its memory and its guard's, and the time that it adds to a container's start.

Measured from the binding of a pod until the API server tells a watcher that it runs, against the time that the runtime
alone needs to make and start the same container; both alternate. As root, with podman or runc: `python -m
tests.benchmarks.node_manager [--rounds N] [--runtime podman|runc]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

import yaml

from controller.apiserver.client import ApiClient
from controller.apiserver.registry.placements import Binding, BindingRequest
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.pod import Container, Phase, PodSpec, Restart
from controller.common.errors import NotFoundError
from controller.workloads.nodes.runtimes.base import ContainerOrder, Runtime
from controller.workloads.nodes.runtimes.settings import RuntimeKind, RuntimeSettings, make_runtime
from controller.workloads.nodes.settings import NodeSettings, OnStop
from controller.workloads.nodes.state_folder import NodeFolder
from dataplane.cgroup_limits import remove_empty
from dataplane.config import document_of
from tests.controller.apiserver.api_server import serving, settings_in
from tests.controller.workloads.nodes.busybox_image import podman_environment, remove_podman_storage, write_layout

_WAIT_S = 300.0
_SLEEP = ("sleep", "1000")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--runtime", choices=[str(kind) for kind in RuntimeKind], default="podman")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millrace-") as name:
        folder = Path(name)
        environment = podman_environment(folder / "podman")
        write_layout(folder / "image")
        kind = RuntimeKind(wanted.runtime)
        variables = environment if kind is RuntimeKind.PODMAN else {}
        settings = RuntimeSettings(kind=kind, environment=variables, image_folders=(folder,))
        try:
            figures = asyncio.run(measure(folder, settings, wanted.rounds))
        finally:
            remove_podman_storage(folder / "podman", environment)
    print(f"a node's manager, {wanted.runtime}, {wanted.rounds} rounds")
    for name, value in figures.items():
        print(f"{name:16} {value:10.1f}")
    print(json.dumps(figures))


async def measure(folder: Path, runtime: RuntimeSettings, rounds: int) -> dict[str, float]:
    (folder / "api").mkdir()
    image = f"oci:{folder / 'image'}:latest"
    alone = make_runtime(runtime, folder / "alone")
    (folder / "alone").mkdir()
    async with asyncio.timeout(_WAIT_S), serving(settings_in(folder / "api"), folder / "api") as served:
        state = folder / "state"
        settings = NodeSettings(
            node="h1", state=str(state), api=served.socket, runtime=runtime, on_stop=OnStop.STOP, stop_s=20
        )
        file = folder / "node.yaml"
        file.write_text(yaml.safe_dump(document_of(settings)))
        begun = time.monotonic()
        with (folder / "node.log").open("wb") as log:
            command = [sys.executable, "-m", "controller.apps.cli", "node", "serve", "--settings", str(file)]
            process = subprocess.Popen(command, stderr=log)
        try:
            await _ready(served.client)
            started_s = time.monotonic() - begun
            await alone.start()
            managed, bare = [], []
            for number in range(rounds):
                bare.append(await _bare(alone, image, number))
                managed.append(await _managed(served.client, image, f"p{number}"))
            guard = int((state / "guard.lock").read_text())
            figures = {
                "start_ms": started_s * 1e3,
                "manager_mib": _pss_mib(process.pid),
                "guard_mib": _pss_mib(guard),
                "guard_start_ms": _guard_start_ms(folder),
                "runtime_ms": statistics.median(bare) * 1e3,
                "managed_ms": statistics.median(managed) * 1e3,
                "overhead_ms": statistics.median(total - other for total, other in zip(managed, bare, strict=True))
                * 1e3,
            }
        finally:
            await alone.close()
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            remove_empty(f"/millrace/h1-{NodeFolder(state, 'h1').identity()}")
    return {name: round(value, 1) for name, value in figures.items()}


async def _ready(client: ApiClient) -> None:
    while True:
        try:
            if (await client.of(Node).get("h1")).status.ready:
                return
        except NotFoundError:
            pass
        await asyncio.sleep(0.01)


async def _bare(runtime: Runtime, image: str, number: int) -> float:
    """Return the time until a container runs, without a manager."""
    begun = time.monotonic()
    pulled = await runtime.pull(image)
    labels = {"millrace.node": "none"}
    made = await runtime.create(
        ContainerOrder(name=f"bare-{number}", labels=labels, image=pulled.digest, command=_SLEEP, hostname="bare")
    )
    await runtime.start_container(made)
    took = time.monotonic() - begun
    await runtime.remove(made)
    return took


async def _managed(client: ApiClient, image: str, name: str) -> float:
    """Return how long it takes from a binding until a watcher hears that the pod runs; it is removed afterwards."""
    container = Container(name="main", image=image, command=_SLEEP)
    spec = PodSpec(containers=(container,), restart=Restart.NEVER, stop_grace_s=0)
    made = await client.of(Pod).create(Pod(metadata=Metadata(name=name), spec=spec))
    async with aclosing(client.of(Pod).watch(made.metadata.revision, fields=f"name={name}")) as events:
        await anext(events)  # the watch is open
        begun = time.monotonic()
        await client.bind(BindingRequest(bindings=(Binding(pod=name, node="h1"),)))
        async for event in events:
            if event.resource is not None and event.resource.status.phase is Phase.RUNNING:
                break
        took = time.monotonic() - begun
        await client.of(Pod).delete(name)
        async for event in events:
            if event.type == "DELETE":
                break
    return took


def _pss_mib(process: int) -> float:
    """Return a process's proportional share of memory."""
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the kernel says no Pss")


def _guard_start_ms(folder: Path) -> float:
    """Return how long a guard needs from its start until it holds its lock (the median of ten)."""
    script = Path(__file__).parents[2] / "controller/workloads/nodes/guard/__main__.py"
    lease, lock = folder / "none", folder / "none.lock"
    took = []
    for _ in range(10):
        begun = time.monotonic()
        # Without a lease's file it ends as soon as it has the lock.
        subprocess.run(
            [sys.executable, "-I", "-S", str(script), str(lease), str(lock)], check=True, env=dict(os.environ)
        )
        took.append(time.monotonic() - begun)
    return statistics.median(took) * 1e3


if __name__ == "__main__":
    main()
