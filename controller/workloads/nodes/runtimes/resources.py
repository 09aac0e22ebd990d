"""A container's limits in terms of the OCI runtime specification, which podman accepts unchanged."""

from __future__ import annotations

from typing import Any, Final

from controller.workloads.nodes.runtimes.base import ContainerOrder

PERIOD_US: Final = 100_000


def resources_of(order: ContainerOrder) -> dict[str, Any]:
    """Return `linux.resources`: the quota of CPU time, memory without swap, and the number of processes."""
    resources: dict[str, Any] = {}
    if order.cpu_milli is not None:
        resources["cpu"] = {"quota": order.cpu_milli * PERIOD_US // 1000, "period": PERIOD_US}
    if order.memory_bytes is not None:
        resources["memory"] = {"limit": order.memory_bytes, "swap": order.memory_bytes}
    if order.processes is not None:
        resources["pids"] = {"limit": order.processes}
    return resources
