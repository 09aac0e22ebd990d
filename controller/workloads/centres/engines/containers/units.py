"""Units of nodes: pure functions of the Node resources, whose shares are the books."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from msgspec import structs

from controller.apiserver.resources import Node
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.hardware import Request
from controller.cluster.hardware.requests import WHOLE
from controller.workloads.centres.engines.containers.settings import ContainersSettings, ContainerUnit


def own_nodes(settings: ContainersSettings, nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return this centre's nodes."""
    return tuple(node for node in nodes if settings.node_labels.items() <= node.metadata.labels.items())


def unit_types(
    units: Mapping[str, ContainerUnit], nodes: Collection[Node], own: Collection[str]
) -> tuple[UnitType, ...]:
    """Return the number of units of each type; `own` are the uids of our own pods, whose shares count as free."""
    types = []
    for name, unit in units.items():
        count = sum(room(unit, node) for node in nodes if works(node))
        free = sum(room(unit, node, others_of=own) for node in nodes if works(node))
        types.append(UnitType(name=name, count=count, free=free, unit=unit.request))
    return tuple(types)


def works(node: Node) -> bool:
    """Return whether pods may be placed on a node now."""
    return node.status.ready and not node.spec.unschedulable


def why_not(node: Node) -> str:
    """Return why pods may not be placed on a node, for people."""
    if node.spec.unschedulable:
        return f"node {node.metadata.name} is closed" + (f": {node.spec.reason}" if node.spec.reason else "")
    return f"node {node.metadata.name} is not ready" + (f": {node.status.reason}" if node.status.reason else "")


def room(unit: ContainerUnit, node: Node, *, others_of: Collection[str] | None = None) -> int:
    """Return how many units a node has; with `others_of` only those not held by pods with other uids."""
    value = node.value
    if value is None or not unit.node_labels.items() <= node.metadata.labels.items():
        return 0
    taken = [] if others_of is None else [share for share in node.shares if share.uid not in others_of]
    request, fits = unit.request, []
    if request.cpu_milli:
        fits.append((value.cpu_milli - sum(share.cpu_milli for share in taken)) // request.cpu_milli)
    if request.memory_bytes:
        fits.append((value.memory_bytes - sum(share.memory_bytes for share in taken)) // request.memory_bytes)
    held, parts_of = Counter[int](), [share.devices for share in taken]
    parts_of += [] if others_of is None else [share.devices for share in node.pools]
    for shares in parts_of:
        held.update({share.number: share.thousandths for share in shares})
    for need in request.devices:
        parts = [
            (WHOLE - held[device.number]) // need.thousandths for device in value.devices if need.value.accepts(device)
        ]
        fits.append(sum(parts) // need.count)
    return max(0, min(fits))


def largest(unit: ContainerUnit, nodes: Iterable[Node]) -> int:
    """Return the most units of a type that one node has, whether it works now or not."""
    return max((room(unit, node) for node in nodes), default=0)


def times(request: Request, units: int) -> Request:
    """Return the combined resources of this many units."""
    devices = tuple(structs.replace(need, count=need.count * units) for need in request.devices)
    return Request(cpu_milli=request.cpu_milli * units, memory_bytes=request.memory_bytes * units, devices=devices)
