"""Pacing of a driver thread's polls: at once, after a pause, or once something has happened.

After silence one interrupt wakes the thread. It then polls at intervals that adapt until each yields about
`target_batch` frames. The intervals are bounded; the upper bound is the longest delay that polling adds to a frame.
After a quiet period the thread waits for the next interrupt.
"""

from __future__ import annotations

from dataplane.native import as_u64, kernel, u32, u64
from dataplane.nic.driver.driver_state import LEAST_BATCH, MOST_BATCH, Pacer
from dataplane.nic.modes import Mode

AT_ONCE = 0
UNTIL_WOKEN = 0xFFFF_FFFF_FFFF_FFFF


@kernel
def pace(pacer: Pacer, now_ns: u64, moved: u32, full: u32) -> u64:
    """Return the pause after a turn that moved that many frames, in ns, or AT_ONCE, or UNTIL_WOKEN.

    `full` is 1 if a queue may hold more than was taken.
    """
    adapt_batch(pacer, moved, full)
    if pacer.mode == Mode.POLLING:
        return AT_ONCE
    if moved > 0:
        pacer.active_ns = now_ns
        pacer.found += as_u64(moved)
    if full != 0:
        return AT_ONCE
    if pacer.mode == Mode.WAITING:
        return UNTIL_WOKEN
    adapt_pause(pacer, now_ns)
    if now_ns - pacer.active_ns >= pacer.quiet_ns:
        return UNTIL_WOKEN
    return pacer.pause_ns if pacer.pause_ns > pacer.least_pause_ns else AT_ONCE


@kernel(inline=True)
def adapt_batch(pacer: Pacer, moved: u32, full: u32) -> None:
    """Take larger batches from queues that fill them, smaller ones from those that yield far less."""
    if full != 0:
        pacer.batch = min(pacer.batch * 2, MOST_BATCH)
    elif moved < pacer.batch // 4:
        pacer.batch = max(pacer.batch // 2, LEAST_BATCH)


@kernel(inline=True)
def adapt_pause(pacer: Pacer, now_ns: u64) -> None:
    """Move halfway to the pause that would yield `target_batch` frames at the rate since the queues were last empty."""
    wanted_ns: u64 = pacer.most_pause_ns
    if pacer.found > 0:
        wanted_ns = (now_ns - pacer.empty_ns) * pacer.target_batch // pacer.found
    pacer.pause_ns = min((pacer.pause_ns + wanted_ns) // 2, pacer.most_pause_ns)
    pacer.found = 0
    pacer.empty_ns = now_ns


@kernel
def begin_pacing(pacer: Pacer, now_ns: u64) -> None:
    """Start polling after a sleep, with the shortest pause: silence says nothing about the coming rate."""
    pacer.active_ns = now_ns
    pacer.empty_ns = now_ns
    pacer.found = 0
    pacer.pause_ns = pacer.least_pause_ns
