"""The peer of a UNIX socket: one of our processes, or one of a job or container that has our user's number.

A job without root runs as its agent's user, and a container's root is the machine's unless a user namespace separates
them. The kernel tells them apart: by control group, and by their namespaces.

Sources: unix(7), SO_PEERCRED and SO_PEERPIDFD (Linux 6.5); namespaces(7); cgroups(7).
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

_CREDENTIALS: Final = struct.Struct("iII")
"""struct ucred: pid, uid, gid."""
_SO_PEERPIDFD: Final = 77
_GROUP: Final = "millrace"
"""Control groups below this name hold jobs of centres and pods of nodes, and nothing else of ours."""
_NAMESPACES: Final = {"user": "a user namespace", "pid": "a PID namespace"}


class HasOptions(Protocol):
    """A socket, or asyncio's view of one."""

    def getsockopt(self, level: int, optname: int, buflen: int, /) -> bytes:
        """Return an option."""
        ...


def refusal_of_peer(connection: HasOptions, others: Set[int] = frozenset()) -> str | None:
    """Return why a peer is not our own user; None for our user, root, or one of `others`, outside containers."""
    process, user, _ = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    if user not in {os.geteuid(), 0, *others}:
        return f"it is of user {user}"
    with _held(connection) as ended:
        problem = refusal_of_process(process, is_root=user == 0)
        # Otherwise its number might be another process's by now.
        return "its process has ended" if problem is None and ended() else problem


def refusal_of_process(process: int, *, is_root: bool, root: Path = Path("/proc")) -> str | None:
    """Return why a process with our user, or root, is not one of our own; None if it is."""
    if process == 0:
        return "its process is in a PID namespace that cannot be looked into"
    # Another user's daemon may not inspect root's processes, or sees none of them (hidepid, ProtectProc=).
    is_hidden = is_root and os.geteuid() != 0
    try:
        groups = (root / str(process) / "cgroup").read_text(encoding="utf-8", errors="replace")
        theirs = {} if is_hidden else {name: (root / str(process) / "ns" / name).readlink() for name in _NAMESPACES}
    except PermissionError:
        return None if is_hidden else "its namespaces cannot be seen"
    except OSError:
        return None if is_hidden else "its process has ended"
    for line in groups.splitlines():
        path = line.split(":", 2)[-1]
        if _GROUP in path.split("/")[:-1]:
            return f"its control group is {path}"
    for name, link in theirs.items():
        if link != (root / "self" / "ns" / name).readlink():
            return f"it is in {_NAMESPACES[name]} of its own"
    return None


@contextmanager
def _held(connection: HasOptions) -> Iterator[_Ended]:
    """Hold a pidfd of the peer, so that its number is not reused; older kernels cannot."""
    try:
        (descriptor,) = struct.unpack("i", connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4))
    except OSError:
        yield lambda: False
        return
    try:
        polling = select.poll()  # select() knows no descriptors beyond 1,023
        polling.register(descriptor, select.POLLIN)
        yield lambda: bool(polling.poll(0))
    finally:
        os.close(descriptor)


class _Ended(Protocol):
    def __call__(self) -> bool: ...
