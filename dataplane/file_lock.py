"""Exclusive ownership of a file or a folder by one process: a lock next to it, which the kernel frees at any death.

The lock is `flock` of a file that holds its owner's process id, for information, and is removed when it is released;
one that a killed process left behind is free, and is taken over.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

_RIGHTS = 0o600
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class HeldError(Exception):
    """Another process, or another part of this one, has it; `pid` is its process id, None if unknown."""

    def __init__(self, pid: int | None) -> None:
        self.pid = pid
        super().__init__("another process has it" if pid is None else f"process {pid} has it")


class FileLock:
    """Held from construction until it is released, or this process ends; `path` is the lock's own file."""

    def __init__(self, path: str) -> None:
        """Take the lock; raise HeldError if it is held, OSError if no such file can be created."""
        self._path = Path(path)
        while True:
            self._descriptor = os.open(self._path, _FLAGS, _RIGHTS)
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_there():
                    break
            except BlockingIOError:
                pid = _pid_in(self._descriptor)
                os.close(self._descriptor)
                raise HeldError(pid) from None
            except BaseException:
                os.close(self._descriptor)
                raise
            os.close(self._descriptor)  # its owner removed it between the two calls
        with suppress(OSError):  # disk full: the lock is held, only without its owner's name
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock; idempotent."""
        if self._descriptor >= 0:
            with suppress(OSError):  # its folder is gone, and the lock with it
                self._path.unlink()
            os.close(self._descriptor)
            self._descriptor = -1

    def _is_there(self) -> bool:
        """Return whether the locked file is still the one with that name."""
        try:
            status = self._path.lstat()
        except FileNotFoundError:
            return False
        return os.path.samestat(status, os.fstat(self._descriptor))


def _pid_in(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None
