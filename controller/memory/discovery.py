"""Tiers that a machine could have, as Linux shows them, nearest first: settings for its host are made of these."""

from __future__ import annotations

from dataclasses import dataclass

from collectors.devices.memory import NumaMemory, read_media, read_numa_memory
from collectors.devices.root import Root
from dataplane.topology.values import MediumKind

_ITSELF = 10
"""Distance of a NUMA node to itself (ACPI's SLIT)."""


@dataclass(frozen=True, slots=True)
class FoundTier:
    """A possible tier; `distance` is that of its NUMA node to the nearest one with processors, None for devices."""

    name: str
    kind: str
    total_bytes: int
    free_bytes: int | None
    distance: int | None
    note: str


def found_tiers(root: Root) -> tuple[FoundTier, ...]:
    """Return NUMA nodes by their distance from processors, then storage-class memory and NVMe drives."""
    nodes = read_numa_memory(root)
    processors = [node.number for node in nodes if node.has_processors]
    memory = sorted((_of_node(node, nodes, processors) for node in nodes), key=lambda tier: tier.distance or _ITSELF)
    media = [medium for medium in read_media(root) if medium.kind is MediumKind.NVM]
    drives = (
        FoundTier("nvme", "file", medium.capacity_bytes, None, None, "as a file on one of its file systems")
        for medium in media
    )
    return (*memory, *drives)


def _of_node(node: NumaMemory, nodes: tuple[NumaMemory, ...], processors: list[int]) -> FoundTier:
    numbers = [other.number for other in nodes]
    distances = [
        node.distances[numbers.index(number)] for number in processors if numbers.index(number) < len(node.distances)
    ]
    distance = _ITSELF if node.has_processors else min(distances, default=None)
    if node.is_cxl:
        note = "CXL"
    elif node.is_nvdimm:
        note = "persistent memory"
    else:
        note = "" if node.has_processors else "no processors"
    others = [each for number, each in zip(numbers, node.distances, strict=False) if number != node.number]
    if node.has_processors and others:
        note = f"{note}{'; ' if note else ''}from other nodes {min(others)}"
    return FoundTier(f"node{node.number}", "numa", node.total_bytes, node.free_bytes, distance, note)
