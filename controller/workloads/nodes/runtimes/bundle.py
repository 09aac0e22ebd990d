"""The config.json of a bundle: configuration of a container of an image, or of a user's bundle.

Everything that could lead out of the container is written here, whatever a bundle says: namespaces, capabilities,
devices, mounts, limits. Only the process, the root folder and the hostname of a bundle's own config.json are used;
hooks, and mounts of the machine's folders that the node's settings do not allow, are refused.
Source: OCI runtime specification 1.0, config.md and config-linux.md.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from controller.workloads.nodes.runtimes.base import ContainerOrder, Mount
from controller.workloads.nodes.runtimes.devices import device_files, is_cdi
from controller.workloads.nodes.runtimes.errors import OrderError
from controller.workloads.nodes.runtimes.processes import in_thread
from controller.workloads.nodes.runtimes.reading.beneath import FOLDER, RefusedError, open_at
from controller.workloads.nodes.runtimes.reading.child import ReadRefusedError, ask
from controller.workloads.nodes.runtimes.resources import resources_of
from controller.workloads.nodes.runtimes.security import CAPABILITIES, HostFolders, rlimits_of

_MOST_BYTES: Final = 1 << 20
_PATH: Final = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MASKED: Final = (
    *("/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list"),
    *("/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/fs/selinux", "/sys/dev/block"),
)
_READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_NO_EXEC: Final = ("nosuid", "noexec", "nodev")
_MOUNTS: Final = (
    {"destination": "/proc", "type": "proc", "source": "proc", "options": _NO_EXEC},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ("nosuid", "mode=755", "size=64m")},
    {
        "destination": "/dev/pts",
        "type": "devpts",
        "source": "devpts",
        "options": ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
    },
    {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": (*_NO_EXEC, "mode=1777", "size=64m")},  # noqa: S108
    {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": _NO_EXEC},
    {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": (*_NO_EXEC, "ro")},
    {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": (*_NO_EXEC, "ro")},
)
_BIND: Final = frozenset({"bind", "rbind"})
_KERNEL_TYPES: Final = frozenset({"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "tmpfs"})


@dataclass(frozen=True, slots=True)
class Process:
    """Process of a container, from an image or a bundle; an order may override it."""

    command: tuple[str, ...]
    environment: tuple[str, ...] = ()
    """NAME=value."""
    working_folder: str = "/"
    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Bind:
    """A folder or file of the machine, by its descriptor, mounted in the container at `target`."""

    descriptor: int
    target: Path
    is_writable: bool


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle's own part: its process, a descriptor of its root folder, its mounts and its hostname."""

    process: Process
    root: int
    mounts: tuple[Bind, ...] = ()
    hostname: str | None = None
    is_others: bool = False
    """Users other than root may change it while a container is made from it, and race runc there."""


async def read_bundle(folder: Path, folders: HostFolders, stack: ExitStack, deadline_s: float) -> Bundle:
    """Return a bundle's content; raise OrderError if it leads out of itself, is malformed, or is in a forbidden place.

    The bundle's writers may change it meanwhile: checked parts are held by descriptors, which `stack` closes.
    """
    top = await in_thread(lambda: folders.open_bundle(folder), "runc", f"open bundle {folder}", deadline_s)
    stack.callback(os.close, top)
    path = folder / "config.json"
    config = await _config_in(top, path, deadline_s)
    if config.get("hooks"):
        raise OrderError(f"{path}: hooks: not allowed: they run on the machine, outside of the container")
    try:
        name = str(config["root"]["path"])
        root = await in_thread(lambda: _root_in(top, name, path), "runc", f"open root of {folder}", deadline_s)
        stack.callback(os.close, root)
        mounts = _mounts_of(config.get("mounts") or (), path)
        process = process_of(config["process"])
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise OrderError(f"{path}: malformed: {error!r}") from error
    is_others = any(_is_others(os.fstat(folder_descriptor)) for folder_descriptor in (top, root))
    binds = await hold_mounts(mounts, folders, stack, deadline_s)
    return Bundle(process, root, binds, config.get("hostname"), is_others)


async def hold_mounts(
    mounts: Sequence[Mount], folders: HostFolders, stack: ExitStack, deadline_s: float
) -> tuple[Bind, ...]:
    """Return mounts with descriptors of their sources, which `stack` closes; raise OrderError for a refused one."""
    binds = []
    for mount in mounts:
        opening = partial(folders.open_mount, mount)
        descriptor = await in_thread(opening, "runc", f"open {mount.source}", deadline_s)
        stack.callback(os.close, descriptor)
        binds.append(Bind(descriptor, mount.target, mount.is_writable))
    return tuple(binds)


async def _config_in(top: int, path: Path, deadline_s: float) -> dict[str, Any]:
    request = {"do": "config", "folder": top, "name": path.name, "most": _MOST_BYTES + 1}
    try:
        content = await ask(f"read {path}", deadline_s, request, descriptors=(top,))
        config = json.loads(content) if len(content) <= _MOST_BYTES else None
    except ReadRefusedError as error:
        if str(error) == "does not exist":
            raise OrderError(f"bundle {path.parent}: has no config.json") from None
        raise OrderError(f"{path}: cannot be read: it {error}") from None
    except (ValueError, RecursionError) as error:
        raise OrderError(f"{path}: cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise OrderError(f"{path}: is not a JSON object of at most {_MOST_BYTES} bytes")
    return config


def _is_others(status: os.stat_result) -> bool:
    return status.st_uid != 0 or bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _root_in(top: int, name: str, path: Path) -> int:
    """Return a descriptor of a bundle's root folder."""
    try:
        root = open_at(top, name, kind=FOLDER)
    except RefusedError as error:
        raise OrderError(f"{path}: root.path: {name} is not a folder inside the bundle: it {error}") from None
    if os.path.samestat(os.fstat(root), os.fstat(top)):
        os.close(root)
        raise OrderError(f"{path}: root.path: {name} is not a folder inside the bundle: it is the bundle")
    return root


def process_of(process: Mapping[str, Any]) -> Process:
    """Return the process of a config.json; raise KeyError, TypeError or ValueError if invalid."""
    user = process.get("user") or {}
    return Process(
        command=_strings(process["args"]),
        environment=_strings(process.get("env") or ()),
        working_folder=str(process.get("cwd") or "/"),
        uid=int(user.get("uid", 0)),
        gid=int(user.get("gid", 0)),
        groups=tuple(int(group) for group in user.get("additionalGids") or ()),
    )


def config_of(
    order: ContainerOrder,
    process: Process,
    mounts: Sequence[Mount],
    *,
    cgroup: str,
    seccomp: Mapping[str, Any] | None,
    hostname: str | None = None,
) -> dict[str, Any]:
    """Return the config.json of a container whose root folder is the sibling `rootfs`; raise OrderError for devices."""
    files = device_files(order.devices)
    if cdi := [name for name in order.devices if is_cdi(name)]:
        raise OrderError(
            f"container {order.name}: device {cdi[0]}: the runc runtime takes paths; only podman takes CDI names"
        )
    config = {
        "ociVersion": "1.0.2",
        "hostname": order.hostname or hostname or order.name[:63],
        "root": {"path": "rootfs", "readonly": False},
        "process": _process(order, process),
        "mounts": [*_MOUNTS, *(_bind(mount) for mount in mounts)],
        "linux": {
            "namespaces": _namespaces(order.network_namespace),
            "cgroupsPath": cgroup,
            "resources": resources_of(order)
            | {"devices": [{"allow": False, "access": "rwm"}, *({"allow": True, **_rule(file)} for file in files)]},
            "devices": [
                {"type": "c", "path": file.path, "major": file.major, "minor": file.minor}
                | {"fileMode": file.mode, "uid": file.uid, "gid": file.gid}
                for file in files
            ],
            "maskedPaths": _MASKED,
            "readonlyPaths": _READ_ONLY,
        },
    }
    if seccomp is not None:
        config["linux"]["seccomp"] = seccomp  # type: ignore[index]
    return config


def _process(order: ContainerOrder, process: Process) -> dict[str, Any]:
    command = order.command or process.command
    if not command:
        raise OrderError(f"container {order.name}: neither it nor its image has a command")
    variables = dict(entry.partition("=")[::2] for entry in (_PATH, *process.environment))
    variables |= {"HOSTNAME": order.hostname or order.name[:63], **order.environment}
    return {
        "terminal": False,
        "user": {"uid": process.uid, "gid": process.gid, "additionalGids": process.groups},
        "args": command,
        "env": [f"{name}={value}" for name, value in variables.items()],
        "cwd": order.working_folder or process.working_folder,
        "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), CAPABILITIES),
        "rlimits": [
            {"type": f"RLIMIT_{name.upper()}", "soft": limit, "hard": limit} for name, limit in rlimits_of(order)
        ],
        "noNewPrivileges": True,
    }


def _namespaces(network: Path | None) -> list[dict[str, str]]:
    joined = {} if network is None else {"path": str(network)}
    return [*({"type": kind} for kind in ("pid", "ipc", "uts", "mount", "cgroup")), {"type": "network", **joined}]


def _rule(file: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"type": "c", "major": file.major, "minor": file.minor, "access": "rwm"}


def _bind(mount: Mount) -> dict[str, Any]:
    options = ("rbind", "rw" if mount.is_writable else "ro", "nosuid", "nodev", "rprivate")
    return {"destination": str(mount.target), "type": "bind", "source": str(mount.source), "options": options}


def _mounts_of(mounts: Sequence[Mapping[str, Any]], path: Path) -> tuple[Mount, ...]:
    """Return a bundle's mounts of the machine's folders; kernel file systems are ours to mount."""
    accepted = []
    for number, mount in enumerate(mounts):
        options = set(mount.get("options") or ())
        if mount.get("type") == "bind" or options & _BIND:
            wanted = Mount(Path(mount["source"]), Path(mount["destination"]), is_writable="ro" not in options)
            if not wanted.source.is_absolute():
                raise OrderError(f"{path}: mounts[{number}]: source {wanted.source} must begin with /")
            accepted.append(wanted)
        elif mount.get("type") not in _KERNEL_TYPES:
            raise OrderError(f"{path}: mounts[{number}]: mounts of type {mount.get('type')} are not allowed")
    return tuple(accepted)


def _strings(values: Sequence[Any]) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise TypeError("expected a list of strings")
    return tuple(values)
