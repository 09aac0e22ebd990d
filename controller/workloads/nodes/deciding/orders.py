"""Orders to a runtime for the containers of a pod; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from controller.apiserver.resources.hardware import DeviceShare
from controller.apiserver.resources.operator_devices import VARIABLE as OPERATOR_DEVICES
from controller.apiserver.resources.operator_devices import text_of
from controller.apiserver.resources.pod import Container, Pod
from controller.workloads.nodes.deciding.limits import PodLimits
from controller.workloads.nodes.deciding.shares import Mps, label_of, limits_of
from controller.workloads.nodes.deciding.values import ATTEMPT_LABEL, MANAGER_LABEL, SHARES_LABEL
from controller.workloads.nodes.runtimes.base import (
    CONTAINER_LABEL,
    EPOCH_LABEL,
    NODE_LABEL,
    POD_LABEL,
    UID_LABEL,
    ContainerOrder,
)
from controller.workloads.nodes.runtimes.devices import HOOK_VARIABLES, DeviceUse, device_environment
from controller.workloads.nodes.runtimes.errors import OrderError
from dataplane.topology.values import DeviceKind

_INSTANCE: Final = "MIG-"
"""Beginning of NVIDIA's names of instances."""
PARENT: Final = "/millrace"
"""Parent of the nodes' control groups, each of which has one for each of its pods."""


@dataclass(frozen=True, slots=True)
class Place:
    """Properties common to all containers of a node.

    `devices` are files or CDI names by device number, `known` the kinds of the existing ones; with `is_stated` devices
    come from the topology, and those without files are granted nevertheless.
    """

    node: str
    identity: str
    """Identity of the manager's state folder: a machine may have several nodes, even of one name."""
    network_namespace: Path | None = None
    devices: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    known: Mapping[int, DeviceKind] = field(default_factory=dict)
    is_stated: bool = False
    handles: Mapping[int, str] = field(default_factory=dict)
    """NVIDIA's names of its devices by number, where its library numbers them otherwise."""
    limits: PodLimits = field(default_factory=PodLimits)
    mps: Mps | str = "`mps` of the node's settings is off"
    """Service that enforces shares of NVIDIA's devices, or why there is none."""

    @property
    def instances(self) -> frozenset[int]:
        """Parts of divided devices (MIG)."""
        return frozenset(number for number, handle in self.handles.items() if handle.startswith(_INSTANCE))

    @property
    def cgroup(self) -> str:
        """Parent control group of all of the node's containers."""
        return f"{PARENT}/{self.node}-{self.identity}"

    def cgroup_of(self, pod: str) -> str:
        """Return the control group of a pod; no pod name can make it collide with another group."""
        return f"{self.cgroup}/pod-{pod}"


def order_of(
    place: Place,
    pod: Pod,
    container: Container,
    *,
    attempt: int,
    image: str | None,
    secrets: Mapping[str, str] | None = None,
) -> ContainerOrder:
    """Return the order for a container with the image `image`; raise OrderError for a missing device.

    `secrets` are the values of those that the container names, by variable. Limits are the pod's request, or the
    node's; limits over several containers together are not part of an order.
    """
    name, request = pod.metadata.name, pod.spec.request
    shares = limits_of(
        pod.status.devices, place.devices, place.mps, is_stated=place.is_stated, instances=place.instances
    )
    return ContainerOrder(
        # Names contain hyphens themselves: pod a-b with container c is not pod a with container b-c.
        name=f"millrace_{place.node}_{place.identity}_{name}_{container.name}",
        labels={
            NODE_LABEL: place.node,
            MANAGER_LABEL: place.identity,
            POD_LABEL: name,
            UID_LABEL: pod.metadata.uid,
            EPOCH_LABEL: str(pod.status.epoch),
            CONTAINER_LABEL: container.name,
            ATTEMPT_LABEL: str(attempt),
            **({SHARES_LABEL: label_of(shares.limits)} if shares.limits else {}),
        },
        image=image,
        bundle=None if container.bundle is None else Path(container.bundle),
        command=container.command,
        environment={
            **_environment(place, pod),
            **container.environment,
            **(secrets or {}),
            **_device_variables(place, pod),
            **shares.environment,
            **_chosen(pod),
        },
        working_folder=container.working_folder,
        hostname=name[:63],
        cpu_milli=request.cpu_milli or None,
        memory_bytes=place.limits.memory_of(pod),
        disk_bytes=place.limits.disk_bytes,
        processes=place.limits.processes,
        devices=(*_devices(place, pod), *shares.devices),
        network_namespace=place.network_namespace,
        cgroup_parent=place.cgroup_of(name),
    )


def _environment(place: Place, pod: Pod) -> dict[str, str]:
    variables = {
        "MILLRACE_NODE": place.node,
        "MILLRACE_POD": pod.metadata.name,
        "MILLRACE_EPOCH": str(pod.status.epoch),
    }
    held = pod.status.devices
    return variables | ({"MILLRACE_DEVICES": ",".join(str(share.number) for share in held)} if held else {})


def _device_variables(place: Place, pod: Pod) -> dict[str, str]:
    """Return the variables that name a pod's devices.

    Its user or image must not set them: runtime hooks give a container devices by some of them.
    """
    held = pod.status.devices
    if held and place.is_stated:  # vendors' libraries do not know these
        return dict.fromkeys(HOOK_VARIABLES, "void")
    return device_environment([_use(place, share) for share in held])


def _chosen(pod: Pod) -> dict[str, str]:
    """Return where the pod's operators run, if that was decided: then its user has no say in it."""
    chosen = pod.status.operator_devices
    return {OPERATOR_DEVICES: text_of(chosen)} if chosen else {}


def _use(place: Place, share: DeviceShare) -> DeviceUse:
    """Return a device as its vendor's library counts it: among those of its kind."""
    kind = place.known.get(share.number, DeviceKind.XPU)
    index = sum(1 for number, other in place.known.items() if other is kind and number < share.number)
    return DeviceUse(kind, index, share.thousandths, place.handles.get(share.number, ""))


def _devices(place: Place, pod: Pod) -> tuple[str, ...]:
    files: list[str] = []
    for share in pod.status.devices:
        number = share.number
        if number not in place.known:
            raise OrderError(f"pod {pod.metadata.name}: node {place.node} has no device {number}")
        if number not in place.devices and not place.is_stated:
            raise OrderError(
                f"pod {pod.metadata.name}: device {number} of node {place.node} has no files: name them in `devices`"
            )
        files += place.devices.get(number, ())
    return tuple(dict.fromkeys(files))
