"""Discovery on recorded machines and on this one, and its results: a node, and a part of a topology file."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from collectors.devices.discovery import discover
from collectors.devices.pci import pcie_bytes_per_s
from collectors.devices.root import Root
from collectors.devices.values import Machine
from dataplane.cgroups import Limits
from dataplane.topology.values import Bus, BusKind, Device, DeviceKind, MediumKind, MemoryMedium
from tests.collectors.devices.machines import BOARD, BOARD_LINKS, SERVER, SERVER_LINKS
from tests.recorded import write_tree

NO_NVML = "NVML: not here"


def server(tmp_path: Path) -> Machine:
    return discover(Root(write_tree(tmp_path, SERVER, SERVER_LINKS)), NO_NVML)


def test_processors_of_a_server(tmp_path: Path) -> None:
    processors = server(tmp_path).processors
    assert (processors.model, processors.cpus, processors.sockets, processors.cores, processors.max_hz) == (
        *("AMD EPYC 7543", 8, 2, 4),
        3_700_000_000,
    )


def test_memory_media_of_a_server(tmp_path: Path) -> None:
    assert server(tmp_path).memory == (
        MemoryMedium(MediumKind.DRAM, 3000 << 10, 90, 95, 200_000 << 20),
        MemoryMedium(MediumKind.SCM, 4000 << 10, 300),
        MemoryMedium(MediumKind.NVM, 1 << 20),
        MemoryMedium(MediumKind.SCM, 4096),
    )


def test_devices_of_a_server(tmp_path: Path) -> None:
    devices = {each.address: each for each in server(tmp_path).devices}
    assert {address: each.device.kind.value for address, each in devices.items()} == {
        "0000:41:00.0": "gpu",
        "0000:81:00.0": "gpu",
        "0000:a1:00.0": "dpu",
        "0000:c1:00.0": "fpga",
        "0000:c2:00.0": "xpu",
        "0000:d1:00.0": "npu",
    }
    amd = devices["0000:81:00.0"]
    assert amd.device == Device(
        DeviceKind.GPU, 1, "Aldebaran [Instinct MI210]", 68702699520, Bus(BusKind.PCIE, 15_753_846_153)
    )
    assert (amd.driver, amd.numa_node) == ("amdgpu", 1)
    assert devices["0000:41:00.0"].device.model == "GA100 [A100 PCIe 80GB]"
    assert devices["0000:a1:00.0"].numa_node is None
    assert devices["0000:c1:00.0"].device.bus == Bus(BusKind.PCIE, None)
    assert devices["0000:c2:00.0"].device.model == "1234:0001"


def test_what_is_not_known_is_noted(tmp_path: Path) -> None:
    notes = server(tmp_path).notes
    assert notes[0] == NO_NVML
    assert any("GA100 [A100 PCIe 80GB]: its memory size is unknown" in note for note in notes)
    empty = discover(Root(tmp_path / "nothing"), NO_NVML)
    assert (empty.cpu_milli, empty.cores, empty.memory, empty.devices) == (0, None, (), ())
    assert len(empty.notes) == 3


def test_a_board_without_numa_or_pci(tmp_path: Path) -> None:
    inventory = discover(Root(write_tree(tmp_path, BOARD, BOARD_LINKS)), NO_NVML)
    assert (inventory.processors.cpus, inventory.processors.model, inventory.processors.sockets) == (2, "", None)
    assert inventory.memory == (MemoryMedium(MediumKind.DRAM, 3884360 << 10),)
    system = Bus(BusKind.SYSTEM)
    assert (inventory.cores, inventory.grouped_devices) == (
        2,
        (
            Device(DeviceKind.NPU, 1, "rocket", None, system),
            Device(DeviceKind.GPU, 1, "rockchip,rk3588-mali", None, system),
        ),
    )
    assert [(each.address, each.driver) for each in inventory.devices] == [
        ("fdab0000.npu", "rocket"),
        ("fde60000.gpu", "panthor"),
    ]


def test_control_groups_leave_less_than_the_machine_has(tmp_path: Path) -> None:
    machine = server(tmp_path)
    assert machine.cpu_milli == 8000
    limited = dataclasses.replace(machine, limits=Limits(2500, frozenset({0, 1, 99}), 1 << 20))
    assert (limited.cpu_milli, limited.cores) == (2000, 2)
    assert limited.allowed_memory[0] == MemoryMedium(MediumKind.DRAM, 1 << 20, 90, 95, 200_000 << 20)
    assert [medium.kind for medium in limited.allowed_memory] == [medium.kind for medium in machine.memory]
    assert dataclasses.replace(machine, limits=Limits(999)).cores is None


@pytest.mark.parametrize(
    ("speed", "lanes", "bytes_per_s"),
    [(2.5, 1, 250_000_000), (5.0, 4, 2_000_000_000), (8.0, 16, 15_753_846_153), (64.0, 16, 118_000_000_000)],
)
def test_rates_of_pcie(speed: float, lanes: int, bytes_per_s: int) -> None:
    assert pcie_bytes_per_s(speed, lanes) == bytes_per_s


def test_this_machine() -> None:
    inventory = discover(Root(), NO_NVML)
    assert inventory.processors.online == frozenset(range(inventory.processors.cpus))
    assert inventory.cpu_milli <= 1000 * len(os.sched_getaffinity(0))
    dram = sum(medium.capacity_bytes for medium in inventory.memory if medium.kind is MediumKind.DRAM)
    assert dram >= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 0.5
