"""Units of a cluster's nodes: pure functions of the answers of `sinfo`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from controller.apiserver.resources.base import MAX_NAME
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.hardware import DeviceNeed, Request
from controller.workloads.centres.engines.slurm.answers import Node
from controller.workloads.centres.engines.slurm.settings import SlurmSettings, SlurmUnit
from dataplane.topology.values import DeviceKind

_MIB: Final = 1 << 20
_GRES: Final = re.compile(
    r"(?P<name>[A-Za-z0-9_.+-]+)(?::(?P<type>[A-Za-z_][\w.+-]*))?(?::(?P<count>\d+)(?P<k>[KMG]?))?"
)
_TIMES: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_DEVICES: Final = {kind.value: kind for kind in DeviceKind}


def divided(settings: SlurmSettings, nodes: Sequence[Node]) -> dict[str, SlurmUnit]:
    """Return the unit types by name: those of the settings, or one for each sort of nodes in each partition."""
    if settings.units:
        return dict(settings.units)
    sorts: dict[tuple[str, str, tuple[str, ...]], list[Node]] = {}
    for node in nodes:
        for partition in node.partitions:
            kinds = tuple(sorted(generic_resources(node.gres)))
            sorts.setdefault((partition, node.features, kinds), []).append(node)
    named: dict[str, SlurmUnit] = {}
    alone = {key[0] for key in sorts if sum(other[0] == key[0] for other in sorts) == 1}
    for key in sorted(sorts):
        partition, features, kinds = key
        words = (partition,) if partition in alone else (partition, *_words(features), *kinds)
        name = _free_name(words, named)
        named[name] = _unit(partition, _words(features), kinds, sorts[key], settings.unit_cpus)
    return named


def unit_types(
    units: Mapping[str, SlurmUnit], nodes: Sequence[Node], own: Mapping[str, int] | None = None
) -> tuple[UnitType, ...]:
    """Return how many units of each type working nodes have; `own` are those that our own jobs run on, by type."""
    found = []
    for name, unit in units.items():
        rooms = [room(unit, node) for node in nodes]
        free = sum(room(unit, node, only_free=True) for node in nodes) + (own or {}).get(name, 0)
        found.append(
            UnitType(
                name=name, count=sum(rooms), free=min(free, sum(rooms)), unit=_request(unit, memory_mib(unit, nodes))
            )
        )
    return tuple(found)


def room(unit: SlurmUnit, node: Node, *, only_free: bool = False) -> int:
    """Return how many units of a type a node has; 0 if it does not work, or is of another sort."""
    if not node.works or unit.partition not in node.partitions or not set(unit.features) <= set(_words(node.features)):
        return 0
    fits = [(node.idle_cpus if only_free else node.cpus) // unit.cpus]
    if unit.memory_mib:
        free = node.real_memory - (node.alloc_memory if only_free else 0)
        fits.append(free // unit.memory_mib)
    has, used = generic_resources(node.gres), generic_resources(node.gres_used)
    for kind, count in unit.gres.items():
        fits.append((has.get(kind, 0) - (used.get(kind, 0) if only_free else 0)) // count)
    return max(0, min(fits))


def largest(unit: SlurmUnit, nodes: Iterable[Node]) -> int:
    """Return the most units of a type that one node has."""
    return max((room(unit, node) for node in nodes), default=0)


def memory_mib(unit: SlurmUnit, nodes: Iterable[Node]) -> int:
    """Return the memory of a unit: its own figure, or the least share that a node has for its number of CPUs."""
    if unit.memory_mib:
        return unit.memory_mib
    shares = [node.real_memory * unit.cpus // node.cpus for node in nodes if room(unit, node)]
    return min(shares, default=0)


def generic_resources(text: str) -> dict[str, int]:
    """Return the counts by kind in Slurm's notation `gpu:a100:2(S:0-1),npu:4`, adding up types of a kind."""
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        if (match := _GRES.fullmatch(part.strip())) is not None:
            count = int(match["count"] or 1) * _TIMES[match["k"] or ""]
            found[match["name"]] = found.get(match["name"], 0) + count
    return found


def _unit(
    partition: str, features: tuple[str, ...], kinds: Sequence[str], nodes: Sequence[Node], cpus: int
) -> SlurmUnit:
    """Return the unit of a sort of nodes: one of each generic resource, and the CPUs that belong to it."""
    if kinds:
        cpus = max(1, min(node.cpus // max(generic_resources(node.gres).values()) for node in nodes))
    memory = min(node.real_memory * cpus // max(node.cpus, 1) for node in nodes)
    return SlurmUnit(partition=partition, features=features, cpus=cpus, memory_mib=memory, gres=dict.fromkeys(kinds, 1))


def _request(unit: SlurmUnit, memory: int) -> Request:
    devices = tuple(
        DeviceNeed(kind=_DEVICES[kind], count=min(count, 256)) for kind, count in unit.gres.items() if kind in _DEVICES
    )
    return Request(cpu_milli=unit.cpus * 1000, memory_bytes=memory * _MIB, devices=devices)


def _words(features: str) -> tuple[str, ...]:
    return tuple(sorted(word for word in features.split(",") if word))


def _free_name(words: Sequence[str], taken: Mapping[str, object]) -> str:
    """Return an unused resource name made of Slurm's words."""
    name = re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")[: MAX_NAME - 4] or "unit"
    if name not in taken:
        return name
    return next(each for each in (f"{name}-{number}" for number in range(2, 1000)) if each not in taken)
