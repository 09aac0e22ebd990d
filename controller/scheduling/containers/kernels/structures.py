"""What the kernels of the policies work on, in memory that Python shares."""

from __future__ import annotations

from dataplane.native import Array, Struct, i64, u8, u32


class Room(Struct):
    """What is free: of nodes, and of devices in thousandths and bytes; a node's devices begin at `start[node]`.

    Devices of one kind and model have one number in `alike`.
    """

    nodes: u32
    devices: u32
    start: Array[i64]
    alike: Array[i64]
    cpu_milli: Array[i64]
    memory_bytes: Array[i64]
    milli: Array[i64]
    device_memory_bytes: Array[i64]


class Asked(Struct):
    """A request for devices of one kind at most: `count` of them (0: none), of each so much; `accepts` by device."""

    cpu_milli: i64
    memory_bytes: i64
    count: i64
    milli: i64
    device_memory_bytes: i64
    accepts: Array[u8]


class Typical(Struct):
    """The requests of a workload and how many pods made each; row `t` of `accepts` says which devices will do."""

    requests: u32
    weight: Array[i64]
    cpu_milli: Array[i64]
    memory_bytes: Array[i64]
    count: Array[i64]
    milli: Array[i64]
    accepts: Array[u8]


class Demand(Struct):
    """What a workload makes of what is left of devices, by kind.

    `value` has 1001 rows a kind: the millionths of a device that are expected to stay idle of so many thousandths that
    are free. `cpu_milli` and `memory_kib` are what the workload asks for beside a whole device, `most_cpu_milli` and
    `most_memory_kib` the most of these; `kind` is each device's row, -1 for one of which nothing is asked.
    """

    value: Array[i64]
    cpu_milli: Array[i64]
    memory_kib: Array[i64]
    most_cpu_milli: i64
    most_memory_kib: i64
    shortage_milli: i64
    kind: Array[i64]
