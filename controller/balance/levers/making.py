"""Creates a machine's own levers from settings; reports each missing one as a line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from collectors.devices.nvml import Nvml
from collectors.devices.root import Root
from controller.balance.errors import LeverError
from controller.balance.levers.clocks import CpuClocks
from controller.balance.levers.gpu_clocks import AmdClocks, driver_of, intel_clocks
from controller.balance.levers.nvidia import GpuClocks, GpuInstances, GpuPower
from controller.balance.levers.power import device_power, zone_power
from controller.balance.levers.quota import CpuQuota
from controller.balance.levers.settings import LeverSettings, PowerCapLever
from controller.balance.levers.values import Lever

IN_SYSFS: Final = frozenset({"amdgpu", "i915", "xe"})
"""Drivers that show clocks and power in /sys."""


def local_levers(settings: LeverSettings, root: Root, nvml: Nvml | str) -> tuple[list[Lever], list[str]]:
    """Return the available levers, and a line for each missing one; `nvml` is NVML, or the reason for its absence."""
    levers, absent = list[Lever](), list[str]()
    for make in _makers(settings, root, nvml):
        try:
            levers.append(make())
        except LeverError as error:
            absent.append(str(error))
    return levers, absent


def _makers(settings: LeverSettings, root: Root, nvml: Nvml | str) -> list[Callable[[], Lever]]:
    made: list[Callable[[], Lever]] = []
    if (quota := settings.cpu_quota) is not None:
        made.append(
            partial(
                CpuQuota,
                quota.group,
                quota.milli,
                kind=quota.kind,
                low=quota.low,
                high=quota.high,
                may_set=quota.set,
                period_us=quota.period_us,
                root=root,
            )
        )
    if (clock := settings.cpu_clock) is not None:
        made.append(partial(CpuClocks, clock.policies, may_set=clock.set, root=root))
    if (gpu := settings.gpu_clock) is not None:
        made.append(partial(gpu_clocks, nvml, gpu.device, root, may_set=gpu.set))
    if (power := settings.power_cap) is not None:
        made.append(partial(_power_cap, nvml, power, root))
    if (parts := settings.gpu_instances) is not None:
        made.append(partial(_gpu_instances, nvml, parts.device, parts.slices, low=parts.low, may_set=parts.set))
    return made


def gpu_clocks(nvml: Nvml | str, device: str, root: Root, *, may_set: bool) -> Lever:
    """Return the clock lever of a device, by what its driver offers; raise LeverError without one."""
    match driver_of(root, device):
        case "amdgpu":
            return AmdClocks(device, root, may_set=may_set)
        case "i915" | "xe":
            return intel_clocks(device, root, may_set=may_set)
    if isinstance(nvml, str):
        raise LeverError(f"clock of {device}", nvml)
    return GpuClocks(nvml, device, may_set=may_set)


def device_cap(nvml: Nvml | str, device: str, root: Root, *, low_w: float | None, may_set: bool) -> Lever:
    """Return the power cap of a device, by NVML or by its driver's monitor; raise LeverError without one."""
    if driver_of(root, device) in IN_SYSFS:
        return device_power(device, root, low_w=low_w, may_set=may_set)
    if isinstance(nvml, str):
        raise LeverError(f"power cap of {device}", nvml)
    return GpuPower(nvml, device, low_w=low_w, may_set=may_set)


def _power_cap(nvml: Nvml | str, settings: PowerCapLever, root: Root) -> Lever:
    if settings.zone is not None:
        return zone_power(settings.zone, root, low_w=settings.low_w, may_set=settings.set)
    assert settings.device is not None
    return device_cap(nvml, settings.device, root, low_w=settings.low_w, may_set=settings.set)


def _gpu_instances(nvml: Nvml | str, device: str, slices: int, *, low: int, may_set: bool) -> GpuInstances:
    if isinstance(nvml, str):
        raise LeverError(f"instances of {device}", nvml)
    return GpuInstances(nvml, device, slices, low=low, may_set=may_set)
