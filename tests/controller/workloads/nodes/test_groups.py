"""Control groups of pods: limits in trees of both versions, and a real pod with two containers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from controller.apiserver.resources import Pod
from controller.apiserver.resources.hardware import Request
from controller.apiserver.resources.pod import Container, Phase
from controller.workloads.nodes.runtimes.settings import RuntimeSettings
from controller.workloads.nodes.settings import OnStop
from controller.workloads.nodes.state_folder import NodeFolder
from dataplane.cgroup_limits import limit, make_group, remove_empty
from dataplane.cgroups import group_at, limits_of
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.controller.workloads.nodes.node_world import World, play
from tests.waiting import until

VERSION_1 = """\
30 1 0:1 / /sys/fs/cgroup/cpu rw - cgroup none rw,cpu
31 1 0:2 / /sys/fs/cgroup/memory rw - cgroup none rw,memory
"""
PIDS = "32 1 0:3 / /sys/fs/cgroup/pids rw - cgroup none rw,pids\n"
VERSION_2 = "30 1 0:1 / /sys/fs/cgroup rw - cgroup2 none rw\n"


def tree(tmp_path: Path, mounts: str, membership: str) -> Path:
    for line in mounts.splitlines():
        (tmp_path / line.split()[4].lstrip("/")).mkdir(parents=True)
    process = tmp_path / "proc/self"
    process.mkdir(parents=True)
    (process / "mountinfo").write_text(mounts)
    (process / "cgroup").write_text(membership)
    return tmp_path


def test_limits_of_version_1(tmp_path: Path) -> None:
    root = tree(tmp_path, VERSION_1, "2:cpu:/\n1:memory:/\n")
    limit("/millrace/h1/a", 1500, 1 << 30, root)
    base = root / "sys/fs/cgroup"
    assert (base / "cpu/millrace/h1/a/cpu.cfs_quota_us").read_text() == "150000"
    assert (base / "cpu/millrace/h1/a/cpu.cfs_period_us").read_text() == "100000"
    assert (base / "memory/millrace/h1/a/memory.limit_in_bytes").read_text() == str(1 << 30)


def test_limits_of_version_2(tmp_path: Path) -> None:
    root = tree(tmp_path, VERSION_2, "0::/\n")
    limit("/millrace/h1/a", 5, None, root)
    base = root / "sys/fs/cgroup"
    assert (base / "millrace/h1/a/cpu.max").read_text() == "1000 100000"
    assert not (base / "millrace/h1/a/memory.max").exists()
    assert (base / "millrace/h1/cgroup.subtree_control").read_text() == "+cpu"


def test_process_limits_and_groups_suit_both_cgroup_versions(tmp_path: Path) -> None:
    first = tree(tmp_path / "1", VERSION_1 + PIDS, "3:pids:/\n2:cpu:/\n1:memory:/\n")
    assert {"cpu", "memory", "pids"} <= set(make_group("/millrace/c/a", first).folders)
    limit("/millrace/c/a", None, None, first, processes=7)
    assert (first / "sys/fs/cgroup/pids/millrace/c/a/pids.max").read_text() == "7"
    second = tree(tmp_path / "2", VERSION_2, "0::/\n")
    made = make_group("/millrace/c/a", second)
    assert set(made.folders.values()) == {second / "sys/fs/cgroup/millrace/c/a"}
    limit("/millrace/c/a", None, 5, second, processes=7)
    assert (second / "sys/fs/cgroup/millrace/c/a/pids.max").read_text() == "7"
    assert (second / "sys/fs/cgroup/millrace/c/a/memory.max").read_text() == "5"


@pytest.mark.root
@pytest.mark.containers
def test_two_containers_have_the_pods_limits_together(tmp_path: Path, podman_storage: PodmanStorage) -> None:
    async def act(world: World) -> None:
        runtime = RuntimeSettings(environment=podman_storage.environment, image_folders=podman_storage.image_folders)
        settings = world.settings(runtime=runtime, on_stop=OnStop.STOP)
        names = ("x", "y")
        sleeps = tuple(Container(name=name, image=podman_storage.image, command=("sleep", "100")) for name in names)
        async with world.managing(None, settings):
            request = Request(cpu_milli=500, memory_bytes=64 << 20)
            await world.bind("a", containers=sleeps, request=request, stop_grace_s=0)
            await world.in_phase("a", Phase.RUNNING)
            group = f"/millrace/h1-{NodeFolder(Path(settings.state), 'h1').identity()}"
            pids = subprocess.run(
                ["podman", "ps", "--format", "{{.Pid}}"],
                env=podman_storage.environment | {"PATH": "/usr/bin:/usr/sbin"},
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()
            assert len(pids) == 2
            parent = group_at(f"{group}/pod-a").folders
            assert any("quota" in file.name or file.name == "cpu.max" for file in parent["cpu"].iterdir())
            for pid in pids:
                limits = limits_of(process=pid)
                assert (limits.cpu_milli, limits.memory_bytes) == (500, 64 << 20)
            quota = parent["cpu"] / "cpu.cfs_quota_us"
            assert (quota if quota.exists() else parent["cpu"] / "cpu.max").read_text().split()[0] == "50000"
            await world.client.of(Pod).delete("a")
            await world.until_gone("a")
            await until(lambda: not group_at(f"{group}/pod-a").folders, "the pod's control groups stay", poll_s=0.05)
        (Path(settings.state) / "lease").unlink(missing_ok=True)
        remove_empty(group)

    play(tmp_path, act)
