"""The load of a control group against its quota, of version 1 and 2."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from collectors.devices.groups import group_rates, read_group
from collectors.devices.root import Root
from collectors.devices.values import GroupSample
from collectors.errors import CollectorError
from tests.recorded import write_tree

SECOND = 1_000_000_000
V2 = {
    "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "sys/devices/system/cpu/online": "0-3\n",
    "sys/fs/cgroup/unit/cpu.max": "50000 100000\n",
    "sys/fs/cgroup/unit/cpu.stat": "usage_usec 2500\nthrottled_usec 7\n",
    "sys/fs/cgroup/unit/part/cpu.max": "max 100000\n",
    "sys/fs/cgroup/unit/part/cpu.stat": "usage_usec 100\nthrottled_usec 0\n",
    "sys/fs/cgroup/free/cpu.max": "900000 100000\n",
    "sys/fs/cgroup/free/cpu.stat": "usage_usec 100\n",
}
V1 = {
    "proc/self/mountinfo": (
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"
    ),
    "sys/devices/system/cpu/online": "0-3\n",
    "sys/fs/cgroup/cpu/unit/cpu.cfs_quota_us": "5000\n",
    "sys/fs/cgroup/cpu/unit/cpu.cfs_period_us": "10000\n",
    "sys/fs/cgroup/cpu/unit/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 7000\n",
    "sys/fs/cgroup/cpuacct/unit/cpuacct.usage": "2500000\n",
}


@pytest.mark.parametrize("tree", [V1, V2], ids=["version 1", "version 2"])
def test_a_group_with_a_quota(tmp_path: Path, tree: dict[str, str]) -> None:
    group = read_group(Root(write_tree(tmp_path, tree)), "/unit", 5)
    assert group == GroupSample("/unit", 5, 2_500_000, 500, 7000)


def test_quota_is_the_least_of_all_levels_and_of_all_cpus(tmp_path: Path) -> None:
    root = Root(write_tree(tmp_path, V2))
    assert read_group(root, "/unit/part", 5).quota_milli == 500
    assert read_group(root, "/free", 5).quota_milli == 4000


def test_a_group_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(
        CollectorError, match="control group /nobody: it does not exist, or its CPU time is not counted"
    ):
        read_group(Root(write_tree(tmp_path, V2)), "/nobody", 5)


def test_load_is_what_was_used_of_the_quota() -> None:
    before = GroupSample("/unit", 0, 0, 500)
    rates = group_rates(before, GroupSample("/unit", 2 * SECOND, SECOND // 2, 500))
    assert rates is not None
    assert (rates.cpu_milli, rates.load, rates.interval_ns) == (250.0, 0.5, 2 * SECOND)


def test_no_load_across_a_change_of_the_quota_or_of_the_group() -> None:
    before, after = GroupSample("/unit", 0, 10, 500), GroupSample("/unit", SECOND, 20, 500)
    assert group_rates(before, replace(after, quota_milli=400)) is None
    assert group_rates(before, replace(after, cpu_ns=9)) is None
    assert group_rates(before, before) is None
