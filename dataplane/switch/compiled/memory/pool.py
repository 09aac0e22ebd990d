"""Blocks of memory for packets: a bounded pool shared by all workers, and each worker's own few blocks of it.

A block is a `Packet`, the program's region, and a buffer for the frame.
"""

from __future__ import annotations

import ctypes
import mmap
import sys

from dataplane.native import Struct, address, array_at, kernel, reference, u8, u64, view
from dataplane.native.locks import lock, unlock
from dataplane.switch.abi import Packet

BUFFER_BYTES = 11_264
"""The longest frame that a switch accepts, and 2,026 bytes for headers that a program may put in front of it."""
REFILL_BLOCKS = 32
CACHE_BLOCKS = 96
_LINE_BYTES = 64
_MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0


class Pool(Struct):
    """Free blocks: a list of those given back, then those from `fresh` on, which were never used."""

    lock: u64
    free: u64
    free_blocks: u64
    begin: u64
    fresh: u64
    end: u64
    block_bytes: u64
    region_offset: u64
    buffer_offset: u64


class Cache(Struct):
    """A worker's own free blocks, so that the pool's lock is taken once for many packets."""

    pool: Pool
    free: u64
    blocks: u64


@kernel
def take(cache: Cache) -> u64:
    """Return the address of a packet's block, or 0 when all are in use."""
    if cache.free == 0:
        _refill(cache)
    block = cache.free
    if block != 0:
        cache.free = view(Packet, block).next
        cache.blocks -= 1
    return block


@kernel
def give(cache: Cache, packet: Packet) -> None:
    """Take back a block that is no longer needed."""
    packet.next = cache.free
    cache.free = address(packet)
    cache.blocks += 1
    if cache.blocks > CACHE_BLOCKS:
        _return(cache, cache.blocks - REFILL_BLOCKS)


@kernel
def give_all(cache: Cache) -> None:
    """Return every block of a worker's own to the pool."""
    if cache.blocks > 0:
        _return(cache, cache.blocks)


@kernel
def _refill(cache: Cache) -> None:
    pool = cache.pool
    lock(reference(pool.lock))
    while cache.blocks < REFILL_BLOCKS and (pool.free != 0 or pool.fresh < pool.end):
        if pool.free != 0:
            packet = view(Packet, pool.free)
            pool.free = packet.next
            pool.free_blocks -= 1
        else:
            packet = _unpack(pool)
        packet.next = cache.free
        cache.free = address(packet)
        cache.blocks += 1
    unlock(reference(pool.lock))


@kernel
def _unpack(pool: Pool) -> Packet:
    """Return the next block that was never used; its memory is first touched now."""
    block = pool.fresh
    pool.fresh = block + pool.block_bytes
    packet = view(Packet, block)
    packet.region = array_at(u8, block + pool.region_offset)
    packet.data = array_at(u8, block + pool.buffer_offset)
    return packet


@kernel
def _return(cache: Cache, count: u64) -> None:
    """Give `count` of a worker's own blocks back, the most recently used first."""
    pool = cache.pool
    first = cache.free
    last = view(Packet, first)
    for _ in range(count - 1):
        last = view(Packet, last.next)
    cache.free = last.next
    cache.blocks -= count
    lock(reference(pool.lock))
    last.next = pool.free
    pool.free = first
    pool.free_blocks += count
    unlock(reference(pool.lock))


class BlockPool:
    """Memory for `blocks` packets, untouched until needed; `pool` is the kernels' view.

    Must outlive everything that holds one of its blocks.
    """

    def __init__(self, blocks: int, region_bytes: int) -> None:
        region = _up_to_line(ctypes.sizeof(Packet))
        buffer = region + _up_to_line(region_bytes)
        # An odd number of lines: equal offsets in two blocks do not compete for the same cache set.
        block_bytes = (buffer + BUFFER_BYTES) | _LINE_BYTES
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        self._memory = mmap.mmap(-1, blocks * block_bytes, flags=flags)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.pool = Pool()
        self.pool.begin = self.pool.fresh = begin
        self.pool.end = begin + blocks * block_bytes
        self.pool.block_bytes = block_bytes
        self.pool.region_offset, self.pool.buffer_offset = region, buffer

    def in_use(self, *caches: Cache) -> int:
        """Return how many blocks are neither in the pool nor in one of `caches`, which must be all of them."""
        touched = (self.pool.fresh - self.pool.begin) // self.pool.block_bytes
        return touched - self.pool.free_blocks - sum(cache.blocks for cache in caches)


def _up_to_line(nbytes: int) -> int:
    return -(-nbytes // _LINE_BYTES) * _LINE_BYTES
