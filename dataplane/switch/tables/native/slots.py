"""A hash table of records that one writer changes and any number of readers probe without locks.

Open addressing, linear probing. A slot is 0 (never used), 1 (its record is gone: probe on) or a record's address with
the top 16 bits of its hash above it, so that readers hardly ever look at a wrong record. A record never moves: a reader
finds it whatever else is inserted or removed meanwhile. Growing builds new slots separately and replaces the old ones
in one store. The slots are followed by a filter, a byte per slot (Bloom, "Space/time trade-offs in hash coding", 1970,
with one bit per key): if most lookups find nothing, as in a space of a mask table, they end there, in the cache.
"""

from __future__ import annotations

from dataplane.native import (
    Array,
    Struct,
    array_at,
    kernel,
    load_acquire,
    load_relaxed,
    offset,
    store_relaxed,
    store_release,
    u64,
)
from dataplane.native.hashing import hash_words, same_words
from dataplane.native.open_addressing import next_tagged
from dataplane.switch.tables.native.memory import Memory, allocate_zeroed, retire

TAG_SHIFT = 48
TAG = 0xFFFF_0000_0000_0000
ADDRESS = 0x0000_FFFF_FFFF_FFFF
GONE = 1
NOWHERE = 0xFFFF_FFFF_FFFF_FFFF
LEAST_SLOTS = 8
BITS_PER_SLOT = 8
FILTER_SHIFT = 13
WORD_BITS = 64


class Slots(Struct):
    """A hash table; the array's first word is the number of slots less one, then come slots and filter."""

    array: u64
    count: u64  # records
    used: u64  # non-zero slots


@kernel(inline=True)
def slots_of(table: Slots) -> Array[u64]:
    """Return the current array."""
    return array_at(u64, load_acquire(table.array))


@kernel(inline=True)
def is_record(slot: u64) -> bool:
    """Return whether a slot holds a record."""
    return slot & ADDRESS > GONE


@kernel(inline=True)
def may_be(slot: u64, digest: u64) -> bool:
    """Return whether a slot holds a record whose hash may be `digest`."""
    return slot & TAG == digest & TAG and is_record(slot)


@kernel(inline=True)
def key_at(slot: u64, key_offset: u64) -> Array[u64]:
    """Return the key words of a slot's record."""
    return array_at(u64, (slot & ADDRESS) + key_offset)


@kernel(inline=True)
def filter_bit(mask: u64, digest: u64) -> u64:
    """Return a hash's bit in the filter; its lowest bits choose the slot, its highest are the tag."""
    return (digest >> FILTER_SHIFT) & (mask * BITS_PER_SLOT + BITS_PER_SLOT - 1)


@kernel(inline=True)
def may_have(slots: Array[u64], digest: u64) -> bool:
    """Return whether a record with this hash may be there; false positives are rare."""
    mask = slots[0]
    bit = filter_bit(mask, digest)
    one: u64 = 1
    return load_relaxed(slots[mask + 2 + bit // WORD_BITS]) & one << bit % WORD_BITS != 0


@kernel
def find_slot(table: Slots, key: Array[u64], words: u64, key_offset: u64) -> u64:
    """Return the index of the record with this key in the array, or NOWHERE."""
    digest = hash_words(key, words)
    slots = slots_of(table)
    mask = slots[0]
    position = digest & mask
    while True:
        position = next_tagged(offset(slots, 1), mask, position, digest >> TAG_SHIFT, TAG_SHIFT)
        slot = slots[position + 1]
        if slot == 0:
            return NOWHERE
        if is_record(slot) and same_words(key_at(slot, key_offset), key, words):
            return position + 1
        position = (position + 1) & mask


@kernel
def put_slot(slots: Array[u64], slot: u64, digest: u64) -> bool:
    """Publish a record in the first slot that has none; return whether that slot had never been used."""
    mask = slots[0]
    bit = filter_bit(mask, digest)
    one: u64 = 1
    store_relaxed(slots[mask + 2 + bit // WORD_BITS], slots[mask + 2 + bit // WORD_BITS] | one << bit % WORD_BITS)
    position = digest & mask
    while is_record(slots[position + 1]):  # inlined by hand: a slot whose record is gone is as good as an empty one
        position = (position + 1) & mask
    fresh = slots[position + 1] == 0
    store_release(slots[position + 1], slot)
    return fresh


@kernel
def rebuild(memory: Memory, table: Slots, words: u64, key_offset: u64) -> bool:
    """Move to an array that is at most half full, without slots of removed records; return whether there was memory."""
    size: u64 = LEAST_SLOTS
    while size < (table.count + 1) * 2:
        size *= 2
    fresh_address = allocate_zeroed(memory, 1 + size + size * BITS_PER_SLOT // WORD_BITS)
    if fresh_address == 0:
        return False
    fresh = array_at(u64, fresh_address)
    fresh[0] = size - 1
    old = slots_of(table)
    for position in range(old[0] + 1):
        slot = old[position + 1]
        if is_record(slot):
            put_slot(fresh, slot, hash_words(key_at(slot, key_offset), words))
    retire(memory, table.array)
    table.used = table.count
    store_release(table.array, fresh_address)
    return True


@kernel
def make_slots(memory: Memory, table: Slots) -> bool:
    """Initialize an empty table; return whether there was memory."""
    block = allocate_zeroed(memory, 1 + LEAST_SLOTS + LEAST_SLOTS * BITS_PER_SLOT // WORD_BITS)
    if block == 0:
        return False
    array_at(u64, block)[0] = LEAST_SLOTS - 1
    table.array = block
    table.count = 0
    table.used = 0
    return True


@kernel
def add_record(memory: Memory, table: Slots, record: u64, words: u64, key_offset: u64) -> bool:
    """Publish a record whose key is not there yet; return whether there was memory."""
    size = slots_of(table)[0] + 1
    if (table.used + 1) * 4 > size * 3 and not rebuild(memory, table, words, key_offset):
        return False
    digest = hash_words(key_at(record, key_offset), words)
    if put_slot(slots_of(table), record | digest & TAG, digest):
        table.used += 1
    table.count += 1
    return True


@kernel
def remove_slot(memory: Memory, table: Slots, slot: u64, words: u64, key_offset: u64) -> None:
    """Unlink the record at an index; its slot, and those of gone records before it, become free if none follows."""
    slots = slots_of(table)
    mask = slots[0]
    at = slot - 1
    store_release(slots[slot], GONE)
    table.count -= 1
    if slots[((at + 1) & mask) + 1] == 0:
        while slots[at + 1] == GONE:
            store_release(slots[at + 1], 0)
            table.used -= 1
            at = (at - 1) & mask
    if mask >= 64 and table.count * 8 < mask:
        rebuild(memory, table, words, key_offset)  # without memory, the table stays large
