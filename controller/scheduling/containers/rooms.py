"""Snapshots and requests as the kernels of the policies see them."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import numpy as np

from controller.cluster.hardware import WHOLE, DeviceRequest, Request
from controller.scheduling.containers.kernels.structures import KernelRequest, Room
from controller.scheduling.framework.policies import Longs
from controller.scheduling.pods import Snapshot
from controller.scheduling.pods.columns import NodeColumns
from dataplane.native import Array, pointer_to

_NO_DEVICES = np.zeros(1, np.uint8)


def room_of(snapshot: Snapshot) -> Room:
    """Return the free resources as kernels see them; valid as long as the snapshot."""
    columns, free = snapshot.columns, snapshot.free
    return Room(
        nodes=len(columns.nodes),
        devices=len(columns.device_node),
        start=view_of(columns.device_start),
        alike=view_of(alike(columns)),
        cpu_milli=view_of(free.cpu_milli),
        memory_bytes=view_of(free.memory_bytes),
        milli=view_of(free.device_milli),
        device_memory_bytes=view_of(free.device_memory_bytes),
    )


def view_of(column: Longs) -> Array[int]:
    """Return a column that kernels only read; unlike `pointer_to`, accepts read-only memory."""
    return Array(ctypes.c_uint8, column.ctypes.data, column)


@lru_cache(maxsize=8)
def alike(columns: NodeColumns) -> Longs:
    """Return a number for each device that is shared by devices of the same kind and model."""
    numbers: dict[object, int] = {}
    model_numbers = [
        numbers.setdefault((device.kind, device.model), len(numbers))
        for node in columns.nodes
        for device in node.devices
    ]
    return np.array(model_numbers or [0], np.int64)


def is_supported(request: Request) -> bool:
    """Return whether kernels support a request: one for at most one sort of device."""
    return len(request.devices) <= 1


def kernel_request_of(request: Request, columns: NodeColumns) -> KernelRequest:
    """Return a request for at most one sort of device as kernels see it."""
    wanted: DeviceRequest | None = request.devices[0] if request.devices else None
    accepts = _NO_DEVICES if wanted is None else columns.accepted(wanted).view(np.uint8)
    return KernelRequest(
        cpu_milli=request.cpu_milli,
        memory_bytes=request.memory_bytes,
        count=0 if wanted is None else wanted.count,
        milli=WHOLE if wanted is None else wanted.thousandths,
        device_memory_bytes=0 if wanted is None else wanted.memory_bytes,
        accepts=pointer_to(accepts),
    )
