"""CPU clocks as a lever, on trees that follow the kernel's documents: this machine may lack cpufreq."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.devices.root import Root
from controller.balance.errors import LeverError
from controller.balance.levers.clocks import CpuClocks
from tests.recorded import write_tree

CPUFREQ = "sys/devices/system/cpu/cpufreq"


def policy(name: str, low: int, high: int, cap: int, listed: str = "") -> dict[str, str]:
    """Return a policy's files; clocks in kHz."""
    files = {
        f"{CPUFREQ}/{name}/cpuinfo_min_freq": f"{low}\n",
        f"{CPUFREQ}/{name}/cpuinfo_max_freq": f"{high}\n",
        f"{CPUFREQ}/{name}/scaling_max_freq": f"{cap}\n",
        f"{CPUFREQ}/{name}/scaling_driver": "acpi-cpufreq\n",
    }
    return files | ({f"{CPUFREQ}/{name}/scaling_available_frequencies": listed} if listed else {})


EQUAL = policy("policy0", 800_000, 3_200_000, 3_200_000) | policy("policy4", 800_000, 3_200_000, 3_200_000)
HYBRID = policy("policy0", 800_000, 4_800_000, 4_000_000) | policy("policy8", 400_000, 3_600_000, 3_600_000)
LISTED = policy("policy0", 1_500_000, 2_900_000, 2_900_000, "2900000 2200000 1500000 ")


def caps(folder: Path) -> dict[str, str]:
    return {path.parent.name: path.read_text().strip() for path in folder.rglob("scaling_max_freq")}


def test_all_cpus_move_together(tmp_path: Path) -> None:
    lever = CpuClocks(may_set=True, root=Root(write_tree(tmp_path, EQUAL)))
    standing = lever.read()
    assert (standing.value, standing.low, standing.high) == (3200, 800, 3200)
    assert lever.move(-300).done == -300
    assert caps(tmp_path) == {"policy0": "2900000", "policy4": "2900000"}
    assert lever.move(+500).left == 200
    assert lever.move(-9000).done == -2400


def test_cpus_of_several_kinds_are_capped_within_their_clocks(tmp_path: Path) -> None:
    lever = CpuClocks(may_set=True, root=Root(write_tree(tmp_path, HYBRID)))
    assert lever.move(-200).done == -200
    assert caps(tmp_path) == {"policy0": "3800000", "policy8": "3600000"}
    lever.release()
    assert caps(tmp_path) == {"policy0": "4000000", "policy8": "3600000"}


def test_only_clocks_listed_by_the_driver_are_set(tmp_path: Path) -> None:
    lever = CpuClocks(("policy0",), may_set=True, root=Root(write_tree(tmp_path, LISTED)))
    moved = lever.move(-300)
    assert (moved.done, moved.left, moved.reason) == (0, -300, "no step in between")
    assert lever.move(-900).done == -700
    assert caps(tmp_path) == {"policy0": "2200000"}


def test_it_is_read_only_unless_settings_say_otherwise(tmp_path: Path) -> None:
    lever = CpuClocks(root=Root(write_tree(tmp_path, EQUAL)))
    assert lever.move(-300).reason == "its settings lack set: true"
    lever.release()
    assert caps(tmp_path) == {"policy0": "3200000", "policy4": "3200000"}


def test_machine_without_cpufreq_reports_it(tmp_path: Path) -> None:
    with pytest.raises(LeverError, match="lever cpu clock of all CPUs: no cpufreq on this machine"):
        CpuClocks(root=Root(tmp_path))
    with pytest.raises(LeverError, match="lever cpu clock of policy7: no policy7"):
        CpuClocks(("policy7",), root=Root(write_tree(tmp_path, EQUAL)))


def test_nonsense_in_a_file_is_an_error_naming_it(tmp_path: Path) -> None:
    lever = CpuClocks(root=Root(write_tree(tmp_path, EQUAL)))
    write_tree(tmp_path, {f"{CPUFREQ}/policy4/scaling_max_freq": "<unknown>\n"})
    with pytest.raises(LeverError, match="policy4/scaling_max_freq holds no clock"):
        lever.read()


def test_unwritable_cap_is_not_moved_with_a_reason(tmp_path: Path) -> None:
    root = Root(write_tree(tmp_path, EQUAL))
    file = tmp_path / CPUFREQ / "policy0/scaling_max_freq"
    file.unlink()
    file.symlink_to("/proc/sys/kernel/random/entropy_avail")  # a read-only number
    lever = CpuClocks(may_set=True, root=root)
    assert lever.move(-100).reason == f"no permission to write {file}"
    lever.release()
    assert caps(tmp_path)["policy4"] == "3200000"
