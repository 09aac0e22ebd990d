"""A container's root folder: an image's, shared and never written to, under a layer of the container's own (overlayfs).

Source: Documentation/filesystems/overlayfs.rst of Linux; mount(2).
"""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path
from typing import Final

from controller.nodes.runtimes.errors import ContainerError

_NODEV: Final = 4
_DETACH: Final = 2
_ESCAPED: Final = ("\\", ":", ",")
_PAGE_BYTES: Final = 4095
_libc = ctypes.CDLL(None, use_errno=True)


def mount_root(lower: Path, folder: Path) -> None:
    """Mount `lower` at folder/rootfs with a layer for what is written in `folder`; copy it where that is impossible.

    Raises ContainerError in one line, with the container's folder as it was, if neither can be.
    """
    root, upper, work = (folder / name for name in ("rootfs", "upper", "work"))
    try:
        for each in (root, upper, work):
            each.mkdir()
        # What is in the image is as it is, devices of the image are not.
        options = f"lowerdir={_escaped(lower)},upperdir={_escaped(upper)},workdir={_escaped(work)}"
        if len(options) > _PAGE_BYTES or _mount(root, options) != 0:
            root.rmdir()
            shutil.copytree(lower, root, symlinks=True, copy_function=_copy)
    except OSError as error:
        raise ContainerError(
            f"runc: root folder of {folder.name[:12]}: {(error.strerror or str(error)).lower()}"
        ) from error


def unmount_root(folder: Path) -> None:
    """Unmount folder/rootfs; one that is not mounted is fine."""
    _libc.umount2(os.fsencode(folder / "rootfs"), _DETACH)


def _mount(target: Path, options: str) -> int:
    result: int = _libc.mount(b"overlay", os.fsencode(target), b"overlay", _NODEV, os.fsencode(options))
    return result


def _escaped(path: Path) -> str:
    text = str(path)
    for character in _ESCAPED:
        text = text.replace(character, f"\\{character}")
    return text


def _copy(source: str, target: str) -> str:
    """Copy a file with its owner."""
    shutil.copy2(source, target, follow_symlinks=False)
    found = os.lstat(source)
    os.chown(target, found.st_uid, found.st_gid, follow_symlinks=False)
    # Changing the owner takes the bits of set-user-id away.
    if not Path(target).is_symlink():
        Path(target).chmod(found.st_mode & 0o7777)
    return target
