"""Data structures of the policies' kernels, in memory shared with Python."""

from __future__ import annotations

from dataplane.native import Array, Struct, i64, u8, u32


class Room(Struct):
    """Free resources of nodes, and of devices in thousandths and bytes; a node's devices begin at `start[node]`.

    Devices of the same kind and model share a number in `alike`.
    """

    nodes: u32
    devices: u32
    start: Array[i64]
    alike: Array[i64]
    cpu_milli: Array[i64]
    memory_bytes: Array[i64]
    milli: Array[i64]
    device_memory_bytes: Array[i64]


class KernelRequest(Struct):
    """A request for devices of at most one kind: `count` of them (0: none), shares of each, and `accepts` by device."""

    cpu_milli: i64
    memory_bytes: i64
    count: i64
    milli: i64
    device_memory_bytes: i64
    accepts: Array[u8]


class Typical(Struct):
    """The requests of a workload with their pod counts; row `t` of `accepts` marks the devices that fit."""

    requests: u32
    weight: Array[i64]
    cpu_milli: Array[i64]
    memory_bytes: Array[i64]
    count: Array[i64]
    milli: Array[i64]
    accepts: Array[u8]


class Demand(Struct):
    """Value of leftover device capacity to a workload, by kind.

    `value` has 1001 rows per kind: for each number of free thousandths, the millionths of a device expected to stay
    idle. `cpu_milli` and `memory_kib` are what the workload requests along with a whole device, `most_cpu_milli` and
    `most_memory_kib` their maxima; `kind` is each device's row, -1 for a device that no request asks for.
    """

    value: Array[i64]
    cpu_milli: Array[i64]
    memory_kib: Array[i64]
    most_cpu_milli: i64
    most_memory_kib: i64
    shortage_milli: i64
    kind: Array[i64]
