"""Locks shared by threads of native code; one of them also with Python.

A word (`lock`, `unlock`; 0 is free, 1 is held) is for a few instructions at a time. A `TicketLock` is fair and for up
to some milliseconds: it is granted in the order of requests, and waiters sleep. A holder with much to do checks
`has_waiters` and yields by releasing the lock and requesting it again: all threads that requested it meanwhile get it
first.
"""

from __future__ import annotations

from dataplane.native.arrays import Array
from dataplane.native.doorbell import ppoll
from dataplane.native.intrinsics import (
    array_at,
    atomic_add,
    exchange,
    load_acquire,
    load_relaxed,
    pause,
    stack_array,
    store_release,
)
from dataplane.native.kernels import external, kernel
from dataplane.native.scalars import i32, i64, u8, u64
from dataplane.native.structs import Struct

SPINS_BEFORE_YIELD = 256
SPINS_BEFORE_SLEEP = 64
SLEEP_NS = 20_000


@external
def sched_yield() -> i32:
    """Yield the processor to another thread (POSIX)."""
    raise NotImplementedError


@kernel(inline=True)
def try_lock(word: Array[u64]) -> bool:
    """Take the lock if it is free; return whether it was."""
    return exchange(word[0], 1) == 0


@kernel(inline=True)
def lock(word: Array[u64]) -> None:
    """Take the lock; for one in a field, pass `reference(struct.field)`."""
    if exchange(word[0], 1) != 0:
        wait_and_lock(word)


@kernel(inline=False)
def wait_and_lock(word: Array[u64]) -> None:
    """Take a lock that another thread holds; after many tries, yield to that thread, which may lack a processor."""
    looks: u64 = 0
    while True:
        if load_relaxed(word[0]) == 0 and exchange(word[0], 1) == 0:
            return
        looks += 1
        if looks % SPINS_BEFORE_YIELD == 0:
            sched_yield()
        else:
            pause()


@kernel(inline=True)
def unlock(word: Array[u64]) -> None:
    """Release the lock."""
    store_release(word[0], 0)


class TicketLock(Struct):
    """Tickets drawn, and tickets served; all zeros: free."""

    drawn: u64
    served: u64


@kernel
def take_lock(lock: TicketLock) -> None:
    """Take the lock, after all earlier requests."""
    ticket: u64 = atomic_add(lock.drawn, 1)
    spins: u64 = 0
    while load_acquire(lock.served) != ticket:
        if spins < SPINS_BEFORE_SLEEP:
            spins += 1
            pause()
        else:
            sleep_briefly()


@kernel
def release_lock(lock: TicketLock) -> None:
    """Pass the lock to the next in line."""
    store_release(lock.served, lock.served + 1)


@kernel(inline=True)
def has_waiters(lock: TicketLock) -> bool:
    """Return whether anyone waits for the lock that the caller holds."""
    return load_relaxed(lock.drawn) != load_relaxed(lock.served) + 1


@kernel(inline=False)
def sleep_briefly() -> None:
    """Sleep for about as long as a short turn takes."""
    duration = stack_array(i64, 2)
    duration[0] = 0
    duration[1] = SLEEP_NS
    ppoll(array_at(u64, 0), 0, duration, array_at(u8, 0))
