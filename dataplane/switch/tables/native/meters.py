"""Meters in compiled code; `dataplane.switch.tables.meters` defines them, and is the reference."""

from __future__ import annotations

from dataplane.native import (
    Array,
    address,
    array_at,
    compare_exchange,
    kernel,
    load_relaxed,
    pause,
    store_release,
    u32,
    u64,
)
from dataplane.switch.abi import MeterCell
from dataplane.switch.tables.meters import CELL_WORDS, GREEN, RED, SCALE, YELLOW

CONFIGURED = 1
COUNTS_PACKETS = 2
"""Flags of a cell; `tables.meters` has them in the upper half of its first word."""


@kernel(inline=True)
def refilled(level: u64, capacity: u64, rate: u64, elapsed_us: u64) -> u64:
    """Return the smaller of level + elapsed * rate and capacity, without overflow."""
    if rate == 0 or level >= capacity:
        return level
    if elapsed_us > (capacity - level) // rate:
        return capacity
    return level + elapsed_us * rate


@kernel
def charge(cell: MeterCell, now_us: u64, nbytes: u64) -> u32:
    """Charge a packet to a cell whose lock is held; return its colour."""
    if now_us > cell.last_us:
        elapsed_us = now_us - cell.last_us
        cell.committed = refilled(cell.committed, cell.committed_capacity, cell.cir, elapsed_us)
        cell.peak = refilled(cell.peak, cell.peak_capacity, cell.pir, elapsed_us)
        cell.last_us = now_us
    cost = nbytes * SCALE
    if cell.flags & COUNTS_PACKETS != 0:
        cost = SCALE
    if cell.peak < cost:
        return RED
    cell.peak -= cost
    if cell.committed < cost:
        return YELLOW
    cell.committed -= cost
    return GREEN


@kernel(inline=True)
def lock_cell(cell: MeterCell) -> None:
    """Spin until we hold the cell's lock; it is held for some nanoseconds."""
    while not compare_exchange(cell.lock, 0, 1):
        pause()


@kernel
def execute_meter(cell: MeterCell, now_us: u64, nbytes: u64) -> u32:
    """Charge a packet of `nbytes` bytes to a cell; return its colour, 0 green, 1 yellow, 2 red."""
    if load_relaxed(cell.flags) & CONFIGURED == 0:
        return GREEN
    lock_cell(cell)
    colour: u32 = GREEN
    if cell.flags & CONFIGURED != 0:
        colour = charge(cell, now_us, nbytes)
    store_release(cell.lock, 0)
    return colour


@kernel
def write_meter(cell: MeterCell, words: Array[u64]) -> None:
    """Replace all of a cell except its lock by `words`, in one step for everything that charges packets to it."""
    lock_cell(cell)
    target = array_at(u64, address(cell))
    for word in range(1, CELL_WORDS):
        target[word] = words[word]
    array_at(u32, address(cell))[1] = array_at(u32, address(words))[1]
    store_release(cell.lock, 0)
