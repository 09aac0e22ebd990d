"""Ends of containers, from the kernel: watches each one's first process (pidfd_open(2)) while it runs.

Podman's own event stream is written by whichever podman process inspects the container next, which may take a while,
and a follower can miss events written just as it starts following the file.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator
from contextlib import contextmanager

from dataplane.closing import Closing


class EndWatch(Closing):
    """Watches the first processes of containers, by the containers' ids; needs the running event loop."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}
        self._listeners: set[asyncio.Queue[str]] = set()

    def has(self, container: str) -> bool:
        """Return whether a container is watched."""
        return container in self._descriptors

    def add(self, container: str, process: int) -> None:
        """Watch a running container; a process that is gone has ended now."""
        if container in self._descriptors:
            return
        try:
            descriptor = os.pidfd_open(process)
        except ProcessLookupError:
            self._tell(container)
            return
        self._descriptors[container] = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._ended, container)

    @contextmanager
    def listening(self) -> Generator[asyncio.Queue[str]]:
        """Yield a queue of the ids of ending containers; it is unbounded, as there are no more than containers."""
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)

    def close(self) -> None:
        """Stop watching."""
        for container in list(self._descriptors):
            self._forget(container)

    def _ended(self, container: str) -> None:
        self._forget(container)
        self._tell(container)

    def _tell(self, container: str) -> None:
        for queue in self._listeners:
            queue.put_nowait(container)

    def _forget(self, container: str) -> None:
        descriptor = self._descriptors.pop(container)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
