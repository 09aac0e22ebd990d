"""A CPU time quota as a lever, on cgroup trees of versions 1 and 2, and on this machine's control groups."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.devices.root import Root
from controller.balance.errors import LeverError
from controller.balance.levers.quota import CpuQuota
from controller.balance.values import LeverKind
from dataplane.cgroup_limits import limit, remove_empty
from dataplane.cgroups import group_at, quotas_milli_of
from tests.recorded import write_tree

ONLINE = {"sys/devices/system/cpu/online": "0-3\n"}
V2 = {
    **ONLINE,
    "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "sys/fs/cgroup/cgroup.subtree_control": "",
    "sys/fs/cgroup/unit/cpu.max": "50000 100000\n",
    "sys/fs/cgroup/unit/cgroup.subtree_control": "",
    "sys/fs/cgroup/unit/part/cpu.max": "max 100000\n",
}
V1 = {
    **ONLINE,
    "proc/self/mountinfo": "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
    "sys/fs/cgroup/cpu/unit/cpu.cfs_quota_us": "50000\n",
    "sys/fs/cgroup/cpu/unit/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu/unit/part/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu/unit/part/cpu.cfs_period_us": "100000\n",
}
TREES = pytest.mark.parametrize("tree", [V1, V2], ids=["version 1", "version 2"])


@TREES
def test_as_sub_units_it_counts_parts_of_a_cpu(tmp_path: Path, tree: dict[str, str]) -> None:
    root = Root(write_tree(tmp_path, tree))
    lever = CpuQuota("/unit", 10, may_set=True, root=root)
    standing = lever.read()
    assert (standing.value, standing.low, standing.high, standing.may_set) == (50, 1, 400, True)
    moved = lever.move(-2)
    assert (moved.done, moved.left) == (-2, 0)
    assert lever.read().value == 48
    assert quotas_milli_of(group_at("/unit", tmp_path))[0] == 480


@TREES
def test_quota_as_frequency_reports_the_equivalent_clock(tmp_path: Path, tree: dict[str, str]) -> None:
    root = Root(write_tree(tmp_path, tree))
    lever = CpuQuota("/unit", 0.4, kind=LeverKind.FREQUENCY, low=500, high=2500, may_set=True, root=root)
    assert lever.read().value == 1250
    assert lever.move(+100).done == 100
    assert quotas_milli_of(group_at("/unit", tmp_path))[0] == 540


@TREES
def test_it_goes_no_further_than_the_levels_above(tmp_path: Path, tree: dict[str, str]) -> None:
    lever = CpuQuota("/unit/part", 10, may_set=True, root=Root(write_tree(tmp_path, tree)))
    assert (lever.read().value, lever.read().high) == (50, 50)
    assert lever.move(+4).reason == "at its limit of 50"
    assert lever.move(-4).done == -4
    assert lever.move(+9).left == 5


@TREES
def test_release_restores_the_initial_quota(tmp_path: Path, tree: dict[str, str]) -> None:
    root = Root(write_tree(tmp_path, tree))
    for group, quota_milli in (("/unit", 500), ("/unit/part", None)):
        lever = CpuQuota(group, 10, may_set=True, period_us=10_000, root=root)
        assert lever.move(-20).done == -20
        lever.release()
        assert quotas_milli_of(group_at(group, tmp_path))[0] == quota_milli


def test_it_is_read_only_unless_settings_say_otherwise(tmp_path: Path) -> None:
    lever = CpuQuota("/unit", 10, root=Root(write_tree(tmp_path, V2)))
    assert lever.move(-2).reason == "its settings lack set: true"
    lever.release()
    assert (tmp_path / "sys/fs/cgroup/unit/cpu.max").read_text() == "50000 100000\n"


def test_least_quota_of_a_short_period_is_one_millisecond(tmp_path: Path) -> None:
    root = Root(write_tree(tmp_path, V2))
    assert CpuQuota("/unit", 10, period_us=10_000, root=root).read().low == 10


def test_a_group_that_is_not_there_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    root = Root(write_tree(tmp_path, V2))
    with pytest.raises(LeverError, match="lever cpu quota of /nobody: no such control group"):
        CpuQuota("/nobody", 10, may_set=True, root=root)
    assert not (tmp_path / "sys/fs/cgroup/nobody").exists()


def test_a_lever_that_fails_names_itself_and_the_reason(tmp_path: Path) -> None:
    lever = CpuQuota("/unit", 10, may_set=True, root=Root(write_tree(tmp_path, V2)))
    file = tmp_path / "sys/fs/cgroup/cgroup.subtree_control"
    file.unlink()
    file.mkdir()
    with pytest.raises(LeverError, match="lever cpu quota of /unit: cannot be set: Is a directory"):
        lever.move(-2)


@pytest.fixture
def group() -> Iterator[str]:
    if os.geteuid() != 0 or "cpu" not in group_at("/").folders:
        pytest.skip("needs root and control groups with a quota of CPU time")
    name = f"/mr-test-{secrets.token_hex(3)}"
    limit(name, 500, None)
    yield name
    remove_empty(name)


@pytest.mark.root
def test_kernel_accepts_the_levers_writes(group: str) -> None:
    lever = CpuQuota(group, 10, may_set=True, period_us=10_000)
    assert lever.read().value == 50
    assert lever.move(-20).done == -20
    assert quotas_milli_of(group_at(group))[0] == 300
    lever.release()
    assert quotas_milli_of(group_at(group))[0] == 500
