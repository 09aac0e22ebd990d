"""Containers with processes killed by the kernel for lack of memory.

Podman reports that only if conmon was quick enough, and its control group, with the counter, disappears with the
container. So each group is watched from the container's start, or from when it is first seen, and its counter read as
it changes.
Sources: cgroup-v1/memory.rst of Linux, 9 and 10 (oom notification by eventfd); cgroup-v2.rst (memory.events, inotify).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller.workloads.nodes.runtimes.inotify import MODIFIED, Inotify
from dataplane.cgroups import Group, oom_kills_in
from dataplane.closing import Closing

_EVENT_BYTES: Final = 65_536
_END_TOLD_S: Final = 5.0
"""Time within which the kernel reports a group's end, however busy the machine is."""
_BOTH_TOLD_S: Final = 0.2
"""Time between the first and the second of two events."""


class MemoryWatch(Closing):
    """Watches the control groups of running containers, by their ids; needs the running event loop."""

    def __init__(self) -> None:
        self._watches: dict[str, _Watch] = {}
        self._killed: set[str] = set()

    def add(self, container: str, group: Group) -> None:
        """Watch a container's group; one that is watched already, or is gone, is fine."""
        if container in self._watches:
            return
        # A group that cannot be watched has gone with its container.
        with suppress(OSError):
            self._watches[container] = _Watch(group, lambda: self._killed.add(container))

    def forget(self, container: str) -> None:
        """Forget a container that is restarted, as it gets another group."""
        self._killed.discard(container)
        if (watch := self._watches.pop(container, None)) is not None:
            watch.close()

    def has_killed(self, container: str) -> bool:
        """Return whether a process of the container was seen to be killed for lack of memory."""
        return container in self._killed

    async def settle(self, container: str) -> None:
        """Settle the result for an ended container; stop watching it."""
        if (watch := self._watches.get(container)) is not None:
            await watch.settle()
            if self._watches.get(container) is watch:
                self._watches.pop(container).close()

    def keep(self, containers: Iterable[str]) -> None:
        """Forget all other containers."""
        kept = set(containers)
        self._killed &= kept
        for gone in self._watches.keys() - kept:
            self._watches.pop(gone).close()

    def close(self) -> None:
        """Stop watching."""
        self.keep(())


class _Watch(Closing):
    """Descriptor through which the kernel reports on one group."""

    def __init__(self, group: Group, killed: Callable[[], None]) -> None:
        self._group, self._killed = group, killed
        folder = group.folders.get("memory")
        if folder is None:
            raise FileNotFoundError
        self._inotify: Inotify | None = None
        self._events = 0
        """Events counted by an eventfd: each lack of memory, and the end of the group."""
        self._told = asyncio.Event()
        if "memory" in group.unified:
            self._inotify = Inotify()
            self._inotify.watch(folder / "memory.events", MODIFIED)
            self._descriptor = self._inotify.fileno()
        else:
            self._descriptor = _eventfd_of(folder)
        asyncio.get_running_loop().add_reader(self._descriptor, self._changed)
        self.look()

    def look(self) -> bool:
        """Read the counter now; return whether it still exists."""
        kills = oom_kills_in(self._group)
        # A group may go with its last process before its counter is read. Its end is one event, so a second one was a
        # lack of memory.
        if kills or (kills is None and self._events > 1):
            self._killed()
        return kills is not None

    async def settle(self) -> None:
        """Read the counter once more; if it has gone, wait for the kernel's events."""
        if self.look() or self._inotify is not None:
            return
        for wait_s in (_END_TOLD_S, _BOTH_TOLD_S):
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._told.wait()
            if self._events > 1:
                return
            self._told.clear()

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            asyncio.get_running_loop().remove_reader(descriptor)
            if self._inotify is not None:
                self._inotify.close()
            else:
                os.close(descriptor)

    def _changed(self) -> None:
        if self._inotify is not None:
            os.read(self._descriptor, _EVENT_BYTES)
        else:
            self._events += os.eventfd_read(self._descriptor)
            self._told.set()
        self.look()


def _eventfd_of(folder: Path) -> int:
    """Return an eventfd for version 1 that counts each lack of memory in a group, and the group's end."""
    descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        control = os.open(folder / "memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        try:
            (folder / "cgroup.event_control").write_text(f"{descriptor} {control}")
        finally:
            os.close(control)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
