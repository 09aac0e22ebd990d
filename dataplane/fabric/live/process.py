"""Process of `millrace fabric serve`: runs a fabric until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from dataplane.config import load
from dataplane.errors import FabricError
from dataplane.fabric.live.settings import FabricSettings, Time
from dataplane.fabric.live.stats import make_folder
from dataplane.running import run_until, stop_on_signals
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology

OnReady = Callable[[str], None]


def load_settings(path: Path) -> FabricSettings:
    """Load a settings file; raise ConfigError with file, line and key."""
    return load(path, FabricSettings)


def run(settings: FabricSettings, on_ready: OnReady) -> None:
    """Run a fabric until SIGINT or SIGTERM; `on_ready` gets one line. Raises a MillraceError if it cannot."""
    topology = load_topology(settings.topology)
    if settings.reports is not None and topology.collector is None:
        raise FabricError(f"reports: topology {topology.name} has no collector that they could arrive at")
    make_folder(settings)
    if settings.time is Time.KERNEL:
        from dataplane.fabric.live.kernel import run_kernel  # noqa: PLC0415 - needs Linux, loads netlink

        run_kernel(settings, topology, on_ready)
    else:
        asyncio.run(_run_virtual(settings, topology, on_ready))


async def _run_virtual(settings: FabricSettings, topology: Topology, on_ready: OnReady) -> None:
    from dataplane.fabric.live.virtual import LiveVirtualFabric  # noqa: PLC0415 - loads the compiler

    fabric = LiveVirtualFabric(settings, topology)
    line = f"{len(topology.switches)} switches of {topology.name} in virtual time, at unix:{settings.switches}/"
    await run_until(fabric.run(lambda: on_ready(line)), stop_on_signals())
