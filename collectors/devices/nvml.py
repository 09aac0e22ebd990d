"""NVIDIA's devices by NVML, the library of the driver, through nvidia-ml-py (the extra `nvml`).

Source: the NVML API reference. What a device does not support is missing in its samples, with NVML's reason. Peak fp32
is nominal: two operations a core and cycle at the highest clock. Of a divided device (MIG) its instances are listed,
each as a device; programs can use nothing else of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from collectors.devices.pci import pcie_bytes_per_s
from collectors.devices.sensors import FIGURES
from collectors.devices.values import DeviceSample, FoundDevice
from collectors.errors import CollectorError
from dataplane.topology.values import Bus, BusKind, Device, DeviceKind, NumberFormat, PeakRate

_GIGATRANSFERS: Final = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
"""By generation of PCIe."""
UNKNOWN: Final = "nvml "
"""Beginning of the address of a device that does not even tell its own."""
_OF_A_PART: Final = "NVML: not measured for an instance of a divided device"
_KIBI: Final = 1024
"""The unit of NVML's PCIe throughput."""


@dataclass(frozen=True, slots=True)
class Nvml:
    """NVML, initialised: `open_nvml` makes it and shuts it down."""

    api: ModuleType

    def devices(self) -> tuple[tuple[FoundDevice, ...], tuple[str, ...]]:
        """Return the devices, and notes on those that do not answer; raise CollectorError if NVML does not."""
        described, notes = list[FoundDevice](), list[str]()
        for index in range(self._count()):
            try:
                handle = self.api.nvmlDeviceGetHandleByIndex(index)
                device = self._device(handle)
                if not self._is_divided(handle):
                    described.append(device)
                    continue
                instances = [self._instance(instance, device) for instance in self._instances(handle)]
            except self.api.NVMLError as error:
                notes.append(f"NVML: device {index}: {error}")
                continue
            described += instances
            if not instances:
                notes.append(f"NVML: device {index} is divided (MIG), but has no instance that a program could use")
        return tuple(described), tuple(notes)

    def samples(self, now_ns: Callable[[], int]) -> tuple[DeviceSample, ...]:
        """Return a sample of each device, without figures of one that is lost; PCIe takes NVML 20 ms each way.

        Raises CollectorError if NVML does not answer at all.
        """
        taken = []
        for index in range(self._count()):
            try:
                handle = self.api.nvmlDeviceGetHandleByIndex(index)
                taken.append(self._sample(handle, now_ns()))
                if self._is_divided(handle):
                    address = self._address(handle)
                    taken += [self._part_sample(part, address, now_ns()) for part in self._instances(handle)]
            except self.api.NVMLError as error:
                lost = dict.fromkeys(FIGURES, f"NVML: {error}")
                taken.append(DeviceSample(now_ns(), f"{UNKNOWN}{index}", missing=lost))
        return tuple(taken)

    def _count(self) -> int:
        try:
            return int(self.api.nvmlDeviceGetCount())
        except self.api.NVMLError as error:
            raise CollectorError(f"NVML: {error}") from None

    def _device(self, handle: Any) -> FoundDevice:  # noqa: ANN401 - a pointer of ctypes
        api, missing = self.api, dict[str, str]()
        memory = self._ask(missing, "memory", api.nvmlDeviceGetMemoryInfo, handle)
        generation = self._ask(missing, "generation", api.nvmlDeviceGetMaxPcieLinkGeneration, handle)
        lanes = self._ask(missing, "lanes", api.nvmlDeviceGetMaxPcieLinkWidth, handle)
        is_known = generation in _GIGATRANSFERS and lanes
        device = Device(
            DeviceKind.GPU,
            1,
            api.nvmlDeviceGetName(handle),
            None if memory is None else int(memory.total),
            Bus(BusKind.PCIE, pcie_bytes_per_s(_GIGATRANSFERS[generation], lanes) if is_known else None),
            self._rates(handle),
        )
        return FoundDevice(device, self._address(handle), "nvidia", None, api.nvmlDeviceGetUUID(handle))

    def _instances(self, handle: Any) -> list[Any]:  # noqa: ANN401
        """Return the handles of a divided device's instances; their numbers have gaps where none is."""
        api, found = self.api, []
        for index in range(int(api.nvmlDeviceGetMaxMigDeviceCount(handle))):
            try:
                found.append(api.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
            except api.NVMLError_NotFound:
                continue
        return found

    def _instance(self, handle: Any, whole: FoundDevice) -> FoundDevice:  # noqa: ANN401
        """Return an instance as a device; the bus is that of the whole device, which all instances share."""
        api, missing = self.api, dict[str, str]()
        memory = self._ask(missing, "memory", api.nvmlDeviceGetMemoryInfo, handle)
        attributes = self._ask(missing, "attributes", api.nvmlDeviceGetAttributes, handle)
        if attributes is None:
            model, memory_bytes = f"{whole.device.model} MIG", None
        else:
            slices, memory_bytes = attributes.gpuInstanceSliceCount, int(attributes.memorySizeMB) << 20
            model = f"{whole.device.model} MIG {slices}g.{-(-memory_bytes >> 30)}gb"
        device = Device(
            DeviceKind.GPU,
            1,
            model,
            memory_bytes if memory is None else int(memory.total),
            whole.device.bus,
        )
        address = self._part_address(handle, whole.address)
        return FoundDevice(device, address, "nvidia", None, api.nvmlDeviceGetUUID(handle), whole.address)

    def _part_address(self, handle: Any, whole: str) -> str:  # noqa: ANN401
        api = self.api
        return f"{whole}/{api.nvmlDeviceGetGpuInstanceId(handle)}/{api.nvmlDeviceGetComputeInstanceId(handle)}"

    def _part_sample(self, handle: Any, whole: str, time_ns: int) -> DeviceSample:  # noqa: ANN401
        """Return the memory of an instance; NVML measures nothing else of a part."""
        missing = dict.fromkeys(FIGURES, _OF_A_PART)
        memory = self._ask(missing, "memory_used_bytes", self.api.nvmlDeviceGetMemoryInfo, handle)
        if memory is None:
            missing["memory_total_bytes"] = missing["memory_used_bytes"]
        else:
            del missing["memory_used_bytes"], missing["memory_total_bytes"]
        return DeviceSample(
            time_ns,
            self._part_address(handle, whole),
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            missing=missing,
        )

    def _rates(self, handle: Any) -> tuple[PeakRate, ...]:  # noqa: ANN401
        api, missing = self.api, dict[str, str]()
        cores = self._ask(missing, "cores", api.nvmlDeviceGetNumGpuCores, handle)
        clock_mhz = self._ask(missing, "clock", api.nvmlDeviceGetMaxClockInfo, handle, api.NVML_CLOCK_SM)
        return (PeakRate(NumberFormat.FP32, 2 * cores * clock_mhz * 10**6),) if cores and clock_mhz else ()

    def _sample(self, handle: Any, time_ns: int) -> DeviceSample:  # noqa: ANN401
        api, missing = self.api, dict[str, str]()

        def ask(name: str, call: str, *more: int) -> Any:  # noqa: ANN401
            return self._ask(missing, name, getattr(api, call), handle, *more)

        rates = ask("utilisation", "nvmlDeviceGetUtilizationRates")
        memory = ask("memory_used_bytes", "nvmlDeviceGetMemoryInfo")
        clock_mhz = ask("clock_hz", "nvmlDeviceGetClockInfo", api.NVML_CLOCK_SM)
        power_mw = ask("power_w", "nvmlDeviceGetPowerUsage")
        temperature_c = ask("temperature_c", "nvmlDeviceGetTemperature", api.NVML_TEMPERATURE_GPU)
        rx = ask("pcie_rx_bytes_per_s", "nvmlDeviceGetPcieThroughput", api.NVML_PCIE_UTIL_RX_BYTES)
        tx = ask("pcie_tx_bytes_per_s", "nvmlDeviceGetPcieThroughput", api.NVML_PCIE_UTIL_TX_BYTES)
        link = self._link_bytes_per_s(missing, handle)
        if memory is None:
            missing["memory_total_bytes"] = missing["memory_used_bytes"]
        processes = self._processes(handle)
        return DeviceSample(
            time_ns,
            self._address(handle),
            utilisation=None if rates is None else rates.gpu / 100,
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_total_bytes=None if memory is None else int(memory.total),
            clock_hz=None if clock_mhz is None else clock_mhz * 10**6,
            power_w=None if power_mw is None else power_mw / 1000,
            temperature_c=None if temperature_c is None else float(temperature_c),
            pcie_rx_bytes_per_s=None if rx is None else rx * _KIBI,
            pcie_tx_bytes_per_s=None if tx is None else tx * _KIBI,
            pcie_link_bytes_per_s=link,
            processes=processes,
            missing=missing,
        )

    def _processes(self, handle: Any) -> dict[int, float]:  # noqa: ANN401
        """Return the busy processes' shares over the samples that the driver keeps; none where it keeps none."""
        samples = self._ask({}, "processes", self.api.nvmlDeviceGetProcessUtilization, handle, 0)
        busy = dict[int, float]()
        for sample in samples or ():
            # The engines for video are not part of a device's utilisation; a process may have several samples.
            percent = max(int(sample.smUtil), int(sample.encUtil), int(sample.decUtil))
            if percent:
                busy[int(sample.pid)] = max(busy.get(int(sample.pid), 0.0), min(percent / 100, 1.0))
        return busy

    def _link_bytes_per_s(self, missing: dict[str, str], handle: Any) -> int | None:  # noqa: ANN401
        """Return what the PCIe link carries as it runs now: idle devices run theirs slower."""
        api, name = self.api, "pcie_link_bytes_per_s"
        generation = self._ask(missing, name, api.nvmlDeviceGetCurrPcieLinkGeneration, handle)
        lanes = self._ask(missing, name, api.nvmlDeviceGetCurrPcieLinkWidth, handle)
        if generation in _GIGATRANSFERS and lanes:
            return pcie_bytes_per_s(_GIGATRANSFERS[generation], lanes)
        missing.setdefault(name, f"NVML: unknown PCIe generation {generation} with {lanes} lanes")
        return None

    def _is_divided(self, handle: Any) -> bool:  # noqa: ANN401
        mode = self._ask({}, "mig", self.api.nvmlDeviceGetMigMode, handle)
        return mode is not None and mode[0] == self.api.NVML_DEVICE_MIG_ENABLE

    def _address(self, handle: Any) -> str:  # noqa: ANN401
        """Return the PCI address as /sys writes it; NVML's has eight digits of a domain that has four."""
        domain, _, rest = str(self.api.nvmlDeviceGetPciInfo(handle).busId).lower().partition(":")
        return f"{domain[-4:]}:{rest}"

    def _ask(self, missing: dict[str, str], name: str, call: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
        """Return NVML's answer, None where the device does not support it, with the reason in `missing`."""
        try:
            return call(*arguments)
        except self.api.NVMLError as error:
            missing[name] = f"NVML: {error}"
            return None


@contextmanager
def open_nvml() -> Iterator[Nvml | str]:
    """Yield NVML, or a line that says why it is unavailable."""
    try:
        import pynvml  # noqa: PLC0415 - an extra
    except ImportError:
        yield "NVML: nvidia-ml-py is not installed (the extra nvml), so NVIDIA's devices are described by PCI alone"
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        absent = isinstance(error, pynvml.NVMLError_LibraryNotFound)
        yield "NVML: libnvidia-ml.so.1, part of NVIDIA's driver, is not installed" if absent else f"NVML: {error}"
        return
    try:
        yield Nvml(pynvml)
    finally:
        pynvml.nvmlShutdown()
