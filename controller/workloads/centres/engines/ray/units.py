"""Units of a Ray cluster's nodes: pure functions of its dashboard's answers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from controller.apiserver.resources.base import MAX_NAME
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.workloads.centres.engines.ray.client import Node
from controller.workloads.centres.engines.ray.settings import RaySettings, RayUnit
from dataplane.topology.values import DeviceKind

_OWN: Final = re.compile(r"CPU|GPU|memory|object_store_memory|node:.*|accelerator_type:.*")
"""Resources that Ray counts by default."""
_TINY: Final = 1e-6
"""Ray counts in ten-thousandths."""


def divided(settings: RaySettings, nodes: Sequence[Node]) -> dict[str, RayUnit]:
    """Return the unit types by name: those of the settings, or CPUs and one for each custom resource."""
    if settings.units:
        return dict(settings.units)
    units = {"cpu": RayUnit()}
    if any(node.resources_total.get("GPU") for node in nodes):
        units["gpu"] = RayUnit(cpus=_cpus_beside("GPU", nodes), gpus=1.0)
    for resource in sorted({name for node in nodes for name in node.resources_total if not _OWN.fullmatch(name)}):
        name = re.sub(r"[^a-z0-9]+", "-", resource.lower()).strip("-")[:MAX_NAME] or "unit"
        units.setdefault(name, RayUnit(cpus=_cpus_beside(resource, nodes), resources={resource: 1.0}))
    return units


def unit_types(
    units: Mapping[str, RayUnit],
    nodes: Sequence[Node],
    used: Mapping[str, Mapping[str, float]],
    own: Mapping[str, int],
) -> tuple[UnitType, ...]:
    """Return the number of units of each type; `own` are those that our own jobs run on, by type."""
    found = []
    for name, unit in units.items():
        count = sum(room(unit, node) for node in nodes)
        free = sum(room(unit, node, used.get(node.node_id, {})) for node in nodes) + own.get(name, 0)
        found.append(UnitType(name=name, count=count, free=min(count, free), unit=_request(unit)))
    return tuple(found)


def room(unit: RayUnit, node: Node, used: Mapping[str, float] | None = None) -> int:
    """Return how many units of a type a node has, without those in use; 0 if it does not work."""
    if not node.works:
        return 0
    has = node.resources_total
    fits = [
        (has.get(name, 0.0) - (used or {}).get(_as_key(name), 0.0) + _TINY) / amount
        for name, amount in unit.needs.items()
    ]
    return max(0, math.floor(min(fits)))


def largest(unit: RayUnit, nodes: Iterable[Node]) -> int:
    """Return the most units of a type that one node has."""
    return max((room(unit, node) for node in nodes), default=0)


def _cpus_beside(resource: str, nodes: Iterable[Node]) -> float:
    """Return the least whole number of CPUs per one of a resource, at least one hundredth of a CPU."""
    shares = [
        node.resources_total.get("CPU", 0.0) / node.resources_total[resource]
        for node in nodes
        if node.resources_total.get(resource)
    ]
    least = min(shares, default=1.0)
    return float(math.floor(least)) if least >= 1 else max(0.01, math.floor(least * 100) / 100)


def _as_key(name: str) -> str:
    """Return a name as the dashboard spells it in keys."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _request(unit: RayUnit) -> Request:
    gpus = math.ceil(unit.gpus)
    devices = (DeviceNeed(kind=DeviceKind.GPU, count=min(gpus, 256)),) if gpus else ()
    return Request(cpu_milli=round(unit.cpus * 1000), memory_bytes=unit.memory_mib << 20, devices=devices)
