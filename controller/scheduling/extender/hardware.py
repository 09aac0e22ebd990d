"""Hardware of Kubernetes' nodes and pods: a node's capacity and a pod's request.

Units counted by a device plugin are devices; the model of each is the resource's name, so a request for nvidia.com/gpu
never gets a slice of nvidia.com/mig-1g.5gb. The kubelet decides which device of a node a pod gets. HAMi's shares of
devices (nvidia.com/gpumem) are no devices: HAMi's own scheduler admits them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from controller.cluster.hardware import Device, DeviceRequest, Node, Request
from controller.common.errors import SchedulerError
from controller.common.quantities import milli, whole
from controller.scheduling.extender import objects
from controller.scheduling.extender.objects import Quantities
from controller.scheduling.extender.settings import DEVICES, DeviceResource
from dataplane.topology.values import DeviceKind, MediumKind, MemoryMedium

_MOST_DEVICES: Final = 4096
_MOST: Final = 1 << 50
"""Maximum request of one pod, in thousandths or bytes: sums over all pods of a node do not overflow."""

_SHARE: Final = re.compile(
    r"(?P<device>.+/gpu)(?:mem|mem-percentage|cores)|(?P<npu>huawei\.com/Ascend\w+)-(?:memory|core)", re.ASCII
)
"""HAMi's shares of the device whose resource the name begins with."""

KindOf = Callable[[str], DeviceKind | None]
"""Returns the device kind of a resource, None if it is not a device."""


def kinds_of(own: Sequence[DeviceResource]) -> KindOf:
    """Return a function from resource names to device kinds: by settings first, then by the built-in names."""
    table, kinds = (*own, *DEVICES), dict[str, DeviceKind | None]()

    def kind_of(name: str) -> DeviceKind | None:
        if name not in kinds:
            if len(kinds) >= _MOST_DEVICES:
                kinds.clear()
            candidates = table if _device_of(name) is None else own
            kinds[name] = next((resource.kind for resource in candidates if resource.is_of(name)), None)
        return kinds[name]

    return kind_of


def _device_of(name: str) -> str | None:
    """Return the resource of the device of which a resource is a share, None if it is not a share."""
    match = _SHARE.fullmatch(name)
    return None if match is None else match["device"] or match["npu"]


def node_of(node: objects.Node, kind_of: KindOf) -> Node:
    """Return a node's allocatable hardware; raise SchedulerError, naming the node, if it is invalid."""
    name, allocatable = node.metadata.name, node.status.allocatable or {}
    try:
        counts = {
            resource: whole(allocatable[resource]) for resource in sorted(allocatable) if kind_of(resource) is not None
        }
        cpu_milli, memory_bytes = milli(allocatable.get("cpu", 0)), whole(allocatable.get("memory", 0))
    except ValueError as error:
        raise SchedulerError(f"node {name}: allocatable: {error}") from None
    if sum(counts.values()) > _MOST_DEVICES:
        raise SchedulerError(f"node {name}: {sum(counts.values())} devices; at most {_MOST_DEVICES} are supported")
    models = [resource for resource, count in counts.items() for _ in range(count)]
    devices = tuple(Device(number, _kind(kind_of, model), model) for number, model in enumerate(models))
    memory = (MemoryMedium(MediumKind.DRAM, memory_bytes),)
    return Node(name, cpu_milli, memory, devices, labels=node.metadata.labels or {})


def request_of(pod: objects.Pod, kind_of: KindOf) -> Request:
    """Return what a pod holds while it runs; raise SchedulerError, naming the pod, if it is invalid.

    Counted as Kubernetes does: the sum of containers and sidecars, or more if an init container needs more, plus the
    overhead of the runtime class; pod-level cores and memory replace those of the containers.
    """
    try:
        wanted = _wanted(pod.spec, kind_of)
    except SchedulerError as error:
        raise SchedulerError(f"pod {pod.full_name}: {error}") from None
    devices = tuple(
        DeviceRequest(_kind(kind_of, resource), min(count, _MOST), models=frozenset({resource}))
        for resource, count in sorted(wanted.items())
        if count and kind_of(resource) is not None
    )
    return Request(min(wanted["cpu"], _MOST), min(wanted["memory"], _MOST), devices)


def _wanted(spec: objects.PodSpec, kind_of: KindOf) -> Counter[str]:
    total = _summed((container.resources.wanted for container in spec.containers or ()), kind_of)
    sidecars, most = Counter[str](), Counter[str]()
    for container in spec.init_containers or ():
        own = _counted(container.resources.wanted, kind_of)
        if container.restart_policy == "Always":
            sidecars += own
            own = Counter()
        most |= own + sidecars
    total = (total + sidecars) | most
    if spec.resources is not None:
        stated = _counted(spec.resources.wanted, kind_of)
        total.update({name: stated[name] - total[name] for name in ("cpu", "memory") if name in stated})
    return total + _counted(spec.overhead or {}, kind_of)


def _summed(all_wanted: Iterable[Quantities], kind_of: KindOf) -> Counter[str]:
    total = Counter[str]()
    for wanted in all_wanted:
        total += _counted(wanted, kind_of)
    return total


def _counted(wanted: Mapping[str, str | int | float], kind_of: KindOf) -> Counter[str]:
    counts, shared = Counter[str](), set[str]()
    for name, quantity in wanted.items():
        kind, device = kind_of(name), _device_of(name)
        if name in {"cpu", "memory"} or kind is not None or device is not None:
            try:
                count = milli(quantity) if name == "cpu" else whole(quantity)
            except ValueError as error:
                raise SchedulerError(f"{name}: {error}") from None
            if kind is not None or device is None:
                counts[name] = count
            elif count and kind_of(device) is not None:
                shared.add(device)
    # HAMi's webhook gives one device to a container that asks for a share alone.
    counts.update(dict.fromkeys(shared - counts.keys(), 1))
    return counts


def _kind(kind_of: KindOf, resource: str) -> DeviceKind:
    kind = kind_of(resource)
    assert kind is not None
    return kind
