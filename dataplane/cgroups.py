"""Limits and usage of a process's control groups; version 2, version 1, and both at once ("hybrid").

Sources: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/ of Linux, cgroups(7), proc_pid_mountinfo(5). Groups are
nested, and each level limits: the effective limit is the minimum of all levels that are visible here.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

_MILLI: Final = 1000
_MOUNT_FIELDS: Final = 5
"""Number of fields in a line of mountinfo up to the mount point."""
_UNIFIED: Final = ""
"""Name of version 2's hierarchy in /proc/PID/cgroup."""
_CONTROLLERS: Final = frozenset({"cpu", "cpuset", "memory", "pids"})
_CPUS: Final = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", re.ASCII)
_NO_LIMIT: Final = 1 << 62
"""Version 1 writes the largest whole number of pages where version 2 writes `max`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a process; None where no control group limits it.

    `cpu_milli` is the quota of CPU time in thousandths of a CPU, `cpus` the CPUs that it may run on.
    """

    cpu_milli: int | None = None
    cpus: frozenset[int] | None = None
    memory_bytes: int | None = None
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a process's control group, with CPU time since its creation; None where it is not counted.

    `throttled_ns` is how long its processes were kept from running because their quota was exhausted.
    """

    cpu_ns: int | None = None
    throttled_ns: int | None = None
    memory_bytes: int | None = None
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A process's control group: the folder of each controller, and the mount points that they lie under."""

    folders: Mapping[str, Path]
    tops: Mapping[str, Path]
    unified: frozenset[str]
    """Controllers that belong to version 2."""

    def levels(self, controller: str) -> Iterator[Path]:
        """Yield the folders of a controller from the group upwards, as far as they are mounted."""
        folder, top = self.folders.get(controller), self.tops.get(controller)
        while folder is not None and top is not None:
            yield folder
            if folder == top or top not in folder.parents:
                return
            folder = folder.parent


def group_of(root: Path = Path("/"), process: str = "self") -> Group:
    """Return a process's control group from /proc; one without folders if there are no control groups.

    Works for a process in another mount namespace, too: folders are those that this process sees.
    """
    memberships = dict(_memberships(_text(root / "proc" / process / "cgroup")))
    return _group(root, memberships, falls_back=True)


def group_at(path: str, root: Path = Path("/")) -> Group:
    """Return the control group of a path such as /millrace/n1, with existing folders only; empty for an unknown path.

    If mounts show a part of the hierarchies, a path that is not below that part is relative to it, as in runtimes.
    """
    if not path.startswith("/") or ".." in PurePosixPath(path).parts:
        return Group({}, {}, frozenset())
    names = {name for mount in _mounts(_text(root / "proc/self/mountinfo")) for name in mount.controllers}
    return _group(root, dict.fromkeys(names, path), falls_back=False)


def _group(root: Path, memberships: Mapping[str, str], *, falls_back: bool) -> Group:
    """Return a group of a path for each controller; if it is missing, the top of the mounted part or nothing."""
    folders, tops = dict[str, Path](), dict[str, Path]()
    for mount in _mounts(_text(root / "proc/self/mountinfo")):
        top = root / mount.point.lstrip("/")
        for name in mount.controllers:
            if name in memberships and name not in folders:
                path = memberships[name]
                folder = top / _below(path, mount.root, otherwise="" if falls_back else path.lstrip("/"))
                if folder.is_dir():
                    folders[name], tops[name] = folder, top
                elif falls_back:
                    folders[name], tops[name] = top, top
    # Version 2's hierarchy has the controllers that no hierarchy of version 1 has.
    unified = frozenset(_CONTROLLERS - memberships.keys()) if _UNIFIED in folders else frozenset[str]()
    for name in unified:
        folders[name], tops[name] = folders[_UNIFIED], tops[_UNIFIED]
    return Group(folders, tops, unified)


def limits_of(root: Path = Path("/"), process: str = "self") -> Limits:
    """Return a process's limits: the minimum over the levels of its control groups, and the CPUs it may run on."""
    group = group_of(root, process)
    return Limits(
        cpu_milli=quota_milli_of(group),
        cpus=_allowed_cpus(root, process),
        memory_bytes=_least(
            _limit(folder / ("memory.max" if "memory" in group.unified else "memory.limit_in_bytes"))
            for folder in group.levels("memory")
        ),
        processes=_least(_limit(folder / "pids.max") for folder in group.levels("pids")),
    )


def quota_milli_of(group: Group) -> int | None:
    """Return a control group's CPU quota in thousandths of a CPU: the minimum of its levels; None: no limit."""
    return _least(quotas_milli_of(group))


def quotas_milli_of(group: Group) -> tuple[int | None, ...]:
    """Return the quota of each level of a control group, its own first; None for a level without."""
    return tuple(_quota_milli(group, folder) for folder in group.levels("cpu"))


def usage_of(root: Path = Path("/"), process: str = "self") -> Usage:
    """Return the usage of a process's control group, all processes in it and below it together."""
    return usage_in(group_of(root, process))


def usage_in(group: Group) -> Usage:
    """Return the usage of a control group, all processes in it and below it together."""
    cpu, memory, pids = (group.folders.get(name) for name in ("cpu", "memory", "pids"))
    accounting = group.folders.get("cpuacct")
    if "cpu" in group.unified:
        used = _scaled(_entry(cpu, "cpu.stat", "usage_usec"), 1000)
        throttled = _scaled(_entry(cpu, "cpu.stat", "throttled_usec"), 1000)
    else:
        used = None if accounting is None else _number(accounting / "cpuacct.usage")
        throttled = _entry(cpu, "cpu.stat", "throttled_time")
    current = "memory.current" if "memory" in group.unified else "memory.usage_in_bytes"
    return Usage(
        cpu_ns=used,
        throttled_ns=throttled,
        memory_bytes=None if memory is None else _number(memory / current),
        processes=None if pids is None else _number(pids / "pids.current"),
    )


def oom_kills_in(group: Group) -> int | None:
    """Return how many processes of a control group the kernel's OOM killer has killed; None if it is not counted.

    Version 2 includes the groups below it, version 1 does not.
    """
    name = "memory.events" if "memory" in group.unified else "memory.oom_control"
    return _entry(group.folders.get("memory"), name, "oom_kill")


def processes_in(group: Group) -> frozenset[int]:
    """Return the processes in a control group and those below it, of any controller."""
    processes: set[int] = set()
    for folder in set(group.folders.values()):
        for each, _, _ in os.walk(folder):  # which skips folders removed meanwhile
            processes.update(int(word) for word in (_text(Path(each) / "cgroup.procs") or "").split())
    return frozenset(processes)


def kill_in(group: Group) -> bool:
    """Send SIGKILL to all processes in a control group and below it; return whether there were any.

    With version 2's `cgroup.kill` (Linux 5.14), in hybrid setups too, no process being forked escapes; elsewhere call
    it until it returns False.
    """
    processes = processes_in(group)
    unified = group.folders.get(_UNIFIED)
    if unified is not None:
        with suppress(OSError):
            (unified / "cgroup.kill").write_text("1")
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return bool(processes)


def remove_group(group: Group) -> bool:
    """Remove a control group and those below it; return whether it is gone: it stays while it has processes."""
    for folder in set(group.folders.values()):
        for each, _, _ in os.walk(folder, topdown=False):
            with suppress(OSError):
                Path(each).rmdir()
    return not any(folder.exists() for folder in group.folders.values())


def parse_cpus(text: str) -> frozenset[int]:
    """Parse a list of CPUs such as '0-3,8', as the kernel writes it; empty for anything else."""
    if not _CPUS.fullmatch(text.strip()):
        return frozenset()
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mounted hierarchy; `root` is the folder of it that the mount point shows."""

    root: str
    point: str
    controllers: tuple[str, ...]


def _memberships(text: str | None) -> Iterator[tuple[str, str]]:
    """Yield controllers with the process's group."""
    for line in (text or "").splitlines():
        _, names, path = (*line.split(":", 2), "", "")[:3]
        for name in names.split(",") if path else ():
            yield name, path


def _mounts(text: str | None) -> Iterator[_Mount]:
    for line in (text or "").splitlines():
        fields, _, rest = line.partition(" - ")
        words, kinds = fields.split(), rest.split()
        if len(words) < _MOUNT_FIELDS or not kinds or kinds[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = (_UNIFIED,) if kinds[0] == "cgroup2" else tuple(kinds[-1].split(","))
        yield _Mount(_unescaped(words[3]), _unescaped(words[4]), controllers)


def _unescaped(path: str) -> str:
    """Return a path of mountinfo with its octal escapes for blanks and backslashes decoded."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _below(path: str, top: str, *, otherwise: str) -> PurePosixPath:
    """Return a group's path below a mount that shows the folder `top`; `otherwise` if it is not below it."""
    try:
        relative = PurePosixPath(path).relative_to(top)
    except ValueError:
        return PurePosixPath(otherwise)
    return PurePosixPath() if ".." in relative.parts else relative


def _quota_milli(group: Group, folder: Path) -> int | None:
    if "cpu" in group.unified:
        words = (_text(folder / "cpu.max") or "").split()
        quota_us, period_us = ((_integer(word) or 0) for word in (*words, "", "")[:2])
    else:
        quota_us = _number(folder / "cpu.cfs_quota_us") or 0
        period_us = _number(folder / "cpu.cfs_period_us") or 0
    return quota_us * _MILLI // period_us if quota_us > 0 and period_us > 0 else None


def _allowed_cpus(root: Path, process: str) -> frozenset[int] | None:
    """Return the CPUs in /proc/PID/status, which the kernel has already restricted to the group's CPUs."""
    for line in (_text(root / "proc" / process / "status") or "").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return parse_cpus(line.partition(":")[2]) or None
    return None


def _limit(file: Path) -> int | None:
    value = _number(file)
    return None if value is None or value >= _NO_LIMIT else value


def _least(limits: Iterable[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def _entry(folder: Path | None, name: str, key: str) -> int | None:
    text = None if folder is None else _text(folder / name)
    for line in (text or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == key:
            return _integer(words[1])
    return None


def _scaled(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor


def _number(file: Path) -> int | None:
    return _integer(_text(file) or "")


def _integer(text: str) -> int | None:
    """Parse a whole number; None for anything else, such as `max`."""
    return int(text) if re.fullmatch(r"-?\d{1,20}", text, re.ASCII) else None


def _text(file: Path) -> str | None:
    try:
        return file.read_bytes().decode("utf-8", "replace").strip()
    except OSError:
        return None
