"""Memory with lock-free readers: unlinked blocks are freed once no reader can hold them any more.

Quiescent-state-based reclamation (McKenney and Slingwine, "Read-copy update", PDCS 1998): a machine's `epoch` is odd
while it processes a burst. A writer unlinks a block and retires it; retired blocks gather in a batch, the batch is
closed, and is freed when each machine has been seen outside a burst, or in a later one than when it was closed. There
is one writer at a time.
"""

from __future__ import annotations

from dataplane.native import (
    Array,
    Struct,
    address,
    array_at,
    copy,
    external,
    fence,
    kernel,
    load_acquire,
    u8,
    u64,
)

RESERVE = 16
"""Maximum blocks that one write retires; room for them is made before it changes anything."""
BATCH = 256
"""Number of retired blocks from which each write tries to free some."""


class Memory(Struct):
    """One state's memory: what waits to be freed, and the readers it waits for."""

    open: Array[u64]  # addresses of blocks retired since the last batch was closed
    open_count: u64
    open_capacity: u64
    closed: Array[u64]  # the batch that waits for readers
    closed_count: u64
    closed_capacity: u64
    batches: u64  # batches closed in total
    freed: u64  # batches freed in total
    epochs: Array[u64]  # addresses of the machines' epochs
    seen: Array[u64]  # their values when the batch was closed
    machines: u64
    blocks: u64  # allocated and not freed


@external
def malloc(size: u64) -> u64:
    """C's malloc."""
    raise NotImplementedError


@external
def calloc(count: u64, size: u64) -> u64:
    """C's calloc."""
    raise NotImplementedError


@external
def free(block: u64) -> None:
    """C's free."""
    raise NotImplementedError


@kernel
def allocate(memory: Memory, words: u64) -> u64:
    """Return the address of that many words, or 0."""
    block = malloc(words * 8)
    if block != 0:
        memory.blocks += 1
    return block


@kernel
def allocate_zeroed(memory: Memory, words: u64) -> u64:
    """Return the address of that many zeroed words, or 0; large blocks take no memory before they are touched."""
    block = calloc(words, 8)
    if block != 0:
        memory.blocks += 1
    return block


@kernel
def release(memory: Memory, block: u64) -> None:
    """Free a block that no reader can hold."""
    if block != 0:
        memory.blocks -= 1
        free(block)


@kernel
def reserve(memory: Memory, blocks: u64) -> bool:
    """Make room to retire that many blocks; return whether there is."""
    if memory.open_count + blocks <= memory.open_capacity:
        return True
    capacity = (memory.open_count + blocks) * 2
    moved = malloc(capacity * 8)
    if moved == 0:
        return False
    old = address(memory.open)
    if old != 0:
        copy(array_at(u8, moved), array_at(u8, old), memory.open_count * 8)
        free(old)
    memory.open = array_at(u64, moved)
    memory.open_capacity = capacity
    return True


@kernel
def retire(memory: Memory, block: u64) -> None:
    """Retire an unlinked block; there must be room (`reserve`)."""
    if block != 0:
        memory.open[memory.open_count] = block
        memory.open_count += 1


@kernel
def readers_moved_on(memory: Memory) -> bool:
    """Return whether no machine can hold any block of the closed batch."""
    for machine in range(memory.machines):
        seen = memory.seen[machine]
        if seen & 1 == 1:
            epoch = array_at(u64, memory.epochs[machine])
            if load_acquire(epoch[0]) == seen:
                return False
    return True


@kernel
def close_batch(memory: Memory) -> None:
    """Close the open batch, to wait for the readers now inside a burst; the previous one must be freed."""
    blocks = memory.open
    capacity = memory.open_capacity
    memory.closed_count = memory.open_count
    memory.open = memory.closed
    memory.open_capacity = memory.closed_capacity
    memory.open_count = 0
    memory.closed = blocks
    memory.closed_capacity = capacity
    memory.batches += 1
    fence()  # unlinked blocks are invisible to every burst that begins from here on
    for machine in range(memory.machines):
        epoch = array_at(u64, memory.epochs[machine])
        memory.seen[machine] = load_acquire(epoch[0])


@kernel
def free_closed(memory: Memory) -> bool:
    """Free the closed batch if no reader can hold it; return whether there is none left."""
    if memory.freed != memory.batches:
        if not readers_moved_on(memory):
            return False
        for index in range(memory.closed_count):
            release(memory, memory.closed[index])
        memory.closed_count = 0
        memory.freed = memory.batches
    return True


@kernel
def collect(memory: Memory) -> u64:
    """Free all blocks that can be freed at once; return how many still wait."""
    if free_closed(memory) and memory.open_count != 0:
        close_batch(memory)
        free_closed(memory)
    return memory.open_count + memory.closed_count


@kernel
def begin_write(memory: Memory) -> bool:
    """Make room for the blocks that a write retires, occasionally freeing earlier ones; return whether it fits."""
    if memory.open_count >= BATCH:
        collect(memory)
    return reserve(memory, RESERVE)


@kernel
def free_retired(memory: Memory) -> None:
    """Free everything that was retired, and the lists of it; no reader may be left."""
    for index in range(memory.open_count):
        release(memory, memory.open[index])
    for index in range(memory.closed_count):
        release(memory, memory.closed[index])
    free(address(memory.open))
    free(address(memory.closed))
    memory.open_count = 0
    memory.open_capacity = 0
    memory.closed_count = 0
    memory.closed_capacity = 0
    memory.open = array_at(u64, 0)
    memory.closed = array_at(u64, 0)
    memory.freed = memory.batches
