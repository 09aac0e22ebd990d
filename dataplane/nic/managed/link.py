"""A process's connection to its node's manager: which socket, who listens there, and messages with timeouts."""

from __future__ import annotations

import os
import select
import socket
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dataplane.errors import MillraceError
from dataplane.local.deadline import LocalDeadline
from dataplane.nic.managed.messages import (
    MOST_BYTES,
    FromManager,
    FromProcess,
    Hello,
    Welcome,
    decode_from_manager,
    encode,
)
from dataplane.rpc.own_folder import foreign_socket, own_folders
from dataplane.rpc.peers import refusal_of_peer

SOCKET_VARIABLE: Final = "MILLRACE_NIC_SOCKET"
"""Names the manager's socket; empty: there is none."""
_MOST_MANAGERS: Final = 64
_ANSWER_S: Final = 5.0
_SEND_S: Final = 2.0


class LinkError(MillraceError):
    """No manager, or none that takes this process; the text says why."""


def manager_sockets(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the sockets at which a manager of this machine may listen: the named one, else those of this user."""
    if (named := environ.get(SOCKET_VARIABLE)) is not None:
        return (Path(named),) if named else ()
    paths: list[Path] = []
    for folder in own_folders(environ):
        with suppress(OSError):
            paths += sorted(folder.glob("nic-*.sock"))
    return tuple(paths[:_MOST_MANAGERS])


class ManagerLink:
    """An accepted connection; for one thread, except that `wake` may be called by any."""

    def __init__(self, connection: socket.socket, path: Path, welcome: Welcome) -> None:
        self._connection, self.path, self.welcome = connection, path, welcome

    def send(self, message: FromProcess) -> None:
        """Send a message; raise OSError if the manager has ended or takes nothing."""
        self._connection.send(encode(message), socket.MSG_NOSIGNAL)

    def receive(self, timeout_s: float) -> FromManager | None:
        """Return the next message, None if none comes in time; raise LinkError for the end, ValueError for others."""
        return _receive(self._connection, timeout_s)

    def wake(self) -> None:
        """Make `receive` end."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection, and with it everything that is granted over it."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(program: str, paths: Sequence[Path] | None = None, *, own_only: bool = False) -> ManagerLink:
    """Return a connection to the manager of this network namespace, else to the first one that takes this process.

    `own_only`: no other will do. Raises LinkError with the reasons of all.
    """
    other: ManagerLink | None = None
    problems: list[str] = []
    for path in manager_sockets() if paths is None else paths:
        try:
            link = _meet(program, path)
        except LinkError as error:
            problems.append(f"{path}: {error}")
            continue
        if link.welcome.is_own:
            if other is not None:
                other.close()
            return link
        if own_only:
            problems.append(f"{path}: node {link.welcome.node} has another network namespace")
        if own_only or other is not None:
            link.close()
        else:
            other = link
    if other is None:
        raise LinkError("; ".join(problems) or "no node's manager runs here")
    return other


def _meet(program: str, path: Path) -> ManagerLink:
    """Connect and introduce the process; raise LinkError."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise LinkError("it is not a socket")
        if (problem := foreign_socket(path)) is not None:
            raise LinkError(problem)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    except FileNotFoundError:
        raise LinkError("no manager runs") from None
    except OSError as error:
        raise LinkError(str(error.strerror or error)) from None
    try:
        connection.settimeout(_SEND_S)
        connection.connect(str(path))
        if (stranger := refusal_of_peer(connection)) is not None:
            raise LinkError(f"whoever listens is not trusted: {stranger}")
        connection.send(encode(Hello(program=program)), socket.MSG_NOSIGNAL)
        welcome = _answer(connection)
    except BaseException as error:
        connection.close()
        if isinstance(error, OSError):
            raise LinkError(str(error.strerror or error)) from None
        raise
    if welcome.refusal:
        connection.close()
        raise LinkError(welcome.refusal)
    return ManagerLink(connection, path, welcome)


def _answer(connection: socket.socket) -> Welcome:
    deadline = LocalDeadline(_ANSWER_S, "the node's manager")
    while not deadline.has_passed():
        try:
            message = _receive(connection, deadline.step_s)
        except ValueError as error:
            raise LinkError(f"it sends no valid answer: {error}") from None
        if isinstance(message, Welcome):
            return message
        if message is not None:
            raise LinkError("it does not begin with a welcome")
    raise LinkError("it does not answer")


def _receive(connection: socket.socket, timeout_s: float) -> FromManager | None:
    polling = select.poll()  # select() knows no descriptors beyond 1,023
    polling.register(connection, select.POLLIN)
    if not polling.poll(max(timeout_s, 0.0) * 1000):
        return None
    if not (packet := connection.recv(MOST_BYTES + 1)):
        raise LinkError("the manager has ended")
    return decode_from_manager(packet)
