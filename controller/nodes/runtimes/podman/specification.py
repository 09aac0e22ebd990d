"""A container order as podman's API wants it (SpecGenerator of libpod's API, version 4)."""

from __future__ import annotations

from typing import Any

from controller.nodes.runtimes.base import ContainerOrder
from controller.nodes.runtimes.devices import device_files, is_cdi
from controller.nodes.runtimes.errors import OrderError
from controller.nodes.runtimes.logs import LOG_BYTES
from controller.nodes.runtimes.resources import resources_of
from controller.nodes.runtimes.security import CAPABILITIES, check_order, rlimits_of


def specification_of(order: ContainerOrder, image_id: str) -> dict[str, Any]:
    """Return the body of a request that creates a container."""
    check_order(order)
    if order.mounts:
        # It takes paths, which somebody may swap between our look at them and its own.
        raise OrderError(f"container {order.name}: podman mounts no folders of the machine, the runc runtime does")
    devices = [*(file.path for file in device_files(order.devices)), *(name for name in order.devices if is_cdi(name))]
    specification: dict[str, Any] = {
        "name": order.name,
        "image": image_id,
        "labels": dict(order.labels),
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
