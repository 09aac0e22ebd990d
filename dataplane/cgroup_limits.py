"""Creation of control groups: their folders in every hierarchy, their limits, and removal of empty ones."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dataplane.cgroups import Group, group_at, remove_group

PERIOD_US: Final = 100_000
"""Period of CPU quotas, the default of Linux, containers and batch systems."""
_USED: Final = ("cpu", "cpuacct", "memory", "pids", "")
"""Hierarchies in which groups are created; '' is version 2's own."""
LEAST_QUOTA_US: Final = 1000
"""Minimum CPU quota per period that the kernel accepts."""


def group_folders(group: str) -> tuple[str, ...]:
    """Return the folders of a control group: one in each hierarchy, existing or not."""
    folders = set()
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] in ("cgroup", "cgroup2"):
            folders.add(f"{before.split()[4]}{group}")
    return tuple(sorted(folders))


def remove_empty(group: str) -> bool:
    """Remove a control group and those below it, in every hierarchy; return False if processes keep some of it."""
    return remove_group(group_at(group))


def make_group(group: str, root: Path = Path("/")) -> Group:
    """Create a control group in each hierarchy that limits, counts or kills, and return it; raise OSError."""
    top = group_at("/", root)
    for controller in top.folders:
        if controller in _USED:
            _made(top, controller, group)
    return group_at(group, root)


def limit(
    group: str,
    cpu_milli: int | None,
    memory_bytes: int | None,
    root: Path = Path("/"),
    *,
    processes: int | None = None,
    period_us: int = PERIOD_US,
) -> None:
    """Create a control group that limits the total of its processes to this; raise OSError.

    Version 1 and 2, whichever has the controller. Groups below it may have their own limits. CPU time is granted per
    `period_us`, and at least a millisecond of it.
    """
    top = group_at("/", root)
    if cpu_milli is not None and "cpu" in top.folders:
        quota_us = max(cpu_milli * period_us // 1000, LEAST_QUOTA_US)
        folder = _made(top, "cpu", group)
        if "cpu" in top.unified:
            (folder / "cpu.max").write_text(f"{quota_us} {period_us}")
        else:
            _set_quota(folder, quota_us, period_us)
    if memory_bytes is not None and "memory" in top.folders:
        folder = _made(top, "memory", group)
        name = "memory.max" if "memory" in top.unified else "memory.limit_in_bytes"
        (folder / name).write_text(str(memory_bytes))
    if processes is not None and "pids" in top.folders:
        (_made(top, "pids", group) / "pids.max").write_text(str(processes))


def unlimit_cpu(group: str, root: Path = Path("/")) -> None:
    """Remove a control group's own CPU quota, not those of the levels above it; raise OSError."""
    top = group_at("/", root)
    if "cpu" not in top.folders:
        return
    folder = top.folders["cpu"] / group.strip("/")
    if "cpu" in top.unified:
        (folder / "cpu.max").write_text("max")
    else:
        (folder / "cpu.cfs_quota_us").write_text("-1")


def _set_quota(folder: Path, quota_us: int, period_us: int) -> None:
    """Write a quota of version 1, unlimited while the period changes: the old one might then exceed the level above."""
    period, quota = folder / "cpu.cfs_period_us", folder / "cpu.cfs_quota_us"
    if period.is_file() and period.read_text().strip() != str(period_us):
        quota.write_text("-1")
    period.write_text(str(period_us))
    quota.write_text(str(quota_us))


def _made(top: Group, controller: str, group: str) -> Path:
    """Return a group's folder for a controller, creating it if missing; version 2 delegates controllers by level."""
    folder = top.folders[controller]
    for part in group.strip("/").split("/"):
        if controller in top.unified:
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
        folder /= part
        folder.mkdir(exist_ok=True)
    return folder
