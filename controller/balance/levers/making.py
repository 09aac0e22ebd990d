"""Creates a machine's own levers from settings; reports each missing one as a line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from collectors.devices.nvml import Nvml
from collectors.devices.root import Root
from controller.balance.errors import LeverError
from controller.balance.levers.clocks import CpuClocks
from controller.balance.levers.nvidia import GpuClocks, GpuInstances
from controller.balance.levers.quota import CpuQuota
from controller.balance.levers.settings import LeverSettings
from controller.balance.levers.values import Lever


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
        made.append(partial(_gpu_clocks, nvml, gpu.device, may_set=gpu.set))
    if (parts := settings.gpu_instances) is not None:
        made.append(partial(_gpu_instances, nvml, parts.device, parts.slices, low=parts.low, may_set=parts.set))
    return made


def _gpu_clocks(nvml: Nvml | str, device: str, *, may_set: bool) -> GpuClocks:
    if isinstance(nvml, str):
        raise LeverError(f"clock of {device}", nvml)
    return GpuClocks(nvml, device, may_set=may_set)


def _gpu_instances(nvml: Nvml | str, device: str, slices: int, *, low: int, may_set: bool) -> GpuInstances:
    if isinstance(nvml, str):
        raise LeverError(f"instances of {device}", nvml)
    return GpuInstances(nvml, device, slices, low=low, may_set=may_set)
