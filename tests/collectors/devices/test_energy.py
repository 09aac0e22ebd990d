"""Counters of energy: what packages took between two readings, also where a counter has started again."""

from __future__ import annotations

from pathlib import Path

from collectors.devices.root import Root
from collectors.devices.sampling import power_w, read_energy
from collectors.devices.values import EnergySample
from tests.collectors.devices.machines import RAPL, SERVER
from tests.recorded import write_tree

SECOND = 1_000_000_000


def test_packages_alone_are_read(tmp_path: Path) -> None:
    root = Root(write_tree(tmp_path, SERVER))
    assert read_energy(root, 3) == (EnergySample("intel-rapl:0", 3, 0, 262143328850),)


def test_what_may_not_be_read_or_is_nonsense_is_left_out(tmp_path: Path) -> None:
    files = {
        f"{RAPL}:0/max_energy_range_uj": "9\n",
        f"{RAPL}:1/energy_uj": "10\n",
        f"{RAPL}:1/max_energy_range_uj": "9",
    }
    assert read_energy(Root(write_tree(tmp_path, files)), 3) == ()


def test_power_sums_packages_and_survives_counter_wraps() -> None:
    before = (EnergySample("a", 0, 5_000_000, 99_999_999), EnergySample("b", 0, 90_000_000, 99_999_999))
    after = (EnergySample("a", 2 * SECOND, 25_000_000, 99_999_999), EnergySample("b", 2 * SECOND, 0, 99_999_999))
    assert power_w(before, after) == 10.0 + 5.0


def test_no_power_of_other_packages_or_without_time() -> None:
    sample, other = EnergySample("a", 0, 5, 9), EnergySample("b", SECOND, 5, 9)
    assert power_w((sample,), (other,)) is None
    assert power_w((sample,), (sample,)) is None
    assert power_w((), ()) is None
