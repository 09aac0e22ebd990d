"""Named kernel fabrics that stay up until they are taken down: run, find, enter and end them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final, NoReturn

from dataplane.config.suggestions import did_you_mean
from dataplane.errors import FabricError
from dataplane.fabric.kernel import manifest, namespaces
from dataplane.fabric.kernel.fabric import KernelFabric, KernelSettings
from dataplane.fabric.kernel.manifest import RUN_ROOT, Manifest
from dataplane.fabric.live.kernel import READY_S, READY_S_A_SWITCH, relaying, watch
from dataplane.fabric.live.values import FabricCounters
from dataplane.local.deadline import LocalDeadline
from dataplane.running import ignore_hangup
from dataplane.topology.values import Topology

_TURN_S: Final = 0.2
_DOWN_S: Final = 120.0


def run(
    topology: Topology,
    settings: KernelSettings,
    on_ready: Callable[[Manifest], None],
    *,
    reports: str | None = None,
    beside: Callable[[], AbstractContextManager[Callable[[], None]]] | None = None,
) -> None:
    """Run a fabric until SIGTERM or SIGINT, then remove it; raise FabricError. Switches that end are restarted.

    `reports`: HOST:PORT, outside all namespaces, to which reports that arrive at the collector's host are relayed.
    `beside` runs as long as the switches, from before `on_ready`; what it returns is called several times a second.
    """
    stop = threading.Event()
    signal.signal(signal.SIGHUP, ignore_hangup)
    counters = FabricCounters(os.getpid(), time.monotonic_ns(), len(topology.switches))
    with KernelFabric(topology, settings) as fabric, ExitStack() as stack:
        fabric.wait_ready(READY_S + READY_S_A_SWITCH * len(topology.switches))
        if reports is not None and topology.collector is not None:
            stack.enter_context(relaying(fabric, topology.collector, reports, counters.reports))
        look = None if beside is None else stack.enter_context(beside())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        _ready_file(fabric.run_dir).touch()
        on_ready(named(fabric.fabric_id, settings.run_root))
        while not stop.wait(_TURN_S):
            watch(fabric, counters)
            if look is not None:
                look()


def is_ready(fabric_id: str, pid: int, run_root: Path = RUN_ROOT) -> bool:
    """Return whether a fabric that this process runs is ready."""
    fabric = Manifest.load(run_root / fabric_id)
    return fabric is not None and fabric.owner.pid == pid and _ready_file(run_root / fabric_id).exists()


def named(name: str, run_root: Path = RUN_ROOT) -> Manifest:
    """Return the fabric with a name; raise FabricError listing the existing ones."""
    fabrics = {fabric.fabric_id: fabric for fabric in manifest.find_fabrics(run_root)}
    if name not in fabrics:
        raise FabricError(f"there is no fabric {name!r}{did_you_mean(name, fabrics)}")
    return fabrics[name]


def only(fabrics: Sequence[Manifest]) -> Manifest:
    """Return the only running fabric; raise FabricError if there is none or a name is required."""
    if not fabrics:
        raise FabricError("no kernel fabric runs: `millrace fabric up TOPOLOGY` starts one")
    if len(fabrics) > 1:
        raise FabricError(f"which fabric? Choose one of {', '.join(fabric.fabric_id for fabric in fabrics)}")
    return fabrics[0]


def enter(fabric: Manifest, node: str, argv: Sequence[str]) -> NoReturn:
    """Replace this process by a command in a node's namespace; raise FabricError for an unknown node or command."""
    nodes = [*fabric.hosts, *fabric.switches]
    if node not in nodes:
        raise FabricError(f"fabric {fabric.fabric_id} has no node {node!r}{did_you_mean(node, nodes)}")
    namespaces.become(manifest.namespace_of(fabric.fabric_id, node), argv)


def end(fabric: Manifest, run_root: Path = RUN_ROOT) -> None:
    """Take a fabric down and return when nothing of it is left; raise FabricError.

    The leftovers of a fabric whose process was killed are removed, too. An unnamed fabric belongs to another program.
    """
    pid = fabric.owner.pid
    if fabric.owner.is_alive() and not fabric.is_named:
        raise FabricError(f"fabric {fabric.fabric_id} is process {pid}'s, which removes it when it ends")
    fabric.owner.send(signal.SIGTERM)
    deadline = LocalDeadline(_DOWN_S, f"the end of fabric {fabric.fabric_id}")
    while fabric.owner.is_alive():
        if deadline.has_passed():
            raise FabricError(f"fabric {fabric.fabric_id}: process {pid} has not ended {_DOWN_S:g} s after SIGTERM")
        time.sleep(_TURN_S)
    left = Manifest.load(run_root / fabric.fabric_id)
    if left is not None and left.owner == fabric.owner:
        manifest.remove(left, run_root / fabric.fabric_id)


def _ready_file(run_dir: Path) -> Path:
    return run_dir / "ready"
