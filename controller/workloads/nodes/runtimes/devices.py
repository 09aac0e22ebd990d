"""Devices of the machine that a container may use: their files, and the variables that narrow a program to them.

Enforced: a container reaches the files that it is given, by path and number, and no others (control group "devices", or
its BPF program). The vendors' libraries read the variables; a program may ignore them. What enforces shares is in
controller/workloads/nodes/deciding/shares.py.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.workloads.nodes.runtimes.errors import OrderError
from dataplane.topology.device_kinds import DEVICE_TRAITS
from dataplane.topology.values import DeviceKind

_MEMORY_DEVICES: Final = frozenset({(1, 1), (1, 2), (1, 4), (1, 11)})
"""/dev/mem, /dev/kmem, /dev/port and /dev/kmsg: the machine itself."""
HOOK_VARIABLES: Final = tuple(name for traits in DEVICE_TRAITS.values() for name in traits.hook_variables)
"""Variables through which hooks of container runtimes put devices into a container; `void`: none."""
_OF_NVIDIA: Final = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_SHARE_VARIABLE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""Share to which CUDA's multi-process service limits clients, if that service runs on the machine."""
_WHOLE: Final = 1000


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A character device; `major` and `minor` are its number."""

    path: str
    major: int
    minor: int
    mode: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """A device held by a pod: `index` counts the node's devices of its kind from 0, as its vendor's library does.

    `handle` is NVIDIA's name of one that no number names, as of the parts of a divided device (MIG).
    """

    kind: DeviceKind
    index: int
    share_milli: int = _WHOLE
    handle: str = ""


def is_cdi(name: str) -> bool:
    """Return whether a device's name is one of the Container Device Interface: vendor.com/class=name."""
    return not name.startswith("/") and "=" in name


def device_files(names: Iterable[str]) -> tuple[DeviceFile, ...]:
    """Return the files of devices: for a folder such as /dev/dri all files in it; CDI names are left out.

    Raises OrderError for anything but a character device, such as a disk, which would expose all its content, and for
    the machine's memory.
    """
    files = dict[str, DeviceFile]()
    for name in names:
        if not is_cdi(name):
            for path in _paths(name):
                files[str(path)] = _file(path)
    return tuple(files.values())


def device_environment(uses: Sequence[DeviceUse]) -> dict[str, str]:
    """Return the variables that narrow a program to its devices; kinds without any are narrowed to none."""
    variables = dict[str, str]()
    for kind, traits in DEVICE_TRAITS.items():
        numbers = ",".join(str(use.index) for use in uses if use.kind is kind)
        variables.update(dict.fromkeys(traits.variables, numbers))
    if any(use.handle for use in uses):
        handles = ",".join(use.handle or str(use.index) for use in uses if use.kind is DeviceKind.GPU)
        variables |= dict.fromkeys(_OF_NVIDIA, handles)
    variables |= {name: "void" for name in HOOK_VARIABLES if not variables[name]}
    shares = [use.share_milli for use in uses if use.kind is DeviceKind.GPU]
    if len(shares) == 1 and shares[0] < _WHOLE:
        variables[_SHARE_VARIABLE] = f"{shares[0] / 10:g}"
    return variables


def _paths(name: str) -> list[Path]:
    path = Path(os.path.normpath(name))
    if path.parts[:2] != ("/", "dev") or len(path.parts) < 3:
        raise OrderError(f"device {name}: is neither a path below /dev nor a CDI name")
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.rglob("*") if each.is_char_device())


def _file(path: Path) -> DeviceFile:
    try:
        status = path.stat()
    except OSError as error:
        raise OrderError(f"device {path}: {(error.strerror or str(error)).lower()}") from error
    if not stat.S_ISCHR(status.st_mode):
        raise OrderError(f"device {path}: is not a character device")
    major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
    if (major, minor) in _MEMORY_DEVICES:
        raise OrderError(f"device {path}: is the machine's memory, or its log")
    return DeviceFile(str(path), major, minor, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
