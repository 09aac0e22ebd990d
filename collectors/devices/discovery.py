"""Inventory of this machine: processors, memory, accelerators, and the limits of the calling process."""

from __future__ import annotations

from dataclasses import replace

from collectors.devices.memory import read_media
from collectors.devices.nvml import Nvml
from collectors.devices.pci import PciDevice, read_pci_devices
from collectors.devices.platform import read_platform_devices
from collectors.devices.processors import read_processors
from collectors.devices.root import Root
from collectors.devices.sensors import read_device_sample
from collectors.devices.values import FoundDevice, Machine
from collectors.errors import CollectorError
from dataplane.cgroups import limits_of
from dataplane.topology.values import Device


def discover(root: Root, nvml: Nvml | str) -> Machine:
    """Return the hardware of the machine below a root folder; `nvml` describes NVIDIA's devices, or why it cannot."""
    by_nvml, notes = _by_nvml(nvml)
    here = _in_sysfs(root)
    here |= {nvidia.address: _merged(here.get(nvidia.part_of or nvidia.address), nvidia) for nvidia in by_nvml}
    for divided in {nvidia.part_of for nvidia in by_nvml}:
        here.pop(divided, None)  # its parts are there instead
    devices = tuple(here[address] for address in sorted(here))
    processors = read_processors(root)
    media = read_media(root)
    if not processors.online:
        notes += ("no processor found: /proc/cpuinfo and /sys/devices/system/cpu list none",)
    if not media:
        notes += ("no memory found: /proc/meminfo reports none",)
    notes += tuple(
        f"{device.address}: {device.device.model}: its memory size is unknown"
        for device in devices
        if device.device.memory_bytes is None
    )
    return Machine(processors, media, devices, limits_of(root.path), notes)


def _by_nvml(nvml: Nvml | str) -> tuple[tuple[FoundDevice, ...], tuple[str, ...]]:
    """Return NVIDIA's devices and notes; a problem of the whole driver is a note, too."""
    if isinstance(nvml, str):
        return (), (nvml,)
    try:
        return nvml.devices()
    except CollectorError as error:
        return (), (str(error),)


def _in_sysfs(root: Root) -> dict[str, FoundDevice]:
    """Return the devices that /sys knows, by address."""
    devices = {device.address: _from_pci(root, device) for device in read_pci_devices(root)}
    for part in read_platform_devices(root):
        device = Device(part.kind, 1, part.model, None, part.bus)
        devices[part.address] = FoundDevice(device, part.address, part.driver)
    return devices


def _from_pci(root: Root, pci_device: PciDevice) -> FoundDevice:
    memory_bytes = read_device_sample(root, pci_device.address, 0, None).memory_total_bytes
    device = Device(pci_device.kind, 1, pci_device.model, memory_bytes, pci_device.bus)
    return FoundDevice(device, pci_device.address, pci_device.driver, pci_device.numa_node)


def _merged(on_pci: FoundDevice | None, by_nvml: FoundDevice) -> FoundDevice:
    """Return NVML's description with the place in the machine that PCI knows."""
    if on_pci is None:
        return by_nvml
    return replace(by_nvml, driver=on_pci.driver or by_nvml.driver, numa_node=on_pci.numa_node)
