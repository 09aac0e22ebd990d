"""Polled queues of a node's network devices, as its manager reports and changes them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from controller.apiserver.resources.base import Count, Line
from dataplane.config import Strict

MOST_QUEUES = 512
"""Maximum number of queues in a node's report."""

Device = Annotated[str, Meta(min_length=1, max_length=127)]
QueueNumber = Annotated[int, Meta(ge=0, le=65_535)]


class NicMode(StrEnum):
    """Behaviour of the thread that polls a queue while the queue is empty."""

    WAITING = "waiting"
    """Sleep until the device has something."""
    POLLING = "polling"
    """Poll without a pause."""
    HYBRID = "hybrid"
    """Poll for a while, then sleep."""


class PolledQueue(Strict, frozen=True, kw_only=True):
    """A queue that a process polls. Process, user, thread, core and CPU share are the kernel's, counters the process's.

    Frames and bytes are counted since the queue was opened, polls over all queues of the thread.
    """

    device: Device
    queue: QueueNumber
    kind: Line
    """Transport: packet_v2, packet_v3, xdp or dpdk."""
    network_namespace: Count | None = None
    """Inode of its network namespace if that is not the node's."""
    program: Line
    """The process's own name for itself."""
    process: Count
    user: Count
    is_confirmed: bool = False
    """The kernel shows that the process has such a queue of the device; false: it cannot be asked."""
    is_granted: bool = False
    """The manager has granted it."""
    job: Line = ""
    """Job that it was granted for."""
    thread: Count | None = None
    core: Count | None = None
    """The processor that ran the thread last."""
    mode: NicMode
    modes: Annotated[tuple[NicMode, ...], Meta(max_length=3)] = ()
    """Modes that may be set; none: it cannot be changed."""
    received: Count = 0
    received_bytes: Count = 0
    sent: Count = 0
    sent_bytes: Count = 0
    dropped: Count = 0
    """Frames that reached the device but not the process, and those that the device did not send."""
    polls: Count | None = None
    empty_polls: Count | None = None
    cpu_share: Annotated[float, Meta(ge=0)] | None = None
    """Share of a processor that the thread, or else its whole process, used since the report before."""

    @property
    def name(self) -> str:
        """The queue's name for people."""
        return f"{self.device}:{self.queue}"


class NicModeRequest(Strict, frozen=True):
    """Another mode for the thread that polls a queue, or for all threads on a device (`queue` null)."""

    device: Device
    queue: QueueNumber | None
    mode: NicMode
    process: Count | None = None
    """Needed if several processes poll the device."""

    @property
    def where(self) -> str:
        """The queue, or the device, for people."""
        return self.device if self.queue is None else f"{self.device}:{self.queue}"


class NicModeAnswer(Strict, frozen=True):
    """Modes in force afterwards: of the queues named, and of others whose mode the change has touched."""

    queues: Annotated[tuple[PolledQueue, ...], Meta(max_length=MOST_QUEUES)]


def polled_in_words(queues: Sequence[PolledQueue]) -> str:
    """Return a cell of a table: the number of queues, with their frames received, sent and dropped; empty for none."""
    if not queues:
        return ""
    received, sent = sum(queue.received for queue in queues), sum(queue.sent for queue in queues)
    return f"{len(queues)}: {received} received, {sent} sent, {sum(queue.dropped for queue in queues)} dropped"
