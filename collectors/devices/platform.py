"""Devices of systems on a chip, which are not on PCI: GPUs by DRM, accelerators by the accel class.

Sources: Documentation/gpu/drm-uapi.rst (render nodes: those that compute, not merely display) and
Documentation/accel/introduction.rst of Linux. The model is the first entry of the device tree's `compatible`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from collectors.devices.root import Root
from dataplane.topology.device_kinds import DEVICE_TRAITS
from dataplane.topology.values import Bus, BusKind, DeviceKind

_CLASSES: Final = tuple((traits.sysfs_class, kind) for kind, traits in DEVICE_TRAITS.items() if traits.sysfs_class)
_DRM: Final = "drm"


@dataclass(frozen=True, slots=True)
class PlatformDevice:
    """A computing device of a system on a chip; `address` is its name in the device tree, such as fde60000.gpu."""

    address: str
    kind: DeviceKind
    model: str
    driver: str
    bus: Bus


def read_platform_devices(root: Root) -> tuple[PlatformDevice, ...]:
    """Return the computing devices on the platform bus, by address."""
    devices = {}
    for name, kind in _CLASSES:
        # DRM also lists its connectors, such as card0-HDMI-A-1.
        pattern = re.compile(rf"{'card' if name == _DRM else name}\d+")
        for entry in root.names("sys", "class", name):
            folder = ("sys", "class", name, entry, "device")
            if not pattern.fullmatch(entry) or _last(root.link(*folder, "subsystem")) != "platform":
                continue
            if name == _DRM and not any(node.startswith("renderD") for node in root.names(*folder, "drm")):
                continue
            address = _last(root.link(*folder))
            model = (root.text(*folder, "of_node", "compatible") or "").split("\0")[0]
            driver = _last(root.link(*folder, "driver"))
            devices[address] = PlatformDevice(address, kind, model or driver, driver, Bus(BusKind.SYSTEM))
    return tuple(devices[address] for address in sorted(devices))


def _last(path: str | None) -> str:
    return (path or "").rpartition("/")[2]
