"""Sleeps until a queue has frames: one ppoll(2) over the descriptors of all queues."""

from __future__ import annotations

from dataplane.clock import NS_PER_S
from dataplane.linux import POLLERR, POLLHUP, POLLIN, POLLNVAL, SO_ERROR, SOL_SOCKET
from dataplane.native import (
    Array,
    address,
    array_at,
    as_u32,
    as_u64,
    i32,
    i64,
    kernel,
    stack_array,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.doorbell import ppoll
from dataplane.nic.ports.kernels.dispatch import is_readable
from dataplane.nic.ports.kernels.memory import arm
from dataplane.nic.ports.kernels.system import getsockopt
from dataplane.nic.ports.queue import MemoryQueue, PortKind, PortQueue

MOST_QUEUES = 511
RETRY_NS = 100_000
"""Longest sleep while frames wait for a device that had no room, or a device cannot wake its reader."""
_POLL_IN = POLLIN << 32
_POLL_TROUBLE = (POLLERR | POLLHUP | POLLNVAL) << 48
_NOTHING = 0xFFFF_FFFF
"""A struct pollfd for ppoll: descriptor, events, revents from the low bits up; a negative descriptor is ignored."""


@kernel
def wait(queues: Array[u64], count: u32, event_fd: i32, timeout_ns: i64) -> u32:
    """Return how many of the queues (addresses; the first 511 count) and the eventfd (-1: none) are ready.

    Returns 0 once `timeout_ns` (negative: never) has passed, or after a signal.
    """
    polled = stack_array(u64, 512)
    watched: u32 = count if count <= MOST_QUEUES else MOST_QUEUES
    ready: u32 = 0
    limit_ns: i64 = timeout_ns
    i: u32 = 0
    while i < watched:
        queue = view(PortQueue, queues[i])
        if not prepare(queue):
            ready += 1
        polled[i] = _NOTHING
        if queue.fd >= 0 and queue.hung_up == 0:
            polled[i] = as_u64(as_u32(queue.fd)) | _POLL_IN
        if queue.tx_pending > 0 or cannot_wake(queue):
            limit_ns = RETRY_NS if limit_ns < 0 or limit_ns > RETRY_NS else limit_ns
        i += 1
    if ready > 0:
        return ready
    polled[watched] = _NOTHING
    if event_fd >= 0:
        polled[watched] = as_u64(as_u32(event_fd)) | _POLL_IN
    ready_count: i32 = sleep(polled, watched + 1, limit_ns)
    if ready_count <= 0:
        return 0
    note_trouble(queues, polled, watched)
    return as_u32(ready_count)


@kernel(inline=True)
def prepare(queue: PortQueue) -> bool:
    """Return whether the queue has nothing to read, and will wake its descriptor when it has."""
    if queue.kind == PortKind.MEMORY:
        return arm(view(MemoryQueue, address(queue)))
    return not is_readable(queue)


@kernel(inline=True)
def cannot_wake(queue: PortQueue) -> bool:
    """Return whether the queue must be polled: some DPDK drivers raise no interrupts."""
    return queue.fd < 0 and queue.kind == PortKind.DPDK


@kernel(inline=True)
def sleep(polled: Array[u64], count: u32, timeout_ns: i64) -> i32:
    """Poll until something is ready or the time has passed."""
    if timeout_ns < 0:
        return ppoll(polled, as_u64(count), array_at(i64, 0), array_at(u8, 0))
    timeout = stack_array(i64, 2)
    timeout[0] = timeout_ns // NS_PER_S
    timeout[1] = timeout_ns % NS_PER_S
    return ppoll(polled, as_u64(count), timeout, array_at(u8, 0))


@kernel
def note_trouble(queues: Array[u64], polled: Array[u64], count: u32) -> None:
    """Mark queues whose descriptor reports an error as down, and clear the error, so that it does not wake us again."""
    i: u32 = 0
    while i < count:
        if (polled[i] & _POLL_TROUBLE) != 0:
            queue = view(PortQueue, queues[i])
            queue.down = 1
            if not take_error(queue):
                queue.hung_up = 1
        i += 1


@kernel
def take_error(queue: PortQueue) -> bool:
    """Clear the error of a queue's descriptor, marking it down; return whether there was one."""
    value = stack_array(u32, 1)
    nbytes = stack_array(u32, 1)
    nbytes[0] = 4
    value[0] = 0
    if getsockopt(queue.fd, SOL_SOCKET, SO_ERROR, value, nbytes) != 0 or value[0] == 0:
        return False
    queue.down = 1
    return True
