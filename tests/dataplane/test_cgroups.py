"""Limits and usage of control groups, from recorded trees of version 2, version 1 and both, and from this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dataplane.cgroups import (
    Limits,
    Usage,
    group_at,
    group_of,
    kill_in,
    limits_of,
    oom_kills_in,
    parse_cpus,
    processes_in,
    remove_group,
    usage_in,
    usage_of,
)
from tests.recorded import write_tree

STATUS = "Name:\tbash\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,6\n"
V2 = {
    "proc/self/status": STATUS,
    "proc/self/cgroup": "0::/work.slice/job one\n",
    "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
    "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
    "sys/fs/cgroup/work.slice/cpu.max": "150000 100000\n",
    "sys/fs/cgroup/work.slice/memory.max": "max\n",
    "sys/fs/cgroup/work.slice/pids.max": "max\n",
    "sys/fs/cgroup/work.slice/job one/cpu.max": "max 100000\n",
    "sys/fs/cgroup/work.slice/job one/memory.max": "1073741824\n",
    "sys/fs/cgroup/work.slice/job one/memory.current": "4096\n",
    "sys/fs/cgroup/work.slice/job one/pids.max": "100\n",
    "sys/fs/cgroup/work.slice/job one/pids.current": "3\n",
    "sys/fs/cgroup/work.slice/job one/cpu.stat": "usage_usec 2500\nuser_usec 2000\nthrottled_usec 7\n",
}
V1 = {
    "proc/self/status": STATUS,
    "proc/self/cgroup": "5:pids:/a\n4:memory:/a/b\n3:cpu,cpuacct:/a\n0::/\n",
    "proc/self/mountinfo": (
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "34 31 0:31 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
        "35 31 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    ),
    "sys/fs/cgroup/unified/cgroup.controllers": "\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n",
    "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu,cpuacct/a/cpuacct.usage": "123\n",
    "sys/fs/cgroup/cpu,cpuacct/a/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 5\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "65536\n",
    "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": "77\n",
    "sys/fs/cgroup/pids/a/pids.max": "max\n",
    "sys/fs/cgroup/pids/a/pids.current": "9\n",
}


def test_version_2_limits_at_every_level(tmp_path: Path) -> None:
    root = write_tree(tmp_path, V2)
    assert limits_of(root) == Limits(1500, frozenset({0, 1, 2, 3, 6}), 1 << 30, 100)
    assert usage_of(root) == Usage(2_500_000, 7_000, 4096, 3)


def test_version_1_limits_at_every_level(tmp_path: Path) -> None:
    root = write_tree(tmp_path, V1)
    assert limits_of(root) == Limits(500, frozenset({0, 1, 2, 3, 6}), 65536, None)
    assert usage_of(root) == Usage(123, 5, 77, 9)


def test_what_version_1_lacks_is_version_2s(tmp_path: Path) -> None:
    hybrid = V1 | {
        "proc/self/cgroup": "4:memory:/a/b\n0::/c\n",
        "sys/fs/cgroup/unified/c/cpu.max": "20000 10000\n",
        "sys/fs/cgroup/unified/c/cpu.stat": "usage_usec 4\nthrottled_usec 0\n",
    }
    root = write_tree(tmp_path, hybrid)
    assert (limits_of(root).cpu_milli, limits_of(root).memory_bytes) == (2000, 65536)
    assert usage_of(root) == Usage(4000, 0, 77, None)


def test_a_container_sees_its_own_folder_as_the_top(tmp_path: Path) -> None:
    container = V2 | {
        "proc/self/cgroup": "0::/docker/1f\n",
        "proc/self/mountinfo": "30 23 0:26 /docker/1f /sys/fs/cgroup ro - cgroup2 cgroup ro\n",
        "sys/fs/cgroup/cpu.max": "25000 100000\n",
        "sys/fs/cgroup/memory.max": "2048\n",
    }
    assert limits_of(write_tree(tmp_path, container)).cpu_milli == 250
    moved = container | {"proc/self/cgroup": "0::/../../other\n"}
    assert limits_of(write_tree(tmp_path, moved)).memory_bytes == 2048


def test_a_machine_without_control_groups_limits_nothing(tmp_path: Path) -> None:
    assert limits_of(tmp_path) == Limits()
    assert usage_of(tmp_path) == Usage()


def test_a_group_of_a_path_and_its_oom_kills(tmp_path: Path) -> None:
    kept = {"sys/fs/cgroup/millrace/n1/c1/memory.events": "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n"}
    root = write_tree(tmp_path / "v2", V2 | kept)
    assert oom_kills_in(group_at("/millrace/n1/c1", root)) == 1
    assert group_at("/millrace/n2", root).folders == {}
    kept = {"sys/fs/cgroup/memory/millrace/c1/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"}
    root = write_tree(tmp_path / "v1", V1 | kept)
    group = group_at("/millrace/c1", root)
    assert oom_kills_in(group) == 3
    assert set(group.folders) - {"rw"} == {"memory"}
    assert usage_in(group_at("/a", root)).cpu_ns == 123


def test_what_is_no_path_of_a_group_is_never_all_groups(tmp_path: Path) -> None:
    """Killing in a group must not reach the top: of a container that sees only its own part of the hierarchies."""
    inside = {"proc/self/mountinfo": "30 23 0:26 /docker/c1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"}
    there = {"sys/fs/cgroup/cgroup.procs": "1\n2\n", "sys/fs/cgroup/millrace/n1/cgroup.procs": "77\n"}
    root = write_tree(tmp_path, V2 | inside | there)
    for path in ("/millrace/n1", "/docker/c1/millrace/n1"):
        assert processes_in(group_at(path, root)) == {77}
    for path in ("/millrace/n2", "/docker/c2", "/millrace/../..", "", "millrace/n1"):
        assert processes_in(group_at(path, root)) == set()
    assert processes_in(group_at("/", root)) == {1, 2, 77}


def test_another_process_is_found_where_this_one_sees_it(tmp_path: Path) -> None:
    """A container has its own mounts, unknown to this process."""
    other = {
        "proc/77/cgroup": "4:memory:/a/b\n",
        "proc/77/mountinfo": "33 31 0:30 /a/b /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
    }
    root = write_tree(tmp_path, V1 | other)
    assert usage_of(root, "77").memory_bytes == 77


def test_lists_of_cpus() -> None:
    assert parse_cpus("0-2,5\n") == {0, 1, 2, 5}
    assert parse_cpus("") == parse_cpus("a-b") == parse_cpus("0-3,") == parse_cpus("0-99999999") == frozenset()


@pytest.fixture
def half_a_cpu() -> Iterator[Path]:
    """A control group of this machine with half a CPU, and the file that takes processes into it."""
    folder = group_of().folders.get("cpu")
    if folder is None:
        pytest.skip("no control group of this machine has the cpu controller")
    group = folder / f"millrace-test-{os.getpid()}"
    group.mkdir()
    try:
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text("50000 100000")
        elif (group / "cpu.cfs_quota_us").exists():
            (group / "cpu.cfs_quota_us").write_text("50000")
        else:
            pytest.skip("the groups below ours have no cpu controller")
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


@pytest.mark.root
def test_a_real_group_is_killed_and_removed() -> None:
    if "pids" not in group_of().folders:
        pytest.skip("no control group of this machine has the pids controller")
    path = f"/millrace-test-{os.getpid()}"
    for top in {top for name, top in group_of().tops.items() if name in ("pids", "")}:
        (top / path.lstrip("/") / "below").mkdir(parents=True)
    group = group_at(path)
    process = subprocess.Popen(["sleep", "60"])
    try:
        (group_at(f"{path}/below").folders["pids"] / "cgroup.procs").write_text(str(process.pid))
        assert processes_in(group) == {process.pid}
        assert not remove_group(group)
        assert kill_in(group)
        assert process.wait() == -9
        assert not kill_in(group)
        assert remove_group(group)
        assert group_at(path).folders == {}
    finally:
        process.kill()
        process.wait()
        remove_group(group_at(path))


@pytest.mark.root
def test_a_process_in_a_real_group_is_limited_and_counted(half_a_cpu: Path) -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        half_a_cpu.write_text(str(process.pid))
        assert limits_of(process=str(process.pid)).cpu_milli == 500
        assert (limits_of().cpu_milli or 1000) > 500
        assert (usage_of(process=str(process.pid)).throttled_ns or 0) >= 0
    finally:
        process.kill()
        process.wait()


def test_this_machine() -> None:
    assert limits_of().cpus == frozenset(os.sched_getaffinity(0))
    limits, used = limits_of(), usage_of()
    assert limits.memory_bytes is None or used.memory_bytes is None or used.memory_bytes <= limits.memory_bytes
