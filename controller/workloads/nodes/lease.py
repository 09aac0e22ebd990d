"""The lease as a manager keeps it: renewed by each acknowledged report, written to a file for the guard.

The guard is a process that outlives the manager; the manager makes sure that there is one.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from controller.apiserver.agents.server_clock import boot_time_ns
from controller.workloads.nodes.deciding.values import Lease
from controller.workloads.nodes.errors import NodeError
from controller.workloads.nodes.guard import lease_file
from controller.workloads.nodes.state_folder import NodeFolder
from dataplane.clock import NS_PER_S
from dataplane.local.deadline import LocalDeadline

LOGGER: Final = logging.getLogger("millrace.node")
_GUARD: Final = Path(__file__).parent / "guard" / "__main__.py"
_GUARD_POLL_S: Final = 0.02
_GUARD_START_S: Final = 10.0


class LeaseKeeper:
    """The lease of one node. `folders` are the parent control groups of its containers."""

    def __init__(
        self, folder: NodeFolder, folders: tuple[str, ...], *, now_ns: Callable[[], int] = boot_time_ns
    ) -> None:
        self._folder, self._folders, self._now_ns = folder, folders, now_ns
        self._boot, self._has_ended = lease_file.boot_id(), False
        self.lease = self._left(Lease(0, NS_PER_S))

    def renew(self, begun_ns: int, lease_s: float) -> None:
        """Record the acknowledgement of a report that began then; raise OSError if that cannot be written."""
        if self._has_ended:
            return
        length_ns = round(lease_s * NS_PER_S)
        lease = Lease(begun_ns + length_ns, length_ns)
        lease_file.write(str(self._folder.lease), lease.kill_ns, self._boot, self._folders)
        self.lease = lease

    def is_over(self) -> bool:
        """Return whether nothing may run now."""
        return self.lease.is_over(self._now_ns())

    def has_killed(self) -> bool:
        """Return whether a guard has killed anything since `forget_killed`."""
        return self._killed.exists()

    def forget_killed(self) -> None:
        """Note that the guard's kills have been handled."""
        self._killed.unlink(missing_ok=True)

    @property
    def _killed(self) -> Path:
        return self._folder.lease.with_name(f"{self._folder.lease.name}.killed")

    def prepare(self) -> None:
        """Write the known lease for a guard that starts now; raise NodeError."""
        try:
            lease_file.write(str(self._folder.lease), self.lease.kill_ns, self._boot, self._folders)
        except OSError as error:
            raise NodeError(f"state: {self._folder.lease}: {error.strerror or error}") from None

    def end(self) -> None:
        """End the lease, so that the guard kills what is left, and ends; nothing renews it after that."""
        self._has_ended, self.lease = True, Lease(0, NS_PER_S)
        self._folder.lease.unlink(missing_ok=True)

    def _left(self, nothing: Lease) -> Lease:
        """Return the lease left by an earlier manager."""
        try:
            kill_ns, boot, _ = lease_file.read(str(self._folder.lease))
        except FileNotFoundError:
            return nothing
        except (OSError, lease_file.LeaseFileError) as error:
            LOGGER.warning("%s: %s", self._folder.lease, error)
            return nothing
        # Only its end matters now, not its length.
        return Lease(kill_ns, 0) if boot == self._boot else nothing

    async def watch_guard(self) -> None:
        """Keep a guard running until cancelled; raise NodeError if none can be started."""
        while True:
            process = await self._guard()
            await _ended(process)
            if not self._folder.lease.exists():
                return
            if not self.is_over():  # it may exit by itself once the lease is over
                LOGGER.warning("the guard (process %d) has ended, starting another", process)

    async def _guard(self) -> int:
        """Return the process of a guard that holds the lock; start one if there is none."""
        deadline, started = LocalDeadline(_GUARD_START_S, "the guard's start"), None
        while not deadline.has_passed():
            process = _holder(self._folder.guard_lock)
            if process is not None:
                return process
            if started is None or _has_ended(started):
                started = self._start_guard()
            await asyncio.sleep(_GUARD_POLL_S)
        message = _tail(self._folder.guard_log)
        raise NodeError(f"the guard has not started within {_GUARD_START_S:g} s{': ' if message else ''}{message}")

    def _start_guard(self) -> int:
        """Start a guard in its own session, so that it survives this process."""
        words = [sys.executable, "-I", "-S", str(_GUARD), str(self._folder.lease), str(self._folder.guard_lock)]
        log = str(self._folder.guard_log)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        return os.posix_spawn(sys.executable, words, {}, file_actions=actions, setsid=True)


def _holder(lock: Path) -> int | None:
    """Return the process that holds a lock, from the number in it; None if nobody does."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 16, 0).strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(descriptor)
    return None


def _has_ended(child: int) -> bool:
    """Return whether a child has ended, and reap it if so."""
    try:
        return os.waitpid(child, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return True


async def _ended(process: int) -> None:
    """Return once a process, which need not be a child, has ended."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    _has_ended(process)


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
