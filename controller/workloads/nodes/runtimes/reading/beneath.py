"""Opening what users name, below folders that the node's settings allow: no link is followed on the way.

A path is checked and opened in one step, by the kernel (openat2(2), RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS), and from
then on known by its descriptor: whoever may write there can put a link in its place at any time. Only the standard
library is used, as `__main__` loads nothing else.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Sequence
from pathlib import PurePosixPath

_OPENAT2 = 437
"""The same number on all architectures."""
_NO_MAGIC_LINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_KERNEL_MADE = frozenset(
    {
        *(0x9FA0, 0x62656572, 0x64626720, 0x74726163, 0x0027E0EB, 0x63677270),  # proc, sysfs, debugfs, tracefs, cgroups
        *(
            0x73636673,
            0xF97CFF8C,
            0xCAFE4A11,
            0x6165676C,
            0xDE5E81E4,
            0x62656570,
        ),  # security, selinux, bpf, pstore, ...
        *(0x1CD1, 0x42494E4D, 0x6E736673, 0x19800202, 0x65735543),  # devpts, binfmt_misc, nsfs, mqueue, fusectl
    }
)
"""File systems whose files are the kernel's words, by type (statfs(2)): reading one may wait for ever, or act."""
FILE, FOLDER, ANY = "file", "folder", "any"
_libc = ctypes.CDLL(None, use_errno=True)


class RefusedError(Exception):
    """A path is not to be opened: one phrase that says why, without the path."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_below(folders: Sequence[str], path: str, setting: str, *, kind: str = FILE) -> int:
    """Return a descriptor (O_PATH) of a path in one of the folders; raise RefusedError.

    It reads nothing and waits for nothing, whatever is there. `setting` names the folders. The folders themselves are
    the settings' word: links in their own paths are followed.
    """
    wanted = PurePosixPath(path)
    if "\0" in path:
        raise RefusedError("does not exist")
    if wanted.is_absolute() and ".." not in wanted.parts:
        for folder in folders:
            for name in dict.fromkeys((os.path.normpath(folder), os.path.realpath(folder))):
                if wanted.is_relative_to(name):
                    return _open_in(folder, str(wanted.relative_to(name)), kind)
    raise RefusedError(f"lies in none of the node's {setting}")


def _open_in(folder: str, path: str, kind: str) -> int:
    try:
        top = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise RefusedError(_reason(error)) from None
    try:
        return open_at(top, path, kind=kind)
    finally:
        os.close(top)


def open_at(folder: int, path: str, *, kind: str = FILE) -> int:
    """Return a descriptor (O_PATH) of what lies below a folder's descriptor; raise RefusedError.

    A file has to be a regular one, and a folder or file not on a file system that is the kernel's own words.
    """
    how = _OpenHow(os.O_PATH | os.O_CLOEXEC, 0, _NO_MAGIC_LINKS | _NO_SYMLINKS | _BENEATH)
    try:
        name = os.fsencode(path or ".")
        found: int = _libc.syscall(_OPENAT2, folder, name, ctypes.byref(how), ctypes.sizeof(how))
    except ValueError:
        raise RefusedError("does not exist") from None
    if found < 0:
        number = ctypes.get_errno()
        raise RefusedError(_reason(OSError(number, os.strerror(number))))
    try:
        _check(found, kind)
    except BaseException:
        os.close(found)
        raise
    return found


def reopen(descriptor: int) -> int:
    """Return a descriptor to read from, of a file that `open_at` has checked; raise OSError."""
    # The same file, whatever its path is by now.
    return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _check(descriptor: int, kind: str) -> None:
    mode = os.fstat(descriptor).st_mode
    if kind == ANY:
        return
    if not (stat.S_ISDIR(mode) if kind == FOLDER else stat.S_ISREG(mode)):
        raise RefusedError("is no folder" if kind == FOLDER else "is no regular file")
    if _type_of(descriptor) in _KERNEL_MADE:
        raise RefusedError("lies in a file system of the kernel's")


def _type_of(descriptor: int) -> int:
    room = ctypes.create_string_buffer(512)
    if _libc.fstatfs(descriptor, room) != 0:
        number = ctypes.get_errno()
        raise RefusedError(_reason(OSError(number, os.strerror(number))))
    # f_type comes first, a long: its lower half is the number that statfs(2) lists.
    return int.from_bytes(room.raw[: ctypes.sizeof(ctypes.c_long)], "little") & 0xFFFFFFFF


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return "does not exist"
        case errno.ELOOP:
            return "has a link on its way"
        case errno.EXDEV:
            return "leads out of its folder"
        case errno.ENOSYS:
            return "cannot be opened safely: this kernel has no openat2 (Linux 5.6)"
        case _:
            return (error.strerror or str(error)).lower()
