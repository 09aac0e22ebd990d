"""Current load of this machine: its processors, memory, devices and network devices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from collectors.devices.disks import read_disks
from collectors.devices.interfaces import read_interfaces
from collectors.devices.memory import read_memory_use
from collectors.devices.nvml import UNKNOWN, Nvml
from collectors.devices.pci import PCI, read_pci_devices
from collectors.devices.platform import read_platform_devices
from collectors.devices.processors import (
    CpuTimes,
    busy_share,
    read_clock_hz,
    read_cpu_times,
    read_pressure,
    read_processors,
)
from collectors.devices.root import Root
from collectors.devices.sensors import read_busy_us, read_device_sample
from collectors.devices.values import DeviceSample, DiskSample, EnergySample, HostSample, InterfaceSample
from collectors.errors import CollectorError
from dataplane.cgroups import usage_of
from dataplane.clock import Clock

# Power drawn by processors: energy counters of their packages, from Linux's powercap (RAPL).
#
# Source: Documentation/power/powercap/powercap.rst and Documentation/ABI/testing/sysfs-class-powercap of Linux. Only
# root can read the counters.


_POWERCAP: Final = ("sys", "class", "powercap")
_PACKAGE: Final = re.compile(r"intel-rapl:\d+")
"""Zones with more numbers are parts of these; AMD's processors have the same names."""
_MICROJOULES_PER_NS: Final = 1000
"""In watts."""


def read_energy(root: Root, time_ns: int) -> tuple[EnergySample, ...]:
    """Return the counters of the processors' packages; empty if absent or not readable by this user."""
    counters = []
    for name in root.names(*_POWERCAP):
        energy_uj = root.integer(*_POWERCAP, name, "energy_uj")
        range_uj = root.integer(*_POWERCAP, name, "max_energy_range_uj")
        if _PACKAGE.fullmatch(name) and energy_uj is not None and range_uj is not None and 0 <= energy_uj <= range_uj:
            counters.append(EnergySample(name, time_ns, energy_uj, range_uj))
    return tuple(counters)


def power_w(before: Iterable[EnergySample], after: Iterable[EnergySample]) -> float | None:
    """Return the power of all packages between two readings; None if one was not read twice, or no time has passed.

    A counter that is lower than before has started again, once: readings lie less than its range apart.
    """
    first, last = ({sample.name: sample for sample in samples} for samples in (before, after))
    if not first or first.keys() != last.keys():
        return None
    total_w = 0.0
    for name, sample in last.items():
        since = first[name]
        interval_ns = sample.time_ns - since.time_ns
        if interval_ns <= 0:
            return None
        used_uj = (sample.energy_uj - since.energy_uj) % (sample.range_uj + 1)
        total_w += used_uj * _MICROJOULES_PER_NS / interval_ns
    return total_w


_REMOVED: Final = "it is not on its bus any more"
_LOST: Final = "NVML does not list it any more"
_FIRST = "shares of time need an earlier sample"


class Sampler:
    """Takes samples; keeps the counters of the last ones, as shares of time need two.

    Devices are those present at its construction.
    """

    def __init__(self, root: Root, clock: Clock, nvml: Nvml | None = None) -> None:
        self._root, self._clock, self._nvml = root, clock, nvml
        self._processors = read_processors(root)
        self._addresses = [device.address for device in read_pci_devices(root)]
        self._on_pci = frozenset(self._addresses)
        self._addresses += [device.address for device in read_platform_devices(root)]
        self._cpu_times: CpuTimes | None = None
        self._energy: tuple[EnergySample, ...] | None = None
        self._busy_us: dict[str, tuple[int, int]] = {}
        self._by_nvml: set[str] = set()
        self.gone: Mapping[str, str] = {}
        """Devices that were there once and are not now, by address, with the reason; as of the last samples."""

    def host(self) -> HostSample:
        """Return how busy processors and memory are."""
        root, missing = self._root, dict[str, str]()
        before, self._cpu_times = self._cpu_times, read_cpu_times(root)
        busy = None
        if self._cpu_times is None:
            missing["cpu_busy"] = "/proc/stat does not exist"
        elif before is None or (busy := busy_share(before, self._cpu_times)) is None:
            missing["cpu_busy"] = _FIRST
        if (clock_hz := read_clock_hz(root, self._processors)) is None:
            missing["clock_hz"] = "neither cpufreq nor /proc/cpuinfo reports it"
        if (memory := read_memory_use(root)) is None:
            missing["memory_used_bytes"] = missing["memory_total_bytes"] = "/proc/meminfo does not report it"
        if not (pressure := read_pressure(root)):
            missing["pressure"] = "the kernel does not measure it (PSI)"
        power = self._power_w(missing)
        return HostSample(
            time_ns=self._clock.now_ns(),
            cpu_busy=busy,
            clock_hz=clock_hz,
            memory_used_bytes=None if memory is None else memory.used_bytes,
            memory_total_bytes=None if memory is None else memory.total_bytes,
            pressure=pressure,
            usage=usage_of(root.path),
            missing=missing,
            power_w=power,
        )

    def devices(self) -> tuple[DeviceSample, ...]:
        """Return each device's load, by address; devices that NVML does not answer for are sampled from /sys."""
        samples = {address: self._device(address) for address in self._addresses}
        gone = {
            address: _REMOVED for address in self._addresses if address in self._on_pci and not self._is_on_pci(address)
        }
        if self._nvml is not None:
            try:
                by_nvml = {sample.address: sample for sample in self._nvml.samples(self._clock.now_ns)}
                gone |= dict.fromkeys(self._by_nvml - by_nvml.keys(), _LOST)
                self._by_nvml |= {address for address in by_nvml if not address.startswith(UNKNOWN)}
                samples |= by_nvml
            except CollectorError as error:
                # The driver may be being replaced: continue with /sys alone, and name NVML's error in every sample.
                samples = {address: _without_nvml(sample, str(error)) for address, sample in samples.items()}
                gone |= {address: reason for address, reason in self.gone.items() if reason == _LOST}
        self.gone = gone
        return tuple(samples[address] for address in sorted(samples))

    def interfaces(self) -> tuple[InterfaceSample, ...]:
        """Return the counters of the network devices."""
        return read_interfaces(self._root, self._clock.now_ns())

    def disks(self) -> tuple[DiskSample, ...]:
        """Return the counters of the disks."""
        return read_disks(self._root, self._clock.now_ns())

    def _power_w(self, missing: dict[str, str]) -> float | None:
        before, self._energy = self._energy, read_energy(self._root, self._clock.now_ns())
        if not self._energy:
            missing["power_w"] = "the kernel has no energy counter (powercap), or this user may not read it"
            return None
        drawn_w = None if before is None else power_w(before, self._energy)
        if drawn_w is None:
            missing["power_w"] = _FIRST
        return drawn_w

    def _is_on_pci(self, address: str) -> bool:
        return bool(self._root.names(*PCI, address))

    def _device(self, address: str) -> DeviceSample:
        now_ns, busy_us = self._clock.now_ns(), read_busy_us(self._root, address)
        since = self._busy_us.get(address)
        if busy_us is not None:
            self._busy_us[address] = (busy_us, now_ns)
        between = None
        if busy_us is not None and since is not None and busy_us >= since[0]:
            between = (busy_us - since[0], (now_ns - since[1]) // 1000)
        return read_device_sample(self._root, address, now_ns, between)


def _without_nvml(sample: DeviceSample, reason: str) -> DeviceSample:
    return replace(sample, missing=dict.fromkeys(sample.missing, reason))
