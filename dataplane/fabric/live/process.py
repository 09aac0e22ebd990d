"""Process of `millrace fabric serve`: runs a fabric until it is stopped."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from dataplane.daemon import Daemon, Lifecycle, Say, ready_line
from dataplane.errors import FabricError
from dataplane.fabric.live.settings import FabricSettings, Time
from dataplane.fabric.live.stats import make_folder
from dataplane.running import run_until
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology


async def _serve(settings: FabricSettings, lifecycle: Lifecycle[FabricSettings]) -> None:
    from dataplane.fabric.live.virtual import LiveVirtualFabric  # noqa: PLC0415 - loads the compiler

    topology = _topology(settings)
    fabric = LiveVirtualFabric(settings, topology)
    line = f"{len(topology.switches)} switches of {topology.name} in virtual time, at unix:{settings.switches}/"
    async with AsyncExitStack() as stack:
        if settings.metrics is not None:
            from dataplane.metrics_server import registry_of, serve_metrics  # noqa: PLC0415 - loads an HTTP server

            line += serve_metrics(registry_of(fabric.families), settings.metrics, stack, FabricError)
        await run_until(fabric.run(lambda: lifecycle.ready(line)), lifecycle.stop)


DAEMON: Final = Daemon("fabric", FabricSettings, _serve)


def run(path: Path, say: Say) -> None:
    """Run a fabric until SIGINT or SIGTERM; raise a MillraceError if it cannot."""
    settings = DAEMON.load_settings(path)
    if settings.time is Time.VIRTUAL:
        DAEMON.start(settings, path, say)
        return
    from dataplane.fabric.live.kernel import run_kernel  # noqa: PLC0415 - needs Linux, loads netlink

    run_kernel(settings, _topology(settings), ready_line(say))


def _topology(settings: FabricSettings) -> Topology:
    """Return the topology after the checks that need it, and make the folder of the fabric's files."""
    topology = load_topology(settings.topology)
    if settings.reports is not None and topology.collector is None:
        raise FabricError(f"reports: topology {topology.name} has no collector that they could arrive at")
    make_folder(settings)
    return topology
