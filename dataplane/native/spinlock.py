"""A lock in a u64 word that threads of native code share: 0 is free, 1 is held; for a few instructions at a time."""

from __future__ import annotations

from dataplane.native.arrays import Array
from dataplane.native.intrinsics import exchange, load_relaxed, pause, store_release
from dataplane.native.kernels import external, kernel
from dataplane.native.scalars import i32, u64

SPINS_BEFORE_YIELD = 256


@external
def sched_yield() -> i32:
    """Let another thread run (POSIX)."""
    raise NotImplementedError


@kernel(inline=True)
def try_lock(word: Array[u64]) -> bool:
    """Return whether the lock was free, and take it if so."""
    return exchange(word[0], 1) == 0


@kernel(inline=True)
def lock(word: Array[u64]) -> None:
    """Take the lock; that of a field is given as `reference(struct.field)`."""
    if exchange(word[0], 1) != 0:
        wait_and_lock(word)


@kernel(inline=False)
def wait_and_lock(word: Array[u64]) -> None:
    """Take a lock that another thread holds; after many looks, let that thread run, which may lack a processor."""
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
    """Give the lock back."""
    store_release(word[0], 0)
