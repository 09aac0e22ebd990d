"""Traits of each kind of device: recognition in /sys and in Kubernetes, and the variables of its vendors' libraries.

A kind is a member of `DeviceKind` and a row of `DEVICE_TRAITS`; every reader of devices takes its table from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dataplane.topology.values import DeviceKind

PCI_DISPLAY: Final = 0x03
PCI_SIGNALS: Final = 0x11
PCI_ACCELERATOR: Final = 0x12
"""Base classes of the PCI Code and ID Assignment Specification: display, signal processing, accelerators."""


@dataclass(frozen=True, slots=True)
class DeviceTraits:
    """Traits of a kind; empty where it has none.

    `pci_ids` are (vendor, device), `pci_classes` (vendor, base class). `sysfs_class` is the folder in /sys/class that
    lists devices of systems on a chip. `resources` are names of Kubernetes' device plugins; a trailing `*` matches any
    ending. `variables` narrow a program to its devices by their numbers; `hook_variables` are those of them by which
    hooks of container runtimes put devices into a container.
    """

    pci_ids: tuple[tuple[int, int], ...] = ()
    pci_classes: tuple[tuple[int, int], ...] = ()
    sysfs_class: str = ""
    resources: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    hook_variables: tuple[str, ...] = ()


DEVICE_TRAITS: Final[Mapping[DeviceKind, DeviceTraits]] = {
    DeviceKind.CPU: DeviceTraits(),
    DeviceKind.GPU: DeviceTraits(
        pci_classes=(
            # Other vendors' display adapters draw, and do not compute.
            (0x10DE, PCI_DISPLAY),  # NVIDIA
            (0x1002, PCI_DISPLAY),  # AMD
            (0x8086, PCI_DISPLAY),  # Intel
            (0x1002, PCI_ACCELERATOR),  # AMD Instinct
        ),
        sysfs_class="drm",
        resources=("nvidia.com/gpu*", "nvidia.com/mig-*", "amd.com/gpu*", "gpu.intel.com/i915", "gpu.intel.com/xe"),
        variables=(
            *("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
            *("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
        ),
        hook_variables=("NVIDIA_VISIBLE_DEVICES",),
    ),
    DeviceKind.TPU: DeviceTraits(
        pci_ids=((0x1AC1, 0x089A),),  # Google's Edge TPU
        pci_classes=((0x1AE0, PCI_ACCELERATOR),),  # Google
        resources=("google.com/tpu",),
        variables=("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"),
    ),
    DeviceKind.NPU: DeviceTraits(
        pci_classes=(
            (0x8086, PCI_ACCELERATOR),  # Intel
            (0x1022, PCI_SIGNALS),  # AMD's NPUs are signal processors
            (0x1D0F, PCI_ACCELERATOR),  # Amazon
            (0x1DA3, PCI_ACCELERATOR),  # Habana
            (0x19E5, PCI_ACCELERATOR),  # Huawei
        ),
        sysfs_class="accel",
        resources=(
            *("habana.ai/gaudi", "huawei.com/Ascend*", "huawei.com/npu"),
            *("aws.amazon.com/neuron*", "qualcomm.com/qaic"),
        ),
        variables=("ASCEND_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"),
        hook_variables=("ASCEND_VISIBLE_DEVICES",),
    ),
    DeviceKind.DPU: DeviceTraits(
        pci_ids=((0x15B3, 0xA2D2), (0x15B3, 0xA2D6), (0x15B3, 0xA2DC)),  # NVIDIA's BlueField 1 to 3
        pci_classes=((0x1DD8, PCI_ACCELERATOR),),  # Pensando
    ),
    DeviceKind.FPGA: DeviceTraits(
        pci_ids=((0x8086, 0x09C4), (0x8086, 0x0B30)),  # Intel's programmable cards
        pci_classes=((0x10EE, PCI_ACCELERATOR), (0x1172, PCI_ACCELERATOR)),  # Xilinx, Altera
        resources=("xilinx.com/fpga-*", "amd.com/xilinx_*", "fpga.intel.com/*"),
    ),
    DeviceKind.XPU: DeviceTraits(),
}
