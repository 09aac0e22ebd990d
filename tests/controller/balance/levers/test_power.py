"""Caps of power as levers, on trees that follow the kernel's documents: powercap, amdgpu, i915 and xe."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.devices.root import Root
from controller.balance.errors import LeverError
from controller.balance.levers.files import CapFile, FileCaps
from controller.balance.levers.power import device_power, packages, zone_power
from controller.balance.running.board import Board
from controller.balance.values import Change, LeverKind
from dataplane.clock import VirtualClock
from tests.recorded import write_tree

ZONE = "sys/class/powercap/intel-rapl:0"
RAPL = {
    f"{ZONE}/name": "package-0\n",
    f"{ZONE}/enabled": "0\n",
    f"{ZONE}/constraint_0_name": "short_term\n",
    f"{ZONE}/constraint_0_power_limit_uw": "250000000\n",
    f"{ZONE}/constraint_1_name": "long_term\n",
    f"{ZONE}/constraint_1_power_limit_uw": "125000000\n",
    f"{ZONE}/constraint_1_max_power_uw": "150000000\n",
    "sys/class/powercap/intel-rapl/enabled": "1\n",
}
COUNTS_ONLY = {f"{ZONE}/energy_uj": "5\n", f"{ZONE}/max_energy_range_uj": "65532610987\n"}
PCI = "sys/bus/pci/devices/0000:81:00.0"
AMD = {
    f"{PCI}/hwmon/hwmon3/power1_cap": "250000000\n",
    f"{PCI}/hwmon/hwmon3/power1_cap_min": "100000000\n",
    f"{PCI}/hwmon/hwmon3/power1_cap_max": "300000000\n",
}
I915 = {f"{PCI}/hwmon/hwmon3/power1_max": "0\n", f"{PCI}/hwmon/hwmon3/power1_rated_max": "190000000\n"}
XE = {f"{PCI}/hwmon/hwmon3/power2_max": "80000000\n", f"{PCI}/hwmon/hwmon3/power2_rated_max": "120000000\n"}


def number(folder: Path, name: str) -> str:
    return (folder / name).read_text().strip()


def test_a_zone_moves_its_sustained_limit_and_turns_limits_on(tmp_path: Path) -> None:
    lever = zone_power("intel-rapl:0", Root(write_tree(tmp_path, RAPL)), may_set=True)
    standing = lever.read()
    assert (standing.value, standing.low, standing.high) == (125, 75, 150)
    assert lever.move(-20).done == -20
    assert number(tmp_path, f"{ZONE}/constraint_1_power_limit_uw") == "105000000"
    assert number(tmp_path, f"{ZONE}/constraint_0_power_limit_uw") == "250000000"
    assert number(tmp_path, f"{ZONE}/enabled") == "1"
    assert lever.move(+60).left == 15
    lever.release()
    assert number(tmp_path, f"{ZONE}/constraint_1_power_limit_uw") == "125000000"
    assert number(tmp_path, f"{ZONE}/enabled") == "0"


@pytest.mark.parametrize(
    ("files", "stands"),
    [(AMD, (250, 100, 300)), (I915, (190, 95, 190)), (XE, (80, 60, 120))],
    ids=["amdgpu", "i915", "xe"],
)
def test_devices_are_capped_by_their_drivers_monitors(
    tmp_path: Path, files: dict[str, str], stands: tuple[float, float, float]
) -> None:
    lever = device_power("0000:81:00.0", Root(write_tree(tmp_path, files)), may_set=True)
    standing = lever.read()
    assert (standing.value, standing.low, standing.high) == stands
    assert lever.move(-10).done == -10
    cap = next(name for name in files if name.endswith(("_cap", "_max")))
    assert number(tmp_path, cap) == str((stands[0] - 10) * 1_000_000)
    lever.release()
    assert number(tmp_path, cap) == files[cap].strip()


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({}, "lever power cap of intel-rapl:0: no powercap on this machine: its kernel or hypervisor hides it"),
        (COUNTS_ONLY, "it counts energy, but has no limit of power, as with AMD's processors"),
        ({f"{ZONE}:0/name": "core\n"}, "no such zone: this machine has intel-rapl:0:0"),
        (RAPL | {f"{ZONE}/constraint_1_power_limit_uw": "\n"}, "constraint_1_power_limit_uw holds no limit"),
    ],
)
def test_a_zone_that_the_kernel_hides_says_so(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    with pytest.raises(LeverError, match=problem):
        zone_power("intel-rapl:0", Root(write_tree(tmp_path, files)))
    assert packages(Root(tmp_path)) == ("intel-rapl:0",)


def test_a_device_without_a_cap_names_its_driver(tmp_path: Path) -> None:
    links = {f"{PCI}/driver": "../../../bus/pci/drivers/ast"}
    root = Root(write_tree(tmp_path, {f"{PCI}/class": "0x030000\n"}, links))
    with pytest.raises(LeverError, match=r"81:00\.0: its driver \(ast\) shows no cap of power in /sys"):
        device_power("0000:81:00.0", root)
    with pytest.raises(LeverError, match=r"lever power cap of 0000:82:00\.0: no such device"):
        device_power("0000:82:00.0", root)
    with pytest.raises(LeverError, match="low_w is 400 W, above its highest cap of 300 W"):
        device_power("0000:81:00.0", Root(write_tree(tmp_path / "amd", AMD)), low_w=400)


def test_a_lever_that_the_kernel_refuses_is_named_and_stays(tmp_path: Path) -> None:
    limit = tmp_path / "limit"
    limit.symlink_to("/proc/sys/kernel/ngroups_max")  # 65536, which nobody may write, not even root
    file = CapFile(("limit",), 50_000.0, 70_000.0)
    lever = FileCaps(LeverKind.POWER, "power cap of it", [file], Root(tmp_path), may_set=True)
    refused = lever.move(-1000)
    assert (refused.done, refused.left) == (0, -1000)
    assert refused.reason == f"no permission to write {limit}"
    board = Board([lever], VirtualClock())
    assert board.read() == []
    assert board.apply(Change(power_w=-1000)) == []  # the loop goes on without it
    assert board.release() == []


def test_a_kernel_that_refuses_a_change_is_asked_once(tmp_path: Path) -> None:
    limit = tmp_path / "limit"
    limit.symlink_to("/sys/devices/system/cpu/kernel_max")  # root may open it, but the kernel takes nothing
    lever = FileCaps(LeverKind.POWER, "power cap of it", [CapFile(("limit",), 1, 1e6)], Root(tmp_path), may_set=True)
    refused = lever.move(+10)
    assert (refused.done, refused.left) == (0, 10)
    assert refused.reason.startswith(("the kernel refuses: ", "no permission to write "))  # the latter without root
    assert lever.read().why_not == refused.reason
    lever.release()


def test_a_device_that_disappears_fails_its_lever(tmp_path: Path) -> None:
    root = Root(write_tree(tmp_path, AMD))
    lever = device_power("0000:81:00.0", root, may_set=True)
    assert lever.move(-10).done == -10
    (tmp_path / PCI / "hwmon/hwmon3/power1_cap").unlink()
    board = Board([lever], VirtualClock())
    (failed,) = board.read()
    assert failed.failed
    assert "power1_cap holds no number, or may not be read" in failed.moved.reason
