"""Tables with one lpm field of at most 32 bits: a multibit trie with leaf pushing, at most three reads per lookup.

(Srinivasan and Varghese, "Fast address lookups using controlled prefix expansion", TOCS 1999.) The root takes the bits
left over by strides of 8, between 9 and 16 if the field has them. A cell is 0, a record, or the address of the 256
cells below it with its lowest bit set. Next to the trie, for writers only, is a hash table of the prefixes (value,
length), which gives the covering prefix when one is removed.
"""

from __future__ import annotations

from typing import Literal

from dataplane.native import (
    Array,
    Inline,
    address,
    array_at,
    kernel,
    load_acquire,
    offset,
    stack_array,
    store_release,
    u32,
    u64,
    view,
)
from dataplane.switch.abi import Entry
from dataplane.switch.tables.native.exact import ExactTable, free_exact, make_exact, make_exact_record
from dataplane.switch.tables.native.memory import Memory, allocate, allocate_zeroed, begin_write, release, retire
from dataplane.switch.tables.native.records import DONE, ENTRY_BYTES, HEAD_WORDS, MISSING, NO_MEMORY
from dataplane.switch.tables.native.slots import ADDRESS, NOWHERE, TAG, add_record, find_slot, remove_slot, slots_of

STRIDE = 8
FANOUT = 256
CHILD = 1
KEY_WORDS = 2
MAX_WIDTH = 32
LENGTHS = 33


class TrieTable(ExactTable):
    """A trie, and the hash table of its prefixes, whose keys are (value, length)."""

    root: Array[u64]
    width: u64
    root_shift: u64  # bits below the root's
    lengths: Inline[u64, Literal[33]]  # prefixes of each length


@kernel(inline=True)
def lookup_trie(table: TrieTable, key: Array[u64]) -> Entry:
    """Return the entry of the longest prefix that covers a key, null if there is none."""
    value = key[0]
    shift = table.root_shift
    cell = load_acquire(table.root[value >> shift])
    while cell & CHILD != 0:
        shift -= STRIDE
        cell = load_acquire(array_at(u64, cell - CHILD)[(value >> shift) & (FANOUT - 1)])
    return view(Entry, cell)


@kernel(inline=True)
def length_of(record: u64) -> u64:
    """Return the prefix length of a record; its key is (value, length)."""
    return array_at(u64, record + ENTRY_BYTES)[1]


@kernel(inline=True)
def gives_way(cell: u64, old: u64, length: u64) -> bool:
    """Return whether a leaf must be replaced: `old` itself or, if that is 0, a prefix no longer than `length`."""
    if old != 0:
        return cell == old
    return cell == 0 or length_of(cell) <= length


@kernel
def exchange_leaves(cells: Array[u64], count: u64, old: u64, new: u64, length: u64) -> None:
    """Put `new` into the leaves that give way, in `count` cells and all below them."""
    for index in range(count):
        cell = cells[index]
        if cell & CHILD != 0:
            exchange_leaves(array_at(u64, cell - CHILD), FANOUT, old, new, length)
        elif gives_way(cell, old, length):
            store_release(cells[index], new)


@kernel
def make_node(memory: Memory, leaf: u64) -> u64:
    """Return 256 cells that all hold a leaf, or 0 without memory."""
    node = allocate(memory, FANOUT)
    if node != 0:
        cells = array_at(u64, node)
        for index in range(FANOUT):
            cells[index] = leaf
    return node


@kernel
def descend(memory: Memory, table: TrieTable, value: u64, length: u64) -> bool:
    """Make the nodes down to the one in which a prefix of this length ends; return whether there was memory."""
    shift = table.root_shift
    cells = table.root
    index = value >> shift
    while table.width - length < shift:
        if cells[index] & CHILD == 0:
            node = make_node(memory, cells[index])
            if node == 0:
                return False
            store_release(cells[index], node | CHILD)
        cells = array_at(u64, cells[index] - CHILD)
        shift -= STRIDE
        index = (value >> shift) & (FANOUT - 1)
    return True


@kernel
def spread(table: TrieTable, value: u64, length: u64, old: u64, new: u64) -> None:
    """Replace the leaves that a prefix covers; the nodes on the way to them exist."""
    shift = table.root_shift
    cells = table.root
    index = value >> shift
    host_bits = table.width - length
    while host_bits < shift:
        cells = array_at(u64, cells[index] - CHILD)
        shift -= STRIDE
        index = (value >> shift) & (FANOUT - 1)
    exchange_leaves(offset(cells, index), as_count(host_bits - shift), old, new, length)


@kernel(inline=True)
def as_count(bits: u64) -> u64:
    """Return the number of cells for that many free bits."""
    one: u64 = 1
    return one << bits


@kernel
def only_leaf(node: Array[u64]) -> bool:
    """Return whether all cells of a node hold the same leaf."""
    if node[0] & CHILD != 0:
        return False
    for index in range(1, FANOUT):  # noqa: SIM110 (kernels have no generators)
        if node[index] != node[0]:
            return False
    return True


@kernel
def shrink(memory: Memory, table: TrieTable, value: u64, length: u64) -> None:
    """Replace each node on the way to a prefix that holds only one leaf by that leaf, lowest node first."""
    path = stack_array(u64, 4)
    depth: u64 = 0
    shift = table.root_shift
    cells = table.root
    index = value >> shift
    while table.width - length < shift:
        path[depth] = address(offset(cells, index))
        depth += 1
        cells = array_at(u64, cells[index] - CHILD)
        shift -= STRIDE
        index = (value >> shift) & (FANOUT - 1)
    while depth > 0:
        depth -= 1
        parent = array_at(u64, path[depth])
        node = parent[0] - CHILD
        if not only_leaf(array_at(u64, node)):
            return
        store_release(parent[0], array_at(u64, node)[0])
        retire(memory, node)


@kernel
def covering(table: TrieTable, value: u64, length: u64) -> u64:
    """Return the record of the longest prefix that covers a prefix and is shorter, or 0."""
    key = stack_array(u64, 2)
    shorter = length
    one: u64 = 1
    while shorter > 0:
        shorter -= 1
        if table.lengths[shorter] != 0:
            low = (one << (table.width - shorter)) - 1
            key[0] = value & ~low
            key[1] = shorter
            slot = find_slot(table.slots[0], key, KEY_WORDS, ENTRY_BYTES)
            if slot != NOWHERE:
                return slots_of(table.slots[0])[slot] & ADDRESS
    return 0


@kernel
def put_trie(memory: Memory, table: TrieTable, request: Array[u64]) -> u32:
    """Insert an entry, or replace the one with its prefix (value, length)."""
    key = offset(request, HEAD_WORDS)
    if not begin_write(memory):
        return NO_MEMORY
    if not descend(memory, table, key[0], key[1]):
        return NO_MEMORY
    record = make_exact_record(memory, KEY_WORDS, request)
    if record == 0:
        return NO_MEMORY
    slot = find_slot(table.slots[0], key, KEY_WORDS, ENTRY_BYTES)
    if slot == NOWHERE:
        if not add_record(memory, table.slots[0], record, KEY_WORDS, ENTRY_BYTES):
            release(memory, record)
            return NO_MEMORY
        table.lengths[key[1]] += 1
        spread(table, key[0], key[1], 0, record)
        return DONE
    slots = slots_of(table.slots[0])
    old = slots[slot]
    store_release(slots[slot], record | old & TAG)
    spread(table, key[0], key[1], old & ADDRESS, record)
    retire(memory, old & ADDRESS)
    return DONE


@kernel
def remove_trie(memory: Memory, table: TrieTable, request: Array[u64]) -> u32:
    """Remove the entry with a prefix (value, length)."""
    key = offset(request, HEAD_WORDS)
    if not begin_write(memory):
        return NO_MEMORY
    slot = find_slot(table.slots[0], key, KEY_WORDS, ENTRY_BYTES)
    if slot == NOWHERE:
        return MISSING
    old = slots_of(table.slots[0])[slot] & ADDRESS
    spread(table, key[0], key[1], old, covering(table, key[0], key[1]))
    shrink(memory, table, key[0], key[1])
    table.lengths[key[1]] -= 1
    remove_slot(memory, table.slots[0], slot, KEY_WORDS, ENTRY_BYTES)
    retire(memory, old)
    return DONE


@kernel
def make_trie(memory: Memory, table: TrieTable) -> bool:
    """Initialize an empty trie; width and root_shift are set; return whether there was memory."""
    root = allocate_zeroed(memory, as_count(table.width - table.root_shift))
    table.root = array_at(u64, root)
    return root != 0 and make_exact(memory, table)


@kernel
def free_nodes(memory: Memory, cells: Array[u64], count: u64) -> None:
    """Free the nodes below some cells, and then the cells."""
    for index in range(count):
        if cells[index] & CHILD != 0:
            free_nodes(memory, array_at(u64, cells[index] - CHILD), FANOUT)
    release(memory, address(cells))


@kernel
def free_trie(memory: Memory, table: TrieTable) -> None:
    """Free everything that a table holds; no reader may be left."""
    free_nodes(memory, table.root, as_count(table.width - table.root_shift))
    free_exact(memory, table)
