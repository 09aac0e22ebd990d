"""A container's root folder: an image's, shared and never written to, under the container's own layer (overlayfs).

Mounts are named by descriptors (/proc/self/fd/N): users with write access to the folders on the way could replace one
with a link. Source: Documentation/filesystems/overlayfs.rst of Linux; mount(2), open(2).
"""

from __future__ import annotations

import ctypes
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controller.workloads.nodes.runtimes.base import Mount
from controller.workloads.nodes.runtimes.bundle import Bind
from controller.workloads.nodes.runtimes.errors import ContainerError
from controller.workloads.nodes.runtimes.runc.copying import Room, copy_tree

_NODEV: Final = 4
_BIND: Final = 4096
_RECURSIVE: Final = 16384
_PRIVATE: Final = 1 << 18
_DETACH: Final = 2
_ESCAPED: Final = ("\\", ":", ",")
_PAGE_BYTES: Final = 4095
_MOUNTS_AT_MOST: Final = 4096
_libc = ctypes.CDLL(None, use_errno=True)


def mount_root(lower: int, folder: Path, room: Room, *, is_copied: bool = False) -> None:
    """Mount the folder of a descriptor at folder/rootfs under its own layer; copy it if that is impossible.

    With `is_copied` it is always copied: a mounted folder changes under the container when its owner changes it.

    Raises ContainerError in one line, with the container's folder as it was, if neither works.
    """
    root, upper, work = (folder / name for name in ("rootfs", "upper", "work"))
    try:
        for each in (root, upper, work):
            each.mkdir()
        # The image's content is used unchanged, except that its devices do not work.
        options = f"lowerdir=/proc/self/fd/{lower},upperdir={_escaped(upper)},workdir={_escaped(work)}"
        if is_copied or len(options) > _PAGE_BYTES or _mount("overlay", root, "overlay", _NODEV, options) != 0:
            copy_tree(lower, root, room)
    except OSError as error:
        raise ContainerError(
            f"runc: root folder of {folder.name[:12]}: {(error.strerror or str(error)).lower()}"
        ) from error


def mount_binds(binds: Sequence[Bind], folder: Path) -> tuple[Mount, ...]:
    """Mount folders and files of the machine below folder/mounts, where nobody else can swap them; return them there.

    runc takes paths, and a descriptor's mount would belong to another mount namespace than its own. `unmount_all`
    removes them.
    """
    mounts = []
    for index, bind in enumerate(binds):
        point = folder / "mounts" / str(index)
        try:
            wanted = os.fstat(bind.descriptor)
            point.parent.mkdir(exist_ok=True, mode=0o700)
            point.mkdir() if stat.S_ISDIR(wanted.st_mode) else point.touch()
            source = f"/proc/self/fd/{bind.descriptor}"
            if _mount(source, point, None, _BIND | _RECURSIVE) or _mount("none", point, None, _PRIVATE | _RECURSIVE):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            if not os.path.samestat(point.stat(), wanted):
                raise OSError(0, "another file is mounted than was checked")
        except OSError as error:
            raise ContainerError(f"runc: mount at {bind.target}: {(error.strerror or str(error)).lower()}") from error
        mounts.append(Mount(point, bind.target, bind.is_writable))
    return tuple(mounts)


def unmount_all(folder: Path) -> None:
    """Unmount everything mounted in a folder; raise ContainerError if something stays.

    Anything still mounted there is the machine's own: the folder must not be removed with it.
    """
    for _ in range(_MOUNTS_AT_MOST):
        points = _mounted_in(folder)
        if not points:
            return
        if _libc.umount2(os.fsencode(points[-1]), _DETACH) != 0:
            break
    raise ContainerError(f"runc: {points[-1]} stays mounted: {os.strerror(ctypes.get_errno()).lower()}")


def _mounted_in(folder: Path) -> list[str]:
    """Return mount points below a folder in order of creation (proc_pid_mountinfo(5))."""
    start, points = f"{folder}/", []
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        point = re.sub(rb"\\([0-7]{3})", lambda match: bytes((int(match[1], 8),)), line.split()[4])
        if os.fsdecode(point).startswith(start):
            points.append(os.fsdecode(point))
    return points


def _mount(source: str, target: Path, kind: str | None, flags: int, options: str = "") -> int:
    words = (os.fsencode(source), os.fsencode(target), None if kind is None else kind.encode())
    result: int = _libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options) if options else None)
    return result


def _escaped(path: Path) -> str:
    text = str(path)
    for character in _ESCAPED:
        text = text.replace(character, f"\\{character}")
    return text
