"""Memory media: DRAM by NUMA node, storage-class memory, and non-volatile memory behind NVMe.

Latencies and rates are those that the firmware states (ACPI's HMAT), if any: Linux,
Documentation/admin-guide/mm/numaperf.rst. A NUMA node without processors is storage-class memory if its memory comes
from NVDIMMs (Documentation/driver-api/nvdimm, dax_kmem), else more distant DRAM, such as CXL's.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

from collectors.devices.root import Root, integer_of
from dataplane.topology.values import MediumKind, MemoryMedium

_NODES: Final = ("sys", "devices", "system", "node")
_SECTOR_BYTES: Final = 512
"""The unit of /sys/block/*/size, whatever the device's own blocks are."""
_MIB: Final = 1 << 20
_NVME: Final = re.compile(r"nvme\d+n\d+")
_PMEM: Final = re.compile(r"pmem\d+(\.\d+)?")


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """A machine's memory and the part unavailable to programs, in bytes."""

    used_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class NumaMemory:
    """Memory of a NUMA node; `distances` are those to all nodes, in the order of their numbers, 10 to itself.

    Without processors it is more distant DRAM (`is_cxl` if it comes over CXL), or memory of NVDIMMs.
    """

    number: int
    total_bytes: int
    free_bytes: int
    has_processors: bool
    distances: tuple[int, ...]
    is_cxl: bool
    is_nvdimm: bool


def read_numa_memory(root: Root) -> tuple[NumaMemory, ...]:
    """Return the memory of all NUMA nodes that have some, by their number."""
    numbers = [integer_of(name.removeprefix("node")) for name in root.names(*_NODES) if re.fullmatch(r"node\d+", name)]
    nodes = (_numa_memory(root, number) for number in sorted(number for number in numbers if number is not None))
    return tuple(node for node in nodes if node.total_bytes)


def _numa_memory(root: Root, number: int) -> NumaMemory:
    name = f"node{number}"
    entries = _meminfo(root.text(*_NODES, name, "meminfo"))
    words = (root.text(*_NODES, name, "distance") or "").split()
    has_processors = bool(root.text(*_NODES, name, "cpulist"))
    return NumaMemory(
        number,
        entries.get("MemTotal", 0),
        entries.get("MemFree", 0),
        has_processors,
        tuple(distance for word in words if (distance := integer_of(word)) is not None and distance >= 0),
        not has_processors and _comes_from(root, name, "cxl"),
        _is_nvdimm(root, name),
    )


def read_media(root: Root) -> tuple[MemoryMedium, ...]:
    """Return the machine's memory media, those of one kind with the same figures as one."""
    media = [*_of_nodes(root), *_of_disks(root)]
    capacity = Counter[MemoryMedium]()
    for medium in media:
        key = MemoryMedium(medium.kind, 0, medium.read_latency_ns, medium.write_latency_ns, medium.bytes_per_s)
        capacity[key] += medium.capacity_bytes
    return tuple(
        MemoryMedium(key.kind, nbytes, key.read_latency_ns, key.write_latency_ns, key.bytes_per_s)
        for key, nbytes in capacity.items()
        if nbytes > 0
    )


def read_memory_use(root: Root) -> MemoryUse | None:
    """Return how much memory is used, None if /proc/meminfo does not show it."""
    entries = _meminfo(root.text("proc", "meminfo"))
    total, available = entries.get("MemTotal"), entries.get("MemAvailable")
    return None if total is None or available is None else MemoryUse(total - available, total)


def _of_nodes(root: Root) -> list[MemoryMedium]:
    media = [_of_node(root, name) for name in root.names(*_NODES) if re.fullmatch(r"node\d+", name)]
    total = _meminfo(root.text("proc", "meminfo")).get("MemTotal")
    if total is not None and all(medium.kind is MediumKind.DRAM and not _is_described(medium) for medium in media):
        # All of one kind: use the kernel's total, as a hypervisor may have taken memory from any node.
        return [MemoryMedium(MediumKind.DRAM, total)]
    return media


def _is_described(medium: MemoryMedium) -> bool:
    return (medium.read_latency_ns, medium.write_latency_ns, medium.bytes_per_s) != (None, None, None)


def _of_node(root: Root, node: str) -> MemoryMedium:
    figures = (*_NODES, node, "access0", "initiators")
    rate = root.integer(*figures, "read_bandwidth")
    return MemoryMedium(
        MediumKind.SCM if _is_nvdimm(root, node) else MediumKind.DRAM,
        _meminfo(root.text(*_NODES, node, "meminfo")).get("MemTotal", 0),
        root.integer(*figures, "read_latency") or None,
        root.integer(*figures, "write_latency") or None,
        rate * _MIB if rate else None,
    )


def _is_nvdimm(root: Root, node: str) -> bool:
    """Return whether a node has no processor and is memory of an NVDIMM bus."""
    return not root.text(*_NODES, node, "cpulist") and _comes_from(root, node, "ndbus")


def _comes_from(root: Root, node: str, bus: str) -> bool:
    """Return whether a node's memory is that of a DAX device below a bus."""
    dax = ("sys", "bus", "dax", "devices")
    return any(
        root.text(*dax, name, "target_node") == node.removeprefix("node") and bus in (root.link(*dax, name) or "")
        for name in root.names(*dax)
    )


def _of_disks(root: Root) -> list[MemoryMedium]:
    kinds = ((_PMEM, MediumKind.SCM), (_NVME, MediumKind.NVM))
    return [
        MemoryMedium(kind, (root.integer("sys", "block", name, "size") or 0) * _SECTOR_BYTES)
        for name in root.names("sys", "block")
        for pattern, kind in kinds
        if pattern.fullmatch(name)
    ]


def _meminfo(text: str | None) -> dict[str, int]:
    """Return the entries of a meminfo file in bytes; those of a NUMA node begin with 'Node N '."""
    entries = {}
    for line in (text or "").splitlines():
        words = re.sub(r"^Node \d+ +", "", line).split()
        if len(words) == 3 and words[2] == "kB" and (kib := integer_of(words[1])) is not None and kib >= 0:
            entries[words[0].removesuffix(":")] = kib << 10
    return entries
