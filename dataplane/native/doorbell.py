"""Doorbells: an eventfd that is written once for all events until its owner has heard it.

A sender first publishes its data for the owner and then rings; the owner first hears or arms and then looks. Each has a
fence between its two steps, so that one of them sees the other. An owner that seldom sleeps keeps the bell silent in
between (`arm_bell`, `disarm_bell`): a ring then costs one check.
"""

from __future__ import annotations

from dataplane.clock import NS_PER_S
from dataplane.linux import POLLIN
from dataplane.native.arrays import Array
from dataplane.native.intrinsics import (
    array_at,
    as_u32,
    as_u64,
    exchange,
    fence,
    load_acquire,
    load_relaxed,
    stack_array,
)
from dataplane.native.kernels import external, kernel
from dataplane.native.scalars import i32, i64, u8, u32, u64
from dataplane.native.structs import Struct


class Bell(Struct):
    """An eventfd, and whether its owner wants it to be written."""

    fd: i32
    waiting: u32  # 1: the next ring writes
    rings: u64


@external
def read(fd: i32, data: Array[u64], nbytes: u64) -> i64:
    """Read an eventfd (read(2))."""
    raise NotImplementedError


@external
def write(fd: i32, data: Array[u64], nbytes: u64) -> i64:
    """Write an eventfd (write(2))."""
    raise NotImplementedError


@external
def ppoll(fds: Array[u64], count: u64, timeout: Array[i64], mask: Array[u8]) -> i32:
    """Wait for struct pollfd (ppoll(2))."""
    raise NotImplementedError


@kernel(inline=True)
def ring(bell: Bell) -> None:
    """Wake the owner if it waits and was not woken yet; an exchange, which is a fence."""
    if exchange(bell.waiting, 0) != 0:
        bell.rings += 1
        increment = stack_array(u64, 1)
        increment[0] = 1
        write(bell.fd, increment, 8)


@kernel(inline=True)
def ring_if_waiting(bell: Bell) -> None:
    """Like `ring`, for an owner that rarely waits; call a `fence` after publishing its data and before this."""
    if load_relaxed(bell.waiting) != 0:
        strike(bell)


@kernel(inline=False)
def strike(bell: Bell) -> None:
    """Ring, out of line for the caller."""
    ring(bell)


@kernel(inline=True)
def hear(bell: Bell) -> None:
    """Silence the bell; later events ring it again, and are visible to whoever looks from now on.

    The ringer may not have written yet: the owner then wakes up once more, without effect.
    """
    heard = stack_array(u64, 1)
    read(bell.fd, heard, 8)
    exchange(bell.waiting, 1)


@kernel
def arm_bell(bell: Bell) -> None:
    """Ask to be woken from now on; check for the awaited event after this, before sleeping."""
    if load_acquire(bell.waiting) == 0:
        hear(bell)
    fence()


@kernel
def disarm_bell(bell: Bell) -> None:
    """Stop asking to be woken; a last ring may still arrive and is heard by the next `arm_bell`."""
    exchange(bell.waiting, 0)


@kernel
def sleep_on(bell: Bell, timeout_ns: i64) -> bool:
    """Sleep until the armed bell rings, a signal arrives or the timeout (negative: none) has passed; True: it rang.

    On a closed bell, return at once.
    """
    if bell.fd < 0:
        return False
    polled = stack_array(u64, 1)
    polled[0] = as_u64(as_u32(bell.fd)) | (POLLIN << 32)
    timeout = stack_array(i64, 2)
    ready: i32 = 0
    if timeout_ns < 0:
        ready = ppoll(polled, 1, array_at(i64, 0), array_at(u8, 0))
    else:
        timeout[0] = timeout_ns // NS_PER_S
        timeout[1] = timeout_ns % NS_PER_S
        ready = ppoll(polled, 1, timeout, array_at(u8, 0))
    return ready > 0
