"""Ensures that only one process drives a holder of a pool: two would undo each other's reports and quotas.

A lock on a file in the folder of this user's own services, which the kernel releases whenever the process dies. It
separates processes of one user on one machine, and depends on the service's address in the settings.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from controller.balance.errors import LeverError
from dataplane.rpc.own_folder import own_folders, prepare

_UNIX: Final = "unix:"
_DIGITS: Final = 32


@contextmanager
def alone(pool: str, holder: str, address: str, folder: Path | None = None) -> Iterator[None]:
    """Hold the exclusive lock of a pool's holder at a service's address while the block lasts.

    Raise LeverError if another process holds it, or if that cannot be determined.
    """
    folder = own_folders()[0] if folder is None else folder
    lever = f"units of pool {pool}"
    if (why_not := prepare(folder)) is not None:
        raise LeverError(lever, why_not)
    file = folder / f"drive-{_digest(pool, holder, address)}.lock"
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LeverError(lever, f"{file}: {error.strerror}") from error
    try:
        _lock(descriptor, lever, holder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, lever: str, holder: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "another one"
        raise LeverError(lever, f"holder {holder} is driven here already (process {owner})") from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _digest(pool: str, holder: str, address: str) -> str:
    """Return a name for the lock; holders' names may be longer than a file's."""
    if address.startswith(_UNIX):
        address = f"{_UNIX}{Path(address.removeprefix(_UNIX)).resolve()}"
    return hashlib.sha256("\n".join((pool, holder, address)).encode()).hexdigest()[:_DIGITS]
