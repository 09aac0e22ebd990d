"""Time added to a container's start by everything between a script and its container.

Measured from the request of `millrace pod apply` until a watcher of the API server hears that the pod runs: API server,
scheduler, workload controller and manager are processes as in production, with podman. For comparison the same runtime
makes and starts the same container by itself; both alternate.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Final

import yaml

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.manifests import read_text
from controller.apiserver.resources import Node, Pod
from controller.apiserver.resources.pod import Phase
from controller.apiserver.settings import ApiSettings, StoragePlace
from controller.common.errors import ApiError
from controller.scheduling.settings import SchedulerSettings
from controller.workloads.nodes.runtimes.base import ContainerOrder, Runtime
from controller.workloads.nodes.runtimes.settings import RuntimeSettings, make_runtime
from controller.workloads.nodes.settings import NodeSettings, OnStop
from controller.workloads.placement.settings import PlacementSettings
from dataplane.config import document_of
from tests.controller.workloads.nodes.busybox_image import (
    BUSYBOX,
    podman_environment,
    remove_podman_storage,
    write_layout,
)
from tests.waiting import until

NAMES: Final = ("start_overhead_ms", "start_runtime_ms", "start_scheduled_ms")
_PROGRAMS: Final = ("podman", "runc", "conmon")
_ROUNDS: Final = 20
_WAIT_S: Final = 300.0
_SCRIPT: Final = 'pod: {{name: "{name}", image: "{image}", command: [sleep, "1000"], cpu: 100m, stop_grace: 0 s}}'


def figures(quick: bool, data: Path) -> Mapping[str, float]:
    """Return medians in milliseconds: the overhead, the runtime alone, and from apply to the binding."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None] + ([] if BUSYBOX.exists() else ["busybox"])
    if missing:
        print(f"starting: skipped: needs {', '.join(missing)}")
        return {}
    with tempfile.TemporaryDirectory(prefix="millrace-") as name:
        folder = Path(name)
        environment = podman_environment(folder / "podman")
        write_layout(folder / "image")
        try:
            settings = RuntimeSettings(environment=environment, image_folders=(folder,))
            return asyncio.run(_measure(folder, settings, 3 if quick else _ROUNDS))
        finally:
            remove_podman_storage(folder / "podman", environment)


async def _measure(folder: Path, runtime: RuntimeSettings, rounds: int) -> Mapping[str, float]:
    server, image = Place(f"unix:{folder}/api.sock"), f"oci:{folder / 'image'}:latest"
    (folder / "alone").mkdir()
    alone = make_runtime(runtime, folder / "alone")
    with _daemons(folder, server, runtime):
        async with asyncio.timeout(_WAIT_S), ApiClient(server) as client:
            await _ready(client)
            await alone.start()
            try:
                await _bare(alone, image, 0)
                await _applied(client, image, "warm")
                bare, whole, bound = [], [], []
                for number in range(1, rounds + 1):
                    bare.append(await _bare(alone, image, number))
                    until_bound, until_running = await _applied(client, image, f"p{number}")
                    bound.append(until_bound)
                    whole.append(until_running)
            finally:
                await alone.close()
    added = [total - other for total, other in zip(whole, bare, strict=True)]
    return {
        "start_overhead_ms": 1e3 * statistics.median(added),
        "start_runtime_ms": 1e3 * statistics.median(bare),
        "start_scheduled_ms": 1e3 * statistics.median(bound),
    }


@contextmanager
def _daemons(folder: Path, server: Place, runtime: RuntimeSettings) -> Iterator[None]:
    node = NodeSettings(
        node="h1", state=str(folder / "state"), api=server.address, runtime=runtime, on_stop=OnStop.STOP
    )
    wanted: tuple[tuple[tuple[str, str], object], ...] = (
        (("api", "serve"), ApiSettings(storage=StoragePlace(sqlite=str(folder / "db")), listen=(server.address,))),
        (("scheduler", "serve"), SchedulerSettings(api=server.address)),
        (("placement", "serve"), PlacementSettings(api=server.address)),
        (("node", "serve"), node),
    )
    processes = []
    try:
        for words, settings in wanted:
            file = folder / f"{words[0]}.yaml"
            file.write_text(yaml.safe_dump(document_of(settings)), encoding="utf-8")
            with (folder / f"{words[0]}.log").open("wb") as log:
                command = [sys.executable, "-m", "controller.apps.cli", *words, "-s", str(file)]
                processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        yield
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


async def _ready(client: ApiClient) -> None:
    async def is_ready() -> bool:
        with suppress(ApiError):  # the server is starting, or has no such node yet
            return (await client.of(Node).get("h1")).status.ready
        return False

    await until(is_ready, limit_s=_WAIT_S, poll_s=0.1)


async def _applied(client: ApiClient, image: str, name: str) -> tuple[float, float]:
    """Return the seconds from the creation of a manifest's pod until it is bound, and until it runs."""
    async with aclosing(client.of(Pod).watch(fields=f"name={name}")) as events:
        await anext(events)  # the watch is open
        begun, bound = time.monotonic(), 0.0
        (manifest,) = read_text(_SCRIPT.format(name=name, image=image))
        assert isinstance(manifest.resource, Pod)
        await client.of(Pod).create(manifest.resource)
        async for event in events:
            phase = None if event.resource is None else event.resource.status.phase
            if phase is Phase.BOUND:
                bound = time.monotonic() - begun
            if phase is Phase.RUNNING:
                break
        took = time.monotonic() - begun
        await client.of(Pod).delete(name)
        async for event in events:
            if event.type == "DELETE":
                break
    return bound, took


async def _bare(runtime: Runtime, image: str, number: int) -> float:
    """Return the time until a container runs, by the runtime alone."""
    begun = time.monotonic()
    pulled = await runtime.pull(image)
    order = ContainerOrder(
        name=f"bare-{number}",
        labels={"millrace.node": "none"},
        image=pulled.digest,
        command=("sleep", "1000"),
        hostname="bare",
        cpu_milli=100,
    )
    made = await runtime.create(order)
    await runtime.start_container(made)
    took = time.monotonic() - begun
    await runtime.remove(made)
    return took
