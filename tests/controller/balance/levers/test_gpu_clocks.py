"""Clock caps of AMD's and Intel's devices, on trees that follow the kernel's documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.devices.root import Root
from controller.balance.errors import LeverError
from controller.balance.levers.gpu_clocks import AmdClocks, intel_clocks
from controller.balance.levers.making import local_levers
from controller.balance.levers.settings import GpuClockLever, LeverSettings, PowerCapLever
from tests.recorded import write_tree

ADDRESS = "0000:81:00.0"
PCI = f"sys/bus/pci/devices/{ADDRESS}"
AMD = {
    f"{PCI}/pp_dpm_sclk": "S: 19Mhz *\n0: 500Mhz\n1: 1200Mhz\n2: 1700Mhz\n",
    f"{PCI}/power_dpm_force_performance_level": "auto\n",
    f"{PCI}/hwmon/hwmon1/power1_cap": "250000000\n",
    f"{PCI}/hwmon/hwmon1/power1_cap_min": "100000000\n",
    f"{PCI}/hwmon/hwmon1/power1_cap_max": "300000000\n",
}
I915 = {
    f"{PCI}/drm/card0/gt_max_freq_mhz": "1300\n",
    f"{PCI}/drm/card0/gt_RPn_freq_mhz": "100\n",
    f"{PCI}/drm/card0/gt_RP0_freq_mhz": "1300\n",
    f"{PCI}/drm/renderD128/dev": "226:128\n",
}
XE = {
    f"{PCI}/tile0/gt{gt}/freq0/{name}_freq": f"{mhz}\n"
    for gt, clocks in ((0, (300, 2400, 2400)), (1, (300, 1500, 1500)))
    for name, mhz in zip(("rpn", "rp0", "max"), clocks, strict=True)
}


def tree(folder: Path, files: dict[str, str], driver: str) -> Root:
    return Root(write_tree(folder, files, {f"{PCI}/driver": f"../../../bus/pci/drivers/{driver}"}))


def text(folder: Path, name: str) -> str:
    return (folder / PCI / name).read_text().strip()


def test_amdgpu_uses_only_levels_up_to_the_cap(tmp_path: Path) -> None:
    lever = AmdClocks(ADDRESS, tree(tmp_path, AMD, "amdgpu"), may_set=True)
    standing = lever.read()
    assert (standing.value, standing.points) == (1700, (500, 1200, 1700))
    assert lever.move(-300).reason == "no step in between"
    assert lever.move(-600).done == -500
    assert text(tmp_path, "power_dpm_force_performance_level") == "manual"
    assert text(tmp_path, "pp_dpm_sclk") == "0 1"


def test_amdgpu_is_released_to_the_drivers_own_mode(tmp_path: Path) -> None:
    lever = AmdClocks(ADDRESS, tree(tmp_path, AMD, "amdgpu"), may_set=True)
    lever.move(-1200)
    lever.release()
    assert text(tmp_path, "power_dpm_force_performance_level") == "auto"


def test_i915_caps_its_clock_within_its_range(tmp_path: Path) -> None:
    lever = intel_clocks(ADDRESS, tree(tmp_path, I915, "i915"), may_set=True)
    assert lever.move(-200).done == -200
    assert text(tmp_path, "drm/card0/gt_max_freq_mhz") == "1100"
    assert lever.move(-9000).done == -1000
    lever.release()
    assert text(tmp_path, "drm/card0/gt_max_freq_mhz") == "1300"


def test_xe_caps_all_its_engines_each_within_its_range(tmp_path: Path) -> None:
    lever = intel_clocks(ADDRESS, tree(tmp_path, XE, "xe"), may_set=True)
    assert lever.move(-400).done == -400
    assert text(tmp_path, "tile0/gt0/freq0/max_freq") == "2000"
    assert text(tmp_path, "tile0/gt1/freq0/max_freq") == "1500"
    assert lever.move(-1000).done == -1000
    assert text(tmp_path, "tile0/gt1/freq0/max_freq") == "1000"


@pytest.mark.parametrize(("files", "driver"), [(AMD, "amdgpu"), (I915, "i915"), (XE, "xe")])
def test_settings_find_the_lever_by_the_driver(tmp_path: Path, files: dict[str, str], driver: str) -> None:
    settings = LeverSettings(gpu_clock=GpuClockLever(device=ADDRESS), power_cap=PowerCapLever(device=ADDRESS))
    levers, absent = local_levers(settings, tree(tmp_path, files, driver), "no NVML")
    names = [lever.name for lever in levers]
    assert names == [f"clock of {ADDRESS}", f"power cap of {ADDRESS}"][: 2 if driver == "amdgpu" else 1]
    assert absent == [] or absent == [
        f"lever power cap of {ADDRESS}: its driver ({driver}) shows no cap of power in /sys"
    ]
    assert levers[0].move(-100).reason == "its settings lack set: true"


def test_nvidias_devices_are_left_to_nvml(tmp_path: Path) -> None:
    settings = LeverSettings(gpu_clock=GpuClockLever(device=ADDRESS), power_cap=PowerCapLever(device=ADDRESS))
    levers, absent = local_levers(settings, tree(tmp_path, {}, "nvidia"), "no NVML")
    assert levers == []
    assert absent == [f"lever clock of {ADDRESS}: no NVML", f"lever power cap of {ADDRESS}: no NVML"]


def test_drivers_without_clocks_are_named(tmp_path: Path) -> None:
    with pytest.raises(LeverError, match=r"its driver \(xe\) shows no range of clocks in /sys"):
        intel_clocks(ADDRESS, tree(tmp_path / "xe", {f"{PCI}/class": ""}, "xe"))
    files = {f"{PCI}/pp_dpm_sclk": "nonsense\n", f"{PCI}/power_dpm_force_performance_level": "auto\n"}
    with pytest.raises(LeverError, match="shows no levels in pp_dpm_sclk"):
        AmdClocks(ADDRESS, tree(tmp_path / "amd", files, "amdgpu"))


def test_a_device_that_disappears_is_a_failed_lever(tmp_path: Path) -> None:
    lever = AmdClocks(ADDRESS, tree(tmp_path, AMD, "amdgpu"), may_set=True)
    lever.move(-500)
    for name in ("pp_dpm_sclk", "power_dpm_force_performance_level"):
        (tmp_path / PCI / name).unlink()
    with pytest.raises(LeverError, match="pp_dpm_sclk is gone"):
        lever.read()
