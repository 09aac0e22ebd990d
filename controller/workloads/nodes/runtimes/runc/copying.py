"""Copy of a folder, with owners, modes and attributes: by descriptors, so that no link leads out of the source."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PIECE_BYTES: Final = 8 << 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


@dataclass(slots=True)
class Room:
    """Remaining bytes and files of a copy."""

    nbytes: int
    files: int

    def take(self, nbytes: int, files: int = 0) -> None:
        """Use some of it up; raise OSError if there is not enough left."""
        self.nbytes -= nbytes
        self.files -= files
        if self.nbytes < 0 or self.files < 0:
            raise OSError(errno.EFBIG, "is larger than an image may be")


def copy_tree(source: int, target: Path, room: Room) -> None:
    """Copy the content of a folder's descriptor into an existing folder; raise OSError.

    Devices, pipes and sockets are left out: a container has those that its order names.
    """
    reading = os.open(".", _FOLDER, dir_fd=source)
    try:
        writing = os.open(target, _FOLDER)
        try:
            _copy_folder(reading, writing, room)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_folder(source: int, target: int, room: Room) -> None:
    for name in os.listdir(source):
        room.take(0, 1)
        mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            _copy_link(name, source, target)
        elif stat.S_ISDIR(mode):
            os.mkdir(name, 0o700, dir_fd=target)
            _copy_opened(name, source, target, (_FOLDER, _FOLDER), room)
        elif stat.S_ISREG(mode):
            _copy_opened(name, source, target, (_FILE, _NEW), room)
    _copy_attributes(source, target)


def _copy_opened(name: str, source: int, target: int, flags: tuple[int, int], room: Room) -> None:
    reading = os.open(name, flags[0], dir_fd=source)
    try:
        writing = os.open(name, flags[1], 0o600, dir_fd=target)
        try:
            # It may have been replaced since it was checked.
            if flags[0] == _FOLDER:
                _copy_folder(reading, writing, room)
            elif stat.S_ISREG(os.fstat(reading).st_mode):
                while sent := os.sendfile(writing, reading, None, _PIECE_BYTES):
                    room.take(sent)
                _copy_attributes(reading, writing)
        finally:
            os.close(writing)
    finally:
        os.close(reading)


def _copy_link(name: str, source: int, target: int) -> None:
    status = os.stat(name, dir_fd=source, follow_symlinks=False)
    os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
    os.chown(name, status.st_uid, status.st_gid, dir_fd=target, follow_symlinks=False)


def _copy_attributes(source: int, target: int) -> None:
    status = os.fstat(source)
    os.fchown(target, status.st_uid, status.st_gid)
    # Changing the owner clears set-user-id bits.
    os.fchmod(target, stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    with suppress(OSError):  # not every file system has them
        for name in os.listxattr(source):
            os.setxattr(target, name, os.getxattr(source, name))
