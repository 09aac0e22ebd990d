"""Growth of expected idle device capacity when a request is placed on a node; the plain twin is in `stranding`."""

from __future__ import annotations

from typing import Final

from controller.scheduling.containers.kernels.fragments import serves
from controller.scheduling.containers.kernels.structures import Demand, KernelRequest, Room
from dataplane.native import Array, as_i64, i64, kernel, u32

IMPOSSIBLE: Final = 1 << 62
"""Marks a node on which a request does not fit."""
_MILLION: Final = 1_000_000


@kernel
def stranded_changes(  # noqa: PLR0917 - kernels have no keywords
    room: Room, demand: Demand, wanted: KernelRequest, first: u32, last: u32, out: Array[i64], device: Array[i64]
) -> None:
    """Write the growth of idle capacity on nodes `first` up to `last`, and the devices that would give the shares.

    The growth is in millionths of a device.
    """
    for row in range(first, last):
        out[row] = IMPOSSIBLE
        device[row] = -1
        if room.cpu_milli[row] >= wanted.cpu_milli and room.memory_bytes[row] >= wanted.memory_bytes:
            change(room, demand, wanted, as_i64(row), out, device)


@kernel(inline=True)
def change(  # noqa: PLR0917 - kernels have no keywords
    room: Room, demand: Demand, wanted: KernelRequest, row: i64, out: Array[i64], device: Array[i64]
) -> None:
    """Write one node's change. All devices of a request are of one kind."""
    chosen: i64 = -1
    taken: i64 = wanted.count * wanted.milli
    rest: i64 = 0
    if wanted.count > 0:
        chosen = pick(room, demand, wanted, row)
        if chosen < 0:
            return
        rest = wanted.count * growth(room, demand, wanted, chosen)
    cpu: i64 = need_of_free_devices(room, demand, demand.cpu_milli, row)
    memory: i64 = need_of_free_devices(room, demand, demand.memory_kib, row)
    before: i64 = shortage(demand, cpu, memory, room.cpu_milli[row], room.memory_bytes[row])
    if chosen >= 0 and demand.kind[chosen] >= 0:
        cpu -= taken * demand.cpu_milli[demand.kind[chosen]]
        memory -= taken * demand.memory_kib[demand.kind[chosen]]
    cpu_left: i64 = room.cpu_milli[row] - wanted.cpu_milli
    memory_left: i64 = room.memory_bytes[row] - wanted.memory_bytes
    out[row] = rest + shortage(demand, cpu, memory, cpu_left, memory_left) - before
    device[row] = chosen


@kernel(inline=True)
def pick(room: Room, demand: Demand, wanted: KernelRequest, row: i64) -> i64:
    """Return the device whose idle capacity grows least, the first on a tie; -1 if there are too few devices."""
    able: i64 = 0
    best: i64 = IMPOSSIBLE
    chosen: i64 = -1
    for device in range(room.start[row], room.start[row + 1]):
        if serves(room, wanted, device):
            able += 1
            more: i64 = growth(room, demand, wanted, device)
            if more < best:
                best = more
                chosen = device
    none: i64 = -1
    return chosen if able >= wanted.count else none


@kernel(inline=True)
def growth(room: Room, demand: Demand, wanted: KernelRequest, device: i64) -> i64:
    """Return how much more of a device is expected to stay idle after it has served one device of the request."""
    kind: i64 = demand.kind[device]
    if kind < 0:
        return as_i64(0)
    # Each kind's table has 1001 values, for 0 to 1000 free thousandths.
    free: i64 = kind * 1001 + room.milli[device]
    return demand.value[free - wanted.milli] - demand.value[free]


@kernel(inline=True)
def need_of_free_devices(room: Room, demand: Demand, need: Array[i64], row: i64) -> i64:
    """Return the cores or memory that the workload needs along with a node's free devices, times a thousand."""
    total: i64 = 0
    for device in range(room.start[row], room.start[row + 1]):
        if demand.kind[device] >= 0:
            total += room.milli[device] * need[demand.kind[device]]
    return total


@kernel(inline=True)
def shortage(demand: Demand, cpu: i64, memory: i64, cpu_milli: i64, memory_bytes: i64) -> i64:
    """Return how many millionths of a device lack the cores or memory that the workload needs with them."""
    missing: i64 = 0
    if demand.most_cpu_milli > 0:
        missing = max(missing, (cpu // 1000 - cpu_milli) * _MILLION // demand.most_cpu_milli)
    if demand.most_memory_kib > 0:
        missing = max(missing, (memory // 1000 - memory_bytes // 1024) * _MILLION // demand.most_memory_kib)
    return missing * demand.shortage_milli // 1000
