"""Change of the nodes' expected fragments when a request is placed there; the plain twin is `hardware.fragments`."""

from __future__ import annotations

from typing import Final

from controller.scheduling.containers.kernels.structures import KernelRequest, Room, Typical
from dataplane.native import Array, as_i64, as_u64, i64, kernel, u32, u64

NEVER: Final = -(1 << 62)
"""Marks a node on which a request does not fit."""


@kernel
def fragment_changes(  # noqa: PLR0917 - kernels have no keywords
    room: Room,
    typical: Typical,
    wanted: KernelRequest,
    rows: Array[i64],
    count: u32,
    scratch: Array[i64],
    out: Array[i64],
) -> None:
    """Write the decrease of fragments for each node of `rows`, in thousandths times pods, with the best devices.

    `scratch` has room for one node's devices.
    """
    for index in range(count):
        row: i64 = rows[index]
        out[row] = NEVER
        if room.cpu_milli[row] >= wanted.cpu_milli and room.memory_bytes[row] >= wanted.memory_bytes:
            out[row] = best_change(room, typical, wanted, row, scratch)


@kernel(inline=True)
def best_change(room: Room, typical: Typical, wanted: KernelRequest, row: i64, scratch: Array[i64]) -> i64:
    """Return the decrease of a node's fragments, `NEVER` if no devices fit."""
    first: i64 = room.start[row]
    devices: i64 = room.start[row + 1] - first
    for device in range(devices):
        scratch[device] = room.milli[first + device]
    before: i64 = expected(room, typical, first, devices, room.cpu_milli[row], room.memory_bytes[row], scratch)
    cpu: i64 = room.cpu_milli[row] - wanted.cpu_milli
    memory: i64 = room.memory_bytes[row] - wanted.memory_bytes
    if wanted.count == 1 and wanted.milli < 1000:
        best: i64 = NEVER
        for device in range(devices):
            if serves(room, wanted, first + device) and is_first(room, wanted, scratch, first, device):
                scratch[device] -= wanted.milli
                decrease: i64 = before - expected(room, typical, first, devices, cpu, memory, scratch)
                scratch[device] += wanted.milli
                best = max(best, decrease)
        return best
    left: i64 = wanted.count
    never: i64 = NEVER
    for device in range(devices):
        if left > 0 and serves(room, wanted, first + device):
            scratch[device] -= wanted.milli
            left -= 1
    if left > 0:
        return never
    return before - expected(room, typical, first, devices, cpu, memory, scratch)


@kernel(inline=True)
def serves(room: Room, wanted: KernelRequest, device: i64) -> bool:
    """Return whether a device satisfies the request for one."""
    return (
        wanted.accepts[device] != 0
        and room.milli[device] >= wanted.milli
        and room.device_memory_bytes[device] >= wanted.device_memory_bytes
    )


@kernel(inline=True)
def is_first(room: Room, wanted: KernelRequest, scratch: Array[i64], first: i64, device: i64) -> bool:
    """Return whether no earlier device is of the same model with as much left; such a device gives the same result."""
    for other in range(device):
        same: bool = scratch[other] == scratch[device] and room.alike[first + other] == room.alike[first + device]
        if same and serves(room, wanted, first + other):
            return False
    return True


@kernel(inline=True)
def expected(  # noqa: PLR0917 - kernels have no keywords
    room: Room, typical: Typical, first: i64, devices: i64, cpu: i64, memory: i64, milli: Array[i64]
) -> i64:
    """Return the free thousandths that a workload's pods cannot use, weighted by frequency."""
    total: i64 = 0
    for device in range(devices):
        total += milli[device]
    if total == 0:
        return as_i64(0)
    unusable: i64 = 0
    for request in range(typical.requests):
        unused: i64 = total
        if typical.count[request] > 0 and typical.cpu_milli[request] <= cpu and typical.memory_bytes[request] <= memory:
            base: u64 = as_u64(request) * as_u64(room.devices) + as_u64(first)
            able: i64 = 0
            used: i64 = 0
            for device in range(devices):
                if typical.accepts[base + as_u64(device)] != 0 and milli[device] >= typical.milli[request]:
                    able += 1
                    used += milli[device]
            if able >= typical.count[request]:
                unused = total - used
        unusable += typical.weight[request] * unused
    return unusable
