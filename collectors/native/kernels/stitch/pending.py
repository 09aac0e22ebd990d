"""Packets whose hops wait for one another, and known hops of flows: `collectors.reference.pending` in native memory.

Cells are found by key and identity, are kept in the order of their eviction, and have a list of hops in order of
arrival. Numbers of cells and hops are kept with 1 added, so that 0 is none.
"""

from __future__ import annotations

from collectors.native.structures import KEY_WORDS, PendingCell, PendingHop
from collectors.native.tables import PendingTable
from dataplane.native import (
    Array,
    address,
    array_at,
    as_u32,
    as_u64,
    copy,
    kernel,
    offset,
    prefetch,
    reference,
    sizeof,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.hashing import finish_high, part
from dataplane.native.open_addressing import LOW32, home_of, next_alike, put_entry, remove_entry


@kernel(inline=True)
def hash_packet(flow_hash: u64, identity: u64) -> u64:
    """Return the hash of a packet of a flow; tables of flows take the flow's own."""
    return finish_high(flow_hash + part(identity, KEY_WORDS))


@kernel(inline=True)
def prefetch_slot(table: PendingTable, mixed: u64) -> None:
    """Prefetch a packet's slot of the index."""
    prefetch(offset(table.index, home_of(mixed, table.mask)))


@kernel(inline=True)
def prefetch_cell(table: PendingTable, mixed: u64) -> None:
    """Prefetch the cell that the index most likely leads to."""
    number: u64 = table.index[home_of(mixed, table.mask)] & LOW32
    if number != 0:
        cell = table.cells[number - 1]
        prefetch(reference(cell.key[0]))
        prefetch(reference(cell.hops))


@kernel(inline=True)
def cell_of(table: PendingTable, number: u32) -> PendingCell:
    """Return the cell of a number."""
    return table.cells[as_u64(number) - 1]


@kernel(inline=True)
def hop_of(table: PendingTable, number: u32) -> PendingHop:
    """Return the hop of a number."""
    return table.hops[as_u64(number) - 1]


@kernel(inline=True)
def find_cell(table: PendingTable, key: Array[u64], identity: u64, mixed: u64) -> u32:
    """Return the number of the cell of a key and identity, 0 if there is none."""
    index: u64 = home_of(mixed, table.mask)
    while True:
        index = next_alike(table.index, table.mask, index, mixed)
        entry: u64 = table.index[index]
        if entry == 0:
            return 0
        cell = table.cells[(entry & LOW32) - 1]
        apart: u64 = (cell.key[0] ^ key[0]) | (cell.key[1] ^ key[1]) | (cell.key[2] ^ key[2])
        apart = apart | (cell.key[3] ^ key[3]) | (cell.key[4] ^ key[4]) | (cell.identity ^ identity)
        if apart == 0:
            return as_u32(entry & LOW32)
        index = (index + 1) & table.mask


@kernel(inline=True)
def add_cell(table: PendingTable, key: Array[u64], identity: u64, mixed: u64, now_ns: u64) -> u32:
    """Make a cell, the newest; there is always room for one more than `most`."""
    number: u32 = table.free
    if number != 0:
        table.free = cell_of(table, number).newer
    else:
        table.used += 1
        number = as_u32(table.used)
    cell = cell_of(table, number)
    i: u64 = 0
    while i < KEY_WORDS:
        cell.key[i] = key[i]
        i += 1
    cell.identity = identity
    cell.hash = mixed
    cell.begun_ns = now_ns
    cell.first = 0
    cell.last = 0
    cell.hops = 0
    cell.number = 0
    append_cell(table, number)
    table.count += 1
    table.newest_ns = max(table.newest_ns, now_ns)
    put_entry(table.index, table.mask, mixed, as_u64(number))
    return number


@kernel(inline=True)
def append_cell(table: PendingTable, number: u32) -> None:
    """Append an unlinked cell as the newest."""
    cell = cell_of(table, number)
    cell.older = table.newest
    cell.newer = 0
    if table.newest != 0:
        cell_of(table, table.newest).newer = number
    else:
        table.oldest = number
    table.newest = number


@kernel(inline=True)
def unlink_cell(table: PendingTable, number: u32) -> None:
    """Take a cell out of the order."""
    cell = cell_of(table, number)
    if cell.older != 0:
        cell_of(table, cell.older).newer = cell.newer
    else:
        table.oldest = cell.newer
    if cell.newer != 0:
        cell_of(table, cell.newer).older = cell.older
    else:
        table.newest = cell.older


@kernel(inline=True)
def renew_cell(table: PendingTable, number: u32) -> None:
    """Make a cell the newest."""
    if table.newest != number:
        unlink_cell(table, number)
        append_cell(table, number)


@kernel(inline=False)
def remove_cell(table: PendingTable, number: u32) -> None:
    """Forget a cell and its hops."""
    cell = cell_of(table, number)
    if cell.last != 0:
        hop_of(table, cell.last).following = table.free_hop
        table.free_hop = cell.first
    table.hop_count -= as_u64(cell.hops)
    unlink_cell(table, number)
    remove_entry(table.index, table.mask, cell.hash, as_u64(number))
    cell.newer = table.free
    table.free = number
    table.count -= 1


@kernel(inline=True)
def has_too_many(table: PendingTable) -> bool:
    """Return whether the oldest must be evicted for lack of room."""
    return table.count > table.most or table.hop_count > table.most_hops


# ---- hops


@kernel(inline=True)
def find_hop(table: PendingTable, cell: PendingCell, position: u32) -> PendingHop:
    """Return the hop of a position, or null."""
    number: u32 = cell.first
    while number != 0:
        hop = hop_of(table, number)
        if hop.position == position:
            return hop
        number = hop.following
    return view(PendingHop, 0)


@kernel(inline=True)
def copy_hop(target: PendingHop, source: PendingHop) -> None:
    """Copy a hop."""
    copy(array_at(u8, address(target)), array_at(u8, address(source)), sizeof(PendingHop))


@kernel(inline=True)
def put_hop(table: PendingTable, cell: PendingCell, reported: PendingHop) -> PendingHop:
    """Keep a copy of a hop, in place of an earlier one of its position, or behind all others; return the copy."""
    earlier = find_hop(table, cell, reported.position)
    if address(earlier) != 0:
        following: u32 = earlier.following
        copy_hop(earlier, reported)
        earlier.following = following
        return earlier
    number: u32 = table.free_hop
    if number != 0:
        table.free_hop = hop_of(table, number).following
    else:
        table.hops_used += 1
        number = as_u32(table.hops_used)
    hop = hop_of(table, number)
    copy_hop(hop, reported)
    hop.following = 0
    if cell.last != 0:
        hop_of(table, cell.last).following = number
    else:
        cell.first = number
    cell.last = number
    cell.hops += 1
    table.hop_count += 1
    return hop


@kernel(inline=False)
def forget_hops(table: PendingTable, cell: PendingCell, limit_ns: u64) -> None:
    """Forget the hops that were heard of before a time."""
    before: u32 = 0
    number: u32 = cell.first
    while number != 0:
        hop = hop_of(table, number)
        following: u32 = hop.following
        if hop.received_ns < limit_ns:
            if before != 0:
                hop_of(table, before).following = following
            else:
                cell.first = following
            if cell.last == number:
                cell.last = before
            hop.following = table.free_hop
            table.free_hop = number
            cell.hops -= 1
            table.hop_count -= 1
        else:
            before = number
        number = following
