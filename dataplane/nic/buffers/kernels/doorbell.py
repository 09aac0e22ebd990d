"""Bells: an eventfd that is written only while its owner sleeps or is about to.

The owner arms the bell, then looks once more for what it waits for, then sleeps. Who has something for it shows that
first and rings afterwards. Both have a fence between their two steps, so that one of them sees the other.
"""

from __future__ import annotations

from dataplane.native import (
    array_at,
    as_u32,
    as_u64,
    exchange,
    fence,
    i32,
    i64,
    kernel,
    load_acquire,
    load_relaxed,
    stack_array,
    store_release,
    u8,
    u64,
)
from dataplane.nic.layouts import POLLIN
from dataplane.nic.ports.kernels.system import ppoll, read, write
from dataplane.nic.structures import Bell


@kernel(inline=True)
def ring_bell(bell: Bell) -> None:
    """Wake the owner if it sleeps; call a `fence` after showing what it waits for, and before this."""
    if load_relaxed(bell.waiting) != 0:
        strike(bell)


@kernel(inline=False)
def strike(bell: Bell) -> None:
    """Write the eventfd, unless another thread does."""
    if exchange(bell.waiting, 0) != 0:
        bell.rings += 1
        one = stack_array(u64, 1)
        one[0] = 1
        write(bell.fd, one, 8)


@kernel
def arm_bell(bell: Bell) -> None:
    """Want to be woken from now on; look for what is awaited after this, before sleeping."""
    if load_acquire(bell.waiting) == 0:
        heard = stack_array(u64, 1)
        read(bell.fd, heard, 8)
        store_release(bell.waiting, 1)
    fence()


@kernel
def disarm_bell(bell: Bell) -> None:
    """Not want to be woken any more; a last ring may still come and is heard by the next `arm_bell`."""
    exchange(bell.waiting, 0)


@kernel
def sleep_on(bell: Bell, timeout_ns: i64) -> bool:
    """Sleep until the armed bell rings, a signal comes or the time (negative: none) has passed; True: it rang.

    Nobody sleeps on a bell that is closed by now.
    """
    if bell.fd < 0:
        return False
    polled = stack_array(u64, 1)
    polled[0] = as_u64(as_u32(bell.fd)) | (POLLIN << 32)
    timeout = stack_array(i64, 2)
    found: i32 = 0
    if timeout_ns < 0:
        found = ppoll(polled, 1, array_at(i64, 0), array_at(u8, 0))
    else:
        timeout[0] = timeout_ns // 1_000_000_000
        timeout[1] = timeout_ns % 1_000_000_000
        found = ppoll(polled, 1, timeout, array_at(u8, 0))
    return found > 0
