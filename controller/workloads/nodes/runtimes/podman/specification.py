"""A container order in the form of podman's API (SpecGenerator of libpod's API, version 4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from controller.workloads.nodes.runtimes.base import ContainerOrder
from controller.workloads.nodes.runtimes.devices import device_files, is_cdi
from controller.workloads.nodes.runtimes.errors import OrderError
from controller.workloads.nodes.runtimes.logs import LOG_BYTES
from controller.workloads.nodes.runtimes.resources import resources_of
from controller.workloads.nodes.runtimes.security import CAPABILITIES, check_order, rlimits_of

_ACTED_ON: Final = (
    *("org.criu.", "org.systemd.", "run.oci.", "io.crun.", "module.wasm.", "io.podman.", "io.container.manager"),
    *("io.kubernetes.", "io.katacontainers.", "dev.gvisor.", "cdi.k8s.io", "com.github.containers."),
)
"""Annotations that give options to runc, crun and others: files to read, properties of units, devices."""


def specification_of(order: ContainerOrder, image_id: str, annotations: Iterable[str]) -> dict[str, Any]:
    """Return the body of a request that creates a container of an image with these annotations."""
    check_order(order)
    acted_on = next((name for name in annotations if name.startswith(_ACTED_ON)), None)
    if acted_on is not None:
        raise OrderError(f"container {order.name}: its image has annotation {acted_on}, which runtimes act on")
    if order.mounts:
        # It takes paths, which may be swapped between our check and its own.
        raise OrderError(f"container {order.name}: only the runc runtime mounts folders of the machine")
    devices = [*(file.path for file in device_files(order.devices)), *(name for name in order.devices if is_cdi(name))]
    specification: dict[str, Any] = {
        "name": order.name,
        "image": image_id,
        "labels": dict(order.labels),
        # Podman would pass the image's own on to runc.
        "annotations": dict.fromkeys(annotations, ""),
        "env": dict(order.environment),
        "cap_drop": ["ALL"],
        "cap_add": list(CAPABILITIES),
        "no_new_privileges": True,
        "privileged": False,
        "cgroupns": {"nsmode": "private"},
        "ipcns": {"nsmode": "private"},
        "image_volume_mode": "ignore",
        "log_configuration": {"driver": "k8s-file", "size": LOG_BYTES},
        "resource_limits": resources_of(order),
        "r_limits": [{"type": name, "soft": limit, "hard": limit} for name, limit in rlimits_of(order)],
        "devices": [{"path": device} for device in devices],
        "netns": {"nsmode": "none"}
        if order.network_namespace is None
        else {"nsmode": "path", "value": str(order.network_namespace)},
    }
    if order.command:
        specification["entrypoint"] = list(order.command)
    if order.working_folder is not None:
        specification["work_dir"] = order.working_folder
    if order.hostname is not None:
        specification["hostname"] = order.hostname
    if order.cgroup_parent is not None:
        specification["cgroup_parent"] = order.cgroup_parent
    return specification
