"""Device load from drivers in /sys: AMD's and Intel's GPUs, Intel's NPU, ports of DPUs, power meters.

Sources: Documentation/gpu/amdgpu/thermal.rst, Documentation/ABI/testing/sysfs-driver-ivpu and
Documentation/hwmon/sysfs-interface.rst of Linux. NVIDIA's drivers report nothing there: see collectors.devices.nvml.
"""

from __future__ import annotations

from typing import Final

from collectors.devices.pci import PCI, read_link_bytes_per_s
from collectors.devices.root import Root
from collectors.devices.values import DeviceSample

FIGURES: Final = (
    *("utilisation", "memory_used_bytes", "memory_total_bytes", "clock_hz", "power_w", "temperature_c"),
    *("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "pcie_link_bytes_per_s"),
    *("network_rx_bytes", "network_tx_bytes"),
)
"""Figures that a `DeviceSample` may lack."""
_NETWORK: Final = frozenset({"network_rx_bytes", "network_tx_bytes"})


def read_device_sample(root: Root, address: str, time_ns: int, busy_us: tuple[int, int] | None) -> DeviceSample:
    """Return the figures in /sys of the device at a PCI address.

    `busy_us` is its busy time and the time that this covers, for drivers that only count: see `read_busy_us`.
    """
    folder = (*PCI, address)
    percent = root.integer(*folder, "gpu_busy_percent")
    utilisation = None if percent is None else percent / 100
    if utilisation is None and busy_us is not None and busy_us[1] > 0:
        utilisation = min(busy_us[0] / busy_us[1], 1.0)
    power_uw = _hwmon(root, address, "power1_average", "power1_input")
    temperature_mc = _hwmon(root, address, "temp1_input")
    used = root.integer(*folder, "mem_info_vram_used")
    figures = {
        "utilisation": utilisation,
        "memory_used_bytes": root.integer(*folder, "npu_memory_utilization") if used is None else used,
        "memory_total_bytes": root.integer(*folder, "mem_info_vram_total"),
        "clock_hz": _clock_hz(root, address),
        "power_w": None if power_uw is None else power_uw / 1e6,
        "temperature_c": None if temperature_mc is None else temperature_mc / 1000,
        "pcie_link_bytes_per_s": read_link_bytes_per_s(root, address, "current"),
        **_network_bytes(root, address),
    }
    reason = "the driver does not report it in /sys"
    missing = {name: reason for name in FIGURES if figures.get(name) is None and name not in _NETWORK}
    measured = {name: value for name, value in figures.items() if value is not None}
    return DeviceSample(time_ns, address, **measured, missing=missing)  # type: ignore[arg-type]


def read_busy_us(root: Root, address: str) -> int | None:
    """Return a device's busy microseconds since its driver was loaded, if they are counted."""
    return root.integer(*PCI, address, "npu_busy_time_us")


def _clock_hz(root: Root, address: str) -> int | None:
    if (hertz := _hwmon(root, address, "freq1_input")) is not None:
        return hertz
    files: list[tuple[str, ...]] = [("npu_current_frequency_mhz",)]
    files += [("drm", card, "gt_act_freq_mhz") for card in root.names(*PCI, address, "drm") if card.startswith("card")]
    files += [("tile0", "gt0", "freq0", "act_freq")]
    megahertz = (root.integer(*PCI, address, *file) for file in files)
    return next((figure * 10**6 for figure in megahertz if figure is not None), None)


def _hwmon(root: Root, address: str, *names: str) -> int | None:
    monitors = root.names(*PCI, address, "hwmon")
    readings = (root.integer(*PCI, address, "hwmon", monitor, name) for monitor in monitors for name in names)
    return next((figure for figure in readings if figure is not None), None)


def _network_bytes(root: Root, address: str) -> dict[str, int]:
    """Return the counters of the device's own network ports together; nothing for one without ports."""
    ports = root.names(*PCI, address, "net")
    if not ports:
        return {}
    return {
        f"network_{way}_bytes": sum(
            root.integer(*PCI, address, "net", port, "statistics", f"{way}_bytes") or 0 for port in ports
        )
        for way in ("rx", "tx")
    }
