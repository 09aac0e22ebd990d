"""Caps of power as levers: processors by powercap (RAPL), AMD's and Intel's devices by their driver's monitors.

Hardware chooses voltage and clock below a cap. Sources: Documentation/power/powercap/powercap.rst,
Documentation/gpu/amdgpu/thermal.rst, and Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon and
sysfs-driver-intel-xe-hwmon of Linux. Linux has no file that sets a processor's voltage.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from collectors.devices.pci import PCI
from collectors.devices.root import Root
from controller.balance.errors import LeverError
from controller.balance.levers.files import CapFile, FileCaps, Switch
from controller.balance.values import LeverKind

POWERCAP: Final = ("sys", "class", "powercap")
_MICROWATTS: Final = 1_000_000
_PACKAGE: Final = re.compile(r"intel-rapl:\d+")
_FIRST: Final = "intel-rapl:0"
_CONSTRAINTS: Final = 4
_SUSTAINED: Final = "long_term"
_LOW_SHARE: Final = 0.5
"""Lowest cap relative to the highest, where the kernel states none: below it, processors hardly compute."""


@dataclass(frozen=True, slots=True)
class _Monitor:
    """Names of a driver's files of one cap in its hardware monitor."""

    cap: str
    low: str | None
    high: str


_MONITORS: Final = (
    _Monitor("power1_cap", "power1_cap_min", "power1_cap_max"),  # amdgpu
    _Monitor("power1_max", None, "power1_rated_max"),  # i915, and xe for a card
    _Monitor("power2_max", None, "power2_rated_max"),  # xe for a package
)


def packages(root: Root) -> tuple[str, ...]:
    """Return the zones of the processors' packages, as powercap names them; intel-rapl:0 without any."""
    zones = tuple(name for name in root.names(*POWERCAP) if _PACKAGE.fullmatch(name))
    return zones or (_FIRST,)


def zone_power(zone: str, root: Root, *, low_w: float | None = None, may_set: bool = False) -> FileCaps:
    """Return the sustained cap of a zone of powercap; raise LeverError if the kernel does not offer it."""
    name = f"power cap of {zone}"
    zones = [each for each in root.names(*POWERCAP) if ":" in each]
    if not zones:
        raise LeverError(name, "no powercap on this machine: its kernel or hypervisor hides it")
    if zone not in zones:
        raise LeverError(name, f"no such zone: this machine has {', '.join(zones)}")
    folder = (*POWERCAP, zone)
    number = _constraint(root, folder)
    if number is None:
        raise LeverError(name, "it counts energy, but has no limit of power, as with AMD's processors")
    prefix = f"constraint_{number}"
    limit_uw = root.integer(*folder, f"{prefix}_power_limit_uw")
    if not limit_uw:
        raise LeverError(name, f"/{'/'.join(folder)}/{prefix}_power_limit_uw holds no limit, or may not be read")
    high_w = max(root.integer(*folder, f"{prefix}_max_power_uw") or 0, limit_uw) / _MICROWATTS
    file = CapFile(
        (*folder, f"{prefix}_power_limit_uw"),
        _low_w(low_w, root.integer(*folder, f"{prefix}_min_power_uw"), high_w, name),
        high_w,
    )
    switch = Switch((*folder, "enabled"), "1")
    return FileCaps(LeverKind.POWER, name, [file], root, per_unit=_MICROWATTS, may_set=may_set, switch=switch)


def device_power(address: str, root: Root, *, low_w: float | None = None, may_set: bool = False) -> FileCaps:
    """Return the cap of a device by its driver's monitor in /sys; raise LeverError if it has none."""
    name = f"power cap of {address}"
    if not root.names(*PCI, address):
        raise LeverError(name, "no such device")
    for monitor in root.names(*PCI, address, "hwmon"):
        folder = (*PCI, address, "hwmon", monitor)
        for files in _MONITORS:
            cap_uw = root.integer(*folder, files.cap)
            high_uw = root.integer(*folder, files.high) or cap_uw
            if cap_uw is None or not high_uw:
                continue
            stated_uw = None if files.low is None else root.integer(*folder, files.low)
            high_w = high_uw / _MICROWATTS
            low_w = _low_w(low_w, stated_uw, high_w, name)
            file = CapFile((*folder, files.cap), low_w, high_w, is_off_at_0=files.low is None)
            return FileCaps(LeverKind.POWER, name, [file], root, per_unit=_MICROWATTS, may_set=may_set)
    driver = (root.link(*PCI, address, "driver") or "").rpartition("/")[2] or "no driver"
    raise LeverError(name, f"its driver ({driver}) shows no cap of power in /sys")


def _constraint(root: Root, folder: tuple[str, ...]) -> int | None:
    """Return the number of a zone's sustained limit, else of its first; None without limits."""
    numbers = [number for number in range(_CONSTRAINTS) if f"constraint_{number}_power_limit_uw" in root.names(*folder)]
    named = (number for number in numbers if root.text(*folder, f"constraint_{number}_name") == _SUSTAINED)
    return next(named, numbers[0] if numbers else None)


def _low_w(wanted_w: float | None, stated_uw: int | None, high_w: float, name: str) -> float:
    low_w = wanted_w or (stated_uw / _MICROWATTS if stated_uw else _LOW_SHARE * high_w)
    if low_w > high_w:
        raise LeverError(name, f"low_w is {low_w:g} W, above its highest cap of {high_w:g} W")
    return low_w
