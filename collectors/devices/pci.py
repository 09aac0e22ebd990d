"""Computing devices on PCI: kind by class and vendor, model by the list of PCI ids, bus rate.

Sources: the PCI Code and ID Assignment Specification (classes 03 and 12), the list of https://pci-ids.ucw.cz, and
Documentation/ABI/testing/sysfs-bus-pci of Linux.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from collectors.devices.root import Root, real_of
from dataplane.topology.device_kinds import DEVICE_TRAITS, PCI_ACCELERATOR
from dataplane.topology.values import Bus, BusKind, DeviceKind

PCI: Final = ("sys", "bus", "pci", "devices")
_IDS: Final = (("usr", "share", "misc", "pci.ids"), ("usr", "share", "hwdata", "pci.ids"))
_KIND_BY_ID: Final = {ids: kind for kind, traits in DEVICE_TRAITS.items() for ids in traits.pci_ids}
_KIND_BY_CLASS: Final = {ids: kind for kind, traits in DEVICE_TRAITS.items() for ids in traits.pci_classes}
_ENCODINGS: Final = ((8.0, 8, 10), (64.0, 128, 130), (float("inf"), 236, 256))
"""Entries (GT/s, data bytes, link bytes) for rates below GT/s: PCIe 1 and 2; 3 to 5; from 6 on, flits."""


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A computing device on PCI; `model` is its vendor's and device's id where the list of ids is not there."""

    address: str
    kind: DeviceKind
    model: str
    driver: str
    numa_node: int | None
    bus: Bus


def read_pci_devices(root: Root) -> tuple[PciDevice, ...]:
    """Return the computing devices by address: the first of several functions of a slot, without virtual ones."""
    devices: dict[str, PciDevice] = {}
    for address in root.names(*PCI):
        kind = _kind(root, address)
        slot = address.rpartition(".")[0]
        if kind is None or slot in devices or root.link(*PCI, address, "physfn") is not None:
            continue
        numa_node = root.integer(*PCI, address, "numa_node")
        devices[slot] = PciDevice(
            address,
            kind,
            _model(root, address),
            (root.link(*PCI, address, "driver") or "").rpartition("/")[2],
            numa_node if numa_node is not None and numa_node >= 0 else None,
            Bus(BusKind.PCIE, read_link_bytes_per_s(root, address, "max")),
        )
    return tuple(devices.values())


def pcie_bytes_per_s(gigatransfers: float, lanes: int) -> int:
    """Return the rate of a PCIe link in one direction, of its line code but before headers and flow control."""
    data, line = next((data, line) for below, data, line in _ENCODINGS if gigatransfers < below)
    return round(gigatransfers * 1e9) * lanes * data // (line * 8)


def _kind(root: Root, address: str) -> DeviceKind | None:
    code, vendor, device = (root.integer(*PCI, address, name, base=0) for name in ("class", "vendor", "device"))
    if code is None or vendor is None or device is None:
        return None
    kind = _KIND_BY_ID.get((vendor, device)) or _KIND_BY_CLASS.get((vendor, code >> 16))
    return DeviceKind.XPU if kind is None and code >> 16 == PCI_ACCELERATOR else kind


def read_link_bytes_per_s(root: Root, address: str, which: str) -> int | None:
    """Return the bytes per second that a device's PCIe link carries in one direction; None if /sys does not show it.

    `which` is "max", the most that device and slot agree on, or "current", which may be lower to save power.
    """
    words = (root.text(*PCI, address, f"{which}_link_speed") or "").split()
    lanes = root.integer(*PCI, address, f"{which}_link_width")
    speed = real_of(words[0]) if words else None
    return pcie_bytes_per_s(speed, lanes) if speed and lanes and speed > 0 and lanes > 0 else None


def _model(root: Root, address: str) -> str:
    vendor, device = ((root.text(*PCI, address, name) or "").removeprefix("0x") for name in ("vendor", "device"))
    for file in _IDS:
        if (text := root.text(*file)) is not None and (name := _name(text, vendor, device)) is not None:
            return name
    return f"{vendor}:{device}"


def _name(text: str, vendor: str, device: str) -> str | None:
    """Return a device's name from the list of PCI ids: vendors begin lines, their devices are indented by one tab."""
    inside = False
    for line in text.splitlines():
        if line.startswith(("#", "\t\t")) or not line.strip():
            continue
        if not line.startswith("\t"):
            inside = line.startswith(f"{vendor}  ")
        elif inside and line.startswith(f"\t{device}  "):
            return line[len(device) + 1 :].strip()
    return None
