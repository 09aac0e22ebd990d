"""Named network namespaces, compatible with `ip netns`; code runs in one on a thread that has entered it.

A single thread may enter a namespace (setns(2)), and what it opens or starts belongs there; the rest of the process
stays where it was. Nothing is forked, so this is safe alongside gRPC's threads.
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
    """Create a namespace; raise FabricError without root, or if the name exists."""

    def make() -> None:
        if _libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        netns.attach(name, threading.get_native_id())

    try:
        on_a_thread(make, "in-namespace")
    except OSError as error:
        raise FabricError(f"network namespace {name} cannot be created: {error.strerror}") from error


def require_free(names: Iterable[str]) -> None:
    """Raise FabricError if any of these names is taken."""
    taken = next((name for name in names if (RUN_NETNS / name).exists()), None)
    if taken is not None:
        raise FabricError(f"network namespace {taken} already exists")


def remove(name: str) -> None:
    """Remove a namespace's name; it and its devices vanish with the last process in it. A missing one is fine."""
    try:
        netns.remove(name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FabricError(f"network namespace {name} cannot be removed: {error.strerror}") from error


def call(name: str, function: Callable[[], T]) -> T:
    """Call `function` on a thread inside the namespace and return its result; exceptions propagate."""

    def enter_and_call() -> T:
        _enter(name)
        return function()

    return on_a_thread(enter_and_call, "in-namespace")


def become(name: str, argv: Sequence[str]) -> NoReturn:
    """Replace this process by a command inside the namespace, keeping terminal and PID; raise FabricError."""
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
    """Start a process inside the namespace, in its own session so that a terminal's ^C reaches only the owner."""

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
    """Move this thread into the namespace permanently; raise FabricError."""
    with open_namespace(name) as descriptor:
        if _libc.setns(descriptor.fileno(), _CLONE_NEWNET) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise FabricError(f"network namespace {name} cannot be entered: {reason}")


def open_namespace(name: str) -> IO[bytes]:
    """Open a namespace by name, or by a path such as /proc/1/ns/net; raise FabricError."""
    try:
        return (RUN_NETNS / name).open("rb")
    except OSError as error:
        raise FabricError(f"network namespace {name}: {error.strerror}") from error
