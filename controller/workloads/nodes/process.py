"""`millrace node serve`: run the container manager of a node until stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from collectors.devices.nvml import open_nvml
from collectors.devices.root import Root
from controller.apiserver.agents.access import api_place, namespace_of
from controller.apiserver.agents.reporting import TRIES
from controller.apiserver.agents.server_clock import boot_time_ns
from controller.apiserver.client import ApiClient
from controller.workloads.nodes.deciding.orders import Place as ContainerPlace
from controller.workloads.nodes.lease import LeaseKeeper
from controller.workloads.nodes.machine import MACHINE, Gauges, Machine, by_number, machine_of
from controller.workloads.nodes.runtimes.base import Runtime
from controller.workloads.nodes.runtimes.errors import RuntimeTimeoutError
from controller.workloads.nodes.runtimes.settings import make_runtime
from controller.workloads.nodes.serving.manager import Manager
from controller.workloads.nodes.settings import NodeSettings
from controller.workloads.nodes.state_folder import NodeFolder
from controller.workloads.nodes.watchdog import feed_watchdog
from dataplane.cgroup_limits import group_folders
from dataplane.clock import MonotonicClock
from dataplane.daemon import Daemon, Lifecycle
from dataplane.running import run_until

LOGGER: Final = logging.getLogger("millrace.node")

_STARTS: Final = 3
"""Attempts to reach a runtime before the manager gives up."""


async def serve(
    settings: NodeSettings,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[str], None] | None = None,
    runtime: Runtime | None = None,
    root: Root = MACHINE,
) -> None:
    """Manage until `stop` is set; raise MillraceError for invalid settings.

    The API server may start later; the runtime must be up: by default the one in the settings. `on_ready` gets one
    line. `root` has the files that describe the machine.
    """
    folder = NodeFolder(Path(settings.state).absolute(), settings.node)
    async with AsyncExitStack() as stack:
        stack.enter_context(folder.held())
        nvml = stack.enter_context(open_nvml())
        machine = machine_of(settings, nvml, root, folder=folder.path)
        place = _place(settings, machine, folder.identity())
        client = await stack.enter_async_context(ApiClient(api_place(settings.api, settings.token_file), tries=TRIES))
        feeding = asyncio.create_task(feed_watchdog(), name="watchdog")
        stack.callback(feeding.cancel)
        runtime = runtime or make_runtime(settings.runtime, folder.path)
        stack.push_async_callback(runtime.close)
        version = await _start(runtime)
        keeper = LeaseKeeper(folder, group_folders(place.cgroup))
        keeper.prepare()
        manager = Manager(
            client,
            runtime,
            keeper,
            settings=settings,
            machine=machine,
            place=place,
            gauges=Gauges(settings, machine, MonotonicClock(), nvml, cgroup=place.cgroup, root=root),
            runtime_version=version,
            now_ns=boot_time_ns,
        )
        if on_ready is not None:
            on_ready(f"node {settings.node}, {version}, API at {client.place.address}")
        await _run_and_sign_off(manager, stop)


async def _start(runtime: Runtime) -> str:
    """Start the runtime and return its version; retry if it does not answer in time, three attempts in all."""
    for left in reversed(range(_STARTS)):
        try:
            await runtime.start()
            return await runtime.version()
        except RuntimeTimeoutError as error:
            if not left:
                raise
            LOGGER.warning("%s; asking again, at most %d more times", error, left)
    raise AssertionError("the last attempt raises")


async def _run_and_sign_off(manager: Manager, stop: asyncio.Event) -> None:
    """Manage until `stop` is set, then sign the manager off."""
    done = asyncio.Event()

    async def end() -> None:
        await stop.wait()
        try:
            await manager.sign_off()
        finally:
            done.set()

    ending = asyncio.create_task(end())
    try:
        await run_until(manager.run(), done)
    finally:
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)


def _place(settings: NodeSettings, machine: Machine, identity: str) -> ContainerPlace:
    return ContainerPlace(
        settings.node,
        identity,
        namespace_of(settings.network_namespace),
        settings.devices,
        by_number(settings.devices, machine.hardware),
        is_stated=machine.is_stated,
        handles=machine.handles,
        limits=settings.limits.of(sum(medium.capacity_bytes for medium in machine.hardware.memory)),
    )


async def _serve(settings: NodeSettings, lifecycle: Lifecycle[NodeSettings]) -> None:
    await serve(settings, lifecycle.stop, on_ready=lifecycle.ready)


DAEMON: Final = Daemon("node", NodeSettings, _serve)
load_settings: Final = DAEMON.load_settings
