"""An accelerator as the machines have it: with the bus and memory of their devices of its kind."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from controller.acceleration.values import Accelerator
from dataplane.topology.values import Device, DeviceKind

_GB: Final = 1e9


def completed(accelerator: Accelerator, given: frozenset[str], devices: Mapping[str, Sequence[Device]]) -> Accelerator:
    """Return an accelerator with the slowest bus and the least memory of all machines, unless it is `given`."""
    buses, memories = [], []
    for group in devices.values():
        mine = of_kind(group, accelerator.kind)
        buses.append(max((device.bus.bytes_per_s or 0 if device.bus else 0 for device in mine), default=0))
        memories.append(max((device.memory_bytes or 0 for device in mine), default=0))
    if "bus" not in given and min(buses):
        accelerator = replace(accelerator, bus_gb_per_s=min(buses) / _GB)
    if "memory" not in given and math.isinf(accelerator.memory_gb) and min(memories):
        accelerator = replace(accelerator, memory_gb=min(memories) / _GB)
    return accelerator


def of_kind(devices: Iterable[Device], kind: DeviceKind) -> list[Device]:
    """Return the devices of one kind."""
    return [device for device in devices if device.kind is kind]
