"""Tables whose fields are all exact: one hash table. A record is the entry, the key words, the argument words."""

from __future__ import annotations

from typing import Literal

from dataplane.native import (
    Array,
    Inline,
    address,
    array_at,
    kernel,
    load_acquire,
    load_relaxed,
    offset,
    store_release,
    u32,
    u64,
    view,
)
from dataplane.native.hashing import hash_words, same_words
from dataplane.switch.abi import Entry, TableHead
from dataplane.switch.tables.native.memory import Memory, allocate, begin_write, release, retire
from dataplane.switch.tables.native.records import (
    ARGUMENT_WORDS,
    DONE,
    ENTRY_BYTES,
    HEAD_WORDS,
    MISSING,
    NO_MEMORY,
    copy_words,
    fill_entry,
)
from dataplane.switch.tables.native.slots import (
    ADDRESS,
    NOWHERE,
    TAG,
    Slots,
    add_record,
    find_slot,
    is_record,
    key_at,
    make_slots,
    may_be,
    remove_slot,
    slots_of,
)


class ExactTable(TableHead):
    """A hash table of entries, each key of `key_words` words."""

    key_words: u64
    slots: Inline[Slots, Literal[1]]


@kernel(inline=True)
def is_empty_exact(table: ExactTable) -> bool:
    """Return whether a table has no entry, so that no key has to be made and hashed."""
    return load_relaxed(table.slots[0].count) == 0


@kernel(inline=True)
def lookup_exact(table: ExactTable, key: Array[u64]) -> Entry:
    """Return the entry of a key, null if there is none."""
    words = table.key_words
    digest = hash_words(key, words)
    slots = slots_of(table.slots[0])
    mask = slots[0]
    # Inlined by hand, loading a slot once: with `next_tagged_shared`, which loads it again, sixteen tables in a row
    # ran at half the rate in one process of five, and as fast in the others.
    position = digest & mask
    while True:
        slot = load_acquire(slots[position + 1])
        if slot == 0:
            return view(Entry, 0)
        if may_be(slot, digest) and same_words(key_at(slot, ENTRY_BYTES), key, words):
            return view(Entry, slot & ADDRESS)
        position = (position + 1) & mask


@kernel
def make_exact_record(memory: Memory, words: u64, request: Array[u64]) -> u64:
    """Return a record for a request, or 0 without memory; the key follows the request's head."""
    record = allocate(memory, ENTRY_BYTES // 8 + words + request[ARGUMENT_WORDS])
    if record != 0:
        key = array_at(u64, record + ENTRY_BYTES)
        copy_words(key, offset(request, HEAD_WORDS), words)
        fill_entry(record, request, offset(request, HEAD_WORDS + words), address(offset(key, words)))
    return record


@kernel
def put_exact(memory: Memory, table: ExactTable, request: Array[u64]) -> u32:
    """Insert an entry, or replace the one with its key."""
    words = table.key_words
    if not begin_write(memory):
        return NO_MEMORY
    record = make_exact_record(memory, words, request)
    if record == 0:
        return NO_MEMORY
    slot = find_slot(table.slots[0], offset(request, HEAD_WORDS), words, ENTRY_BYTES)
    if slot == NOWHERE:
        if add_record(memory, table.slots[0], record, words, ENTRY_BYTES):
            return DONE
        release(memory, record)
        return NO_MEMORY
    slots = slots_of(table.slots[0])
    old = slots[slot]
    store_release(slots[slot], record | old & TAG)
    retire(memory, old & ADDRESS)
    return DONE


@kernel
def remove_exact(memory: Memory, table: ExactTable, request: Array[u64]) -> u32:
    """Remove the entry whose key follows the request's head."""
    words = table.key_words
    if not begin_write(memory):
        return NO_MEMORY
    slot = find_slot(table.slots[0], offset(request, HEAD_WORDS), words, ENTRY_BYTES)
    if slot == NOWHERE:
        return MISSING
    old = slots_of(table.slots[0])[slot]
    remove_slot(memory, table.slots[0], slot, words, ENTRY_BYTES)
    retire(memory, old & ADDRESS)
    return DONE


@kernel
def make_exact(memory: Memory, table: ExactTable) -> bool:
    """Initialize an empty table; key_words is set; return whether there was memory."""
    return make_slots(memory, table.slots[0])


@kernel
def free_exact(memory: Memory, table: ExactTable) -> None:
    """Free everything that a table holds; no reader may be left."""
    slots = slots_of(table.slots[0])
    for slot in range(slots[0] + 1):
        if is_record(slots[slot + 1]):
            release(memory, slots[slot + 1] & ADDRESS)
    release(memory, address(slots))
    table.slots[0].array = 0
