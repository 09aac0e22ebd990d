"""Named network namespaces, as `ip netns` knows them; what runs in one does so on a thread that has entered it.

A thread may enter a namespace of its own (setns(2)), and what it opens or starts is born there; the rest of the
process stays where it was. Nothing is forked, so this is safe beside gRPC's threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn, TypeVar

from pyroute2 import netns

from dataplane.errors import FabricError
from dataplane.nic.run_off_loop import on_a_thread

T = TypeVar("T")
Stream = int | IO[bytes] | None

RUN_NETNS = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def create(name: str) -> None:
    """Make a namespace; raise FabricError without root, or if one of that name exists."""

    def make() -> None:
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        netns.attach(name, threading.get_native_id())

    try:
        on_a_thread(make, "in-namespace")
    except OSError as error:
        raise FabricError(f"network namespace {name} cannot be made: {error.strerror}") from error


def require_free(names: Iterable[str]) -> None:
    """Raise FabricError if there is a namespace of one of these names."""
    taken = next((name for name in names if (RUN_NETNS / name).exists()), None)
    if taken is not None:
        raise FabricError(f"network namespace {taken} is there already")


def remove(name: str) -> None:
    """Remove a namespace's name; it vanishes, and its devices, with the last process in it. Absent ones are fine."""
    try:
        netns.remove(name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FabricError(f"network namespace {name} cannot be removed: {error.strerror}") from error


def call(name: str, function: Callable[[], T]) -> T:
    """Return what `function` returns on a thread inside the namespace; its exceptions come through."""

    def enter_and_call() -> T:
        _enter(name)
        return function()

    return on_a_thread(enter_and_call, "in-namespace")


def become(name: str, argv: Sequence[str]) -> NoReturn:
    """Go on as a command inside the namespace, with this terminal and this process's number; raise FabricError."""
    _enter(name)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, which commands do not expect
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], list(argv))  # noqa: S606 - the caller's own command, no shell
    except OSError as error:
        raise FabricError(f"{argv[0]} cannot be started in {name}: {error.strerror}") from error


def start(
    name: str,
    argv: Sequence[str],
    *,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = None,
    stderr: Stream = None,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a process inside the namespace, in a session of its own so that a terminal's ^C reaches only the owner."""

    def spawn() -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - the caller's own command, no shell
            list(argv),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=None if env is None else dict(env),
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )

    try:
        return call(name, spawn)
    except OSError as error:
        raise FabricError(f"{argv[0]} cannot be started in {name}: {error.strerror}") from error


def _enter(name: str) -> None:
    """Have this thread be in the namespace from now on; raise FabricError."""
    with open_namespace(name) as descriptor:
        if _libc.setns(descriptor.fileno(), _CLONE_NEWNET) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise FabricError(f"network namespace {name} cannot be entered: {reason}")


def open_namespace(name: str) -> IO[bytes]:
    """Return the namespace of a name, or of a path such as /proc/1/ns/net, as an open file; raise FabricError."""
    try:
        return (RUN_NETNS / name).open("rb")
    except OSError as error:
        raise FabricError(f"network namespace {name}: {error.strerror}") from error
