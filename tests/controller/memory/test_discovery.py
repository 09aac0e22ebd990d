"""Tiers of recorded machines by distance, and of this one."""

from __future__ import annotations

from pathlib import Path

from collectors.devices.memory import read_numa_memory
from collectors.devices.root import Root
from controller.memory.discovery import FoundTier, found_tiers
from tests.collectors.devices.machines import NODE, SERVER, SERVER_LINKS, node
from tests.recorded import write_tree

KIB = 1 << 10
CXL = {
    "proc/meminfo": "MemTotal: 9000 kB\n",
    **node(0, "0-3", 1000),
    **node(1, "4-7", 2000),
    **node(2, "", 4000),
    **node(3, "", 8000),
    **node(4, "", 0),
    f"{NODE}/node0/distance": "10 21 17 28 17\n",
    f"{NODE}/node1/distance": "21 10 28 20 28\n",
    f"{NODE}/node2/distance": "17 28 10 28 28\n",
    f"{NODE}/node3/distance": "28 20 28 10 28\n",
    "sys/devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax1.0/target_node": "2\n",
    "sys/bus/dax/devices/README": "",
}
CXL_LINKS = {
    "sys/bus/dax/devices/dax1.0": "../../../devices/platform/ACPI0017:00/cxl_root/region0/dax_region0/dax1.0",
}


def test_nodes_are_listed_by_distance_from_processors(tmp_path: Path) -> None:
    tree = {**CXL}
    tree["sys/devices/platform/ACPI0017:00/cxl_root/region0/dax_region0/dax1.0/target_node"] = "2\n"
    root = Root(write_tree(tmp_path, tree, CXL_LINKS))
    assert found_tiers(root) == (
        FoundTier("node0", "numa", 1000 * KIB, KIB, 10, "from other nodes 17"),
        FoundTier("node1", "numa", 2000 * KIB, KIB, 10, "from other nodes 20"),
        FoundTier("node2", "numa", 4000 * KIB, KIB, 17, "CXL"),
        FoundTier("node3", "numa", 8000 * KIB, KIB, 20, "no processors"),
    )


def test_persistent_memory_and_drives_are_named(tmp_path: Path) -> None:
    tiers = {tier.name: tier for tier in found_tiers(Root(write_tree(tmp_path, SERVER, SERVER_LINKS)))}
    assert tiers["node2"].note == "persistent memory"
    assert (tiers["nvme"].kind, tiers["nvme"].total_bytes) == ("file", 1 << 20)


def test_malformed_files_are_no_memory(tmp_path: Path) -> None:
    tree = {f"{NODE}/node0/meminfo": "Node 0 MemTotal: many kB\n", f"{NODE}/nodeX/meminfo": "", "proc/meminfo": "x\n"}
    assert found_tiers(Root(write_tree(tmp_path, tree))) == ()
    odd = {**node(0, "0", 1000), f"{NODE}/node0/distance": "10 x -3\n"}
    assert read_numa_memory(Root(write_tree(tmp_path / "odd", odd)))[0].distances == (10,)


def test_this_machine_has_memory() -> None:
    nodes = read_numa_memory(Root())
    assert not Path("/sys/devices/system/node/node0").exists() or nodes
    for each in nodes:
        assert each.total_bytes >= each.free_bytes > 0
