"""NVIDIA devices as levers, through NVML: clock of their cores, cap of their power, number of their instances.

Source: the NVML API reference (locked clocks; power management limit; Multi-Instance GPU). NVML sets no voltage: it
follows the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from ctypes import byref, c_uint
from typing import Any, Final

from collectors.devices.nvml import Nvml
from controller.balance.errors import LeverError
from controller.balance.levers.values import Moved, Standing, moved, refused
from controller.balance.values import LeverKind

_READ_ONLY: Final = "its settings lack set: true"
_PROFILE_VERSION: Final = 1
_MILLI: Final = 1000


class _Device:
    """A device by its PCI address; raises NVML's errors as LeverErrors that name the lever."""

    def __init__(self, nvml: Nvml, address: str, name: str) -> None:
        self.api, self.name = nvml.api, name
        self.handle = self.ask(self.api.nvmlDeviceGetHandleByPciBusId, address)

    def ask(self, call: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401 - as ctypes has it
        try:
            return call(*arguments)
        except self.api.NVMLError as error:
            raise LeverError(self.name, f"NVML: {error}") from error


class GpuClocks:
    """The clock cap of a device's cores, among the supported clocks.

    NVML reports the current clock, which is lower while cores are idle, but not the locked one: before its first move
    the lever is at its highest.
    """

    def __init__(self, nvml: Nvml, address: str, *, may_set: bool = False) -> None:
        self.kind, self.name, self._may_set = LeverKind.FREQUENCY, f"clock of {address}", may_set
        self._device = _Device(nvml, address, self.name)
        self._points = self._supported()
        self._locked_mhz: float | None = None
        self._refusal = ""

    def read(self) -> Standing:
        """Return the cap of the cores' clock, and the supported clocks."""
        low, high = self._points[0], self._points[-1]
        value = high if self._locked_mhz is None else self._locked_mhz
        why_not = self._refusal if self._may_set else _READ_ONLY
        return Standing(value, low, high, 1.0, not why_not, why_not, self._points)

    def move(self, by: float) -> Moved:
        """Raise (lower) it by this many MHz, within the supported clocks."""
        standing = self.read()
        if (nothing := refused(standing, by)) is not None:
            return nothing
        target, api = standing.place(standing.value + by), self._device.api
        if target != standing.value:
            try:
                api.nvmlDeviceSetGpuLockedClocks(self._device.handle, round(standing.low), round(target))
            except api.NVMLError_NoPermission as error:
                self._refusal = f"NVML: {error}: only root may set clocks"
                return Moved(0.0, by, self._refusal)
            except api.NVMLError as error:
                raise LeverError(self.name, f"NVML: {error}") from error
            self._locked_mhz = target
        return moved(standing, by, target)

    def release(self, *, always: bool = False) -> None:
        """Let the driver choose the clock, if this lever ever set it."""
        if self._locked_mhz is not None or (always and self._may_set):
            self._device.ask(self._device.api.nvmlDeviceResetGpuLockedClocks, self._device.handle)
            self._locked_mhz = None

    def _supported(self) -> tuple[float, ...]:
        """Return the core clocks for the fastest memory clock, ascending."""
        device, api = self._device, self._device.api
        memory_mhz = device.ask(api.nvmlDeviceGetSupportedMemoryClocks, device.handle)
        clocks_mhz = device.ask(api.nvmlDeviceGetSupportedGraphicsClocks, device.handle, max(memory_mhz, default=0))
        if not clocks_mhz:
            raise LeverError(self.name, "NVML: the device reports no supported clocks")
        return tuple(sorted(float(clock) for clock in clocks_mhz))


class GpuPower:
    """The power management limit of a device, in watts."""

    def __init__(self, nvml: Nvml, address: str, *, low_w: float | None = None, may_set: bool = False) -> None:
        self.kind, self.name, self._may_set = LeverKind.POWER, f"power cap of {address}", may_set
        self._device = _Device(nvml, address, self.name)
        device, api = self._device, nvml.api
        low_mw, high_mw = device.ask(api.nvmlDeviceGetPowerManagementLimitConstraints, device.handle)
        self._high_w = high_mw / _MILLI
        self._low_w = max(low_mw / _MILLI, low_w or 0.0)
        if self._low_w > self._high_w:
            raise LeverError(self.name, f"low_w is {self._low_w:g} W, above its highest cap of {self._high_w:g} W")
        self._found_w, self._has_moved, self._refusal = self._limit_w(), False, ""

    def read(self) -> Standing:
        """Return the limit, and its range."""
        why_not = self._refusal if self._may_set else _READ_ONLY
        return Standing(self._limit_w(), self._low_w, self._high_w, 1.0, not why_not, why_not)

    def move(self, by: float) -> Moved:
        """Raise (lower) the limit by this many watts; the driver reports where it is then."""
        standing = self.read()
        if (nothing := refused(standing, by)) is not None:
            return nothing
        target, api = standing.place(standing.value + by), self._device.api
        if target == standing.value:
            return moved(standing, by, target)
        try:
            api.nvmlDeviceSetPowerManagementLimit(self._device.handle, round(target * _MILLI))
        except api.NVMLError_NoPermission as error:
            self._refusal = f"NVML: {error}: only root may set limits of power"
            return Moved(0.0, by, self._refusal)
        except api.NVMLError as error:
            raise LeverError(self.name, f"NVML: {error}") from error
        self._has_moved = True
        return moved(standing, by, self._limit_w())

    def release(self, *, always: bool = False) -> None:
        """Restore the original limit, if this lever ever moved it."""
        if self._has_moved or (always and self._may_set):
            found_mw = round(self._found_w * _MILLI)
            self._device.ask(self._device.api.nvmlDeviceSetPowerManagementLimit, self._device.handle, found_mw)
            self._has_moved = False

    def _limit_w(self) -> float:
        api = self._device.api
        return float(self._device.ask(api.nvmlDeviceGetPowerManagementLimit, self._device.handle)) / _MILLI


class GpuInstances:
    """Instances with a given number of slices of a partitioned device (MIG), one compute instance each, as sub-units.

    The mode itself is not switched here: that resets the device. Instances in use stay.
    """

    def __init__(self, nvml: Nvml, address: str, slices: int, *, low: int = 0, may_set: bool = False) -> None:
        self.kind, self.name, self._may_set = LeverKind.SUB_UNITS, f"instances of {address}", may_set
        self._low, self._device = low, _Device(nvml, address, self.name)
        api = nvml.api
        mode, _ = self._device.ask(api.nvmlDeviceGetMigMode, self._device.handle)
        if mode != api.NVML_DEVICE_MIG_ENABLE:
            raise LeverError(self.name, "MIG is off (nvidia-smi -mig 1 turns it on)")
        profile = getattr(api, f"NVML_GPU_INSTANCE_PROFILE_{slices}_SLICE", None)
        part = getattr(api, f"NVML_COMPUTE_INSTANCE_PROFILE_{slices}_SLICE", None)
        if profile is None or part is None:
            raise LeverError(self.name, f"no instance profile has {slices} slices")
        info = self._device.ask(api.nvmlDeviceGetGpuInstanceProfileInfo, self._device.handle, profile, _PROFILE_VERSION)
        self._profile, self._most, self._part = int(info.id), int(info.instanceCount), part
        self._found = len(self._instances())
        self._has_moved = False

    def read(self) -> Standing:
        """Return the number of instances, and how many fit next to those of other sizes."""
        count = len(self._instances())
        device = self._device
        more = device.ask(device.api.nvmlDeviceGetGpuInstanceRemainingCapacity, device.handle, self._profile)
        return Standing(count, self._low, count + int(more), 1.0, self._may_set, "" if self._may_set else _READ_ONLY)

    def move(self, by: float) -> Moved:
        """Create (remove) this many instances; one that is in use stays, and the rest is left over."""
        standing = self.read()
        if (nothing := refused(standing, by)) is not None:
            return nothing
        wanted, api = round(standing.place(standing.value + by)), self._device.api
        reason = ""
        try:
            self._reach(wanted)
        except api.NVMLError_InUse:
            reason = "NVML: the remaining instances are in use"
        except api.NVMLError_NoPermission as error:
            reason = f"NVML: {error}: only root may create instances"
        except api.NVMLError as error:
            raise LeverError(self.name, f"NVML: {error}") from error
        finally:
            self._has_moved = True
        done = moved(standing, by, len(self._instances()))
        return Moved(done.done, done.left, reason) if reason else done

    def release(self, *, always: bool = False) -> None:
        """Restore the original number, if this lever ever changed it; instances in use stay."""
        if self._has_moved or (always and self._may_set):
            self.move(self._found - len(self._instances()))

    def _reach(self, wanted: int) -> None:
        api, handle = self._device.api, self._device.handle
        for _ in range(wanted - len(self._instances())):
            instance = api.nvmlDeviceCreateGpuInstance(handle, self._profile)
            try:
                info = api.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                    instance, self._part, api.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, _PROFILE_VERSION
                )
                api.nvmlGpuInstanceCreateComputeInstance(instance, info.id)
            except api.NVMLError:
                api.nvmlGpuInstanceDestroy(instance)  # unusable without a compute instance
                raise
        surplus = len(self._instances()) - wanted
        for instance in reversed(self._instances()):
            if surplus <= 0:
                return
            with suppress(api.NVMLError_InUse):
                self._remove(instance)
                surplus -= 1
        if surplus > 0:
            raise api.NVMLError_InUse

    def _remove(self, instance: Any) -> None:  # noqa: ANN401 - a pointer of ctypes
        api = self._device.api
        info = api.nvmlGpuInstanceGetComputeInstanceProfileInfo(
            instance, self._part, api.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, _PROFILE_VERSION
        )
        count, parts = c_uint(), (api.c_nvmlComputeInstance_t * max(int(info.instanceCount), 1))()
        api.nvmlGpuInstanceGetComputeInstances(instance, info.id, parts, byref(count))
        for part in parts[: count.value]:
            api.nvmlComputeInstanceDestroy(part)
        api.nvmlGpuInstanceDestroy(instance)

    def _instances(self) -> list[Any]:
        device, count = self._device, c_uint()
        instances = (device.api.c_nvmlGpuInstance_t * max(self._most, 1))()
        device.ask(device.api.nvmlDeviceGetGpuInstances, device.handle, self._profile, instances, byref(count))
        return list(instances[: count.value])
