"""Tables with ternary, range or optional fields, or lpm with others: tuple space search, best priority first.

(Srinivasan, Suri, Varghese, "Packet classification using tuple space search", SIGCOMM 1999.) Entries with the same
masks form a space, a hash table by the key words under the masks. For a range, the mask holds the prefix that its
bounds have in common; unless that prefix is the whole range, the bounds are compared in the record. Records with the
same masked key form a list, the better first: the larger priority, then the older. `rows` has the spaces by the largest
priority in each, so that a lookup stops where no space can hold a better entry. For lpm with exact fields, the length
is the priority.
"""

from __future__ import annotations

from typing import Literal

from dataplane.native import (
    Array,
    Inline,
    Struct,
    address,
    array_at,
    as_u32,
    as_u64,
    copy,
    kernel,
    load_acquire,
    load_relaxed,
    offset,
    sizeof,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.hashing import hash_masked, same_words
from dataplane.switch.abi import Entry, TableHead
from dataplane.switch.tables.native.memory import Memory, allocate, begin_write, release, reserve, retire
from dataplane.switch.tables.native.records import (
    ARGUMENT_WORDS,
    DONE,
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
    may_have,
    remove_slot,
    slots_of,
)

PRIORITY = HEAD_WORDS
RANGES = HEAD_WORDS + 1
RANGE_WORDS = HEAD_WORDS + 2
MASK_HEAD_WORDS = HEAD_WORDS + 3
"""Words of a request before the masked values; then come the ranges, then the arguments."""


class MaskRecord(Entry):
    """An entry in its list, followed by the masked values, the ranges and the arguments.

    A range is a word (index of its first key word, number of words << 32), then its low and its high bound.
    """

    next: u64
    sequence: u64
    priority: u32
    ranges: u32


class Space(Struct):
    """The entries that share masks; followed by the non-zero masks, then the positions of their key words."""

    words: u64  # number of non-zero masks
    slots: Inline[Slots, Literal[1]]


class MaskTable(TableHead):
    """Spaces by priority: `rows` points to their number, then pairs (largest priority, address of the space)."""

    rows: u64
    sequence: u64


RECORD_BYTES = sizeof(MaskRecord)
SPACE_BYTES = sizeof(Space)


@kernel(inline=True)
def masks_of(space: Space) -> Array[u64]:
    """Return the masks of a space, one per key word."""
    return array_at(u64, address(space) + SPACE_BYTES)


@kernel(inline=True)
def same_masked(values: Array[u64], key: Array[u64], space: Space) -> bool:
    """Return whether a key has these values under the masks of a space."""
    masks = masks_of(space)
    places = offset(masks, space.words)
    for word in range(space.words):  # noqa: SIM110 (kernels have no generators)
        if values[word] != key[places[word]] & masks[word]:
            return False
    return True


@kernel(inline=True)
def best_of(space: Space, key: Array[u64]) -> u64:
    """Return the address of the first record for a key in a space, or 0."""
    words = space.words
    masks = masks_of(space)
    places = offset(masks, words)
    digest = hash_masked(key, masks, places, words)
    slots = slots_of(space.slots[0])
    mask = slots[0]
    if not may_have(slots, digest):
        return 0
    # Inlined by hand, as in `lookup_exact`.
    position = digest & mask
    while True:
        slot = load_acquire(slots[position + 1])
        if slot == 0:
            return slot
        if may_be(slot, digest) and same_masked(key_at(slot, RECORD_BYTES), key, space):
            return slot & ADDRESS
        position = (position + 1) & mask


@kernel(inline=True)
def compare_words(left: Array[u64], right: Array[u64], words: u64) -> u32:
    """Return 0 where left is less, 1 where they are equal, 2 where it is greater."""
    word = words
    while word > 0:
        word -= 1
        if left[word] < right[word]:
            return 0
        if left[word] > right[word]:
            return 2
    return 1


@kernel
def in_ranges(record: MaskRecord, key: Array[u64], space: Space) -> bool:
    """Return whether a key lies in all ranges of a record."""
    item = array_at(u64, address(record) + RECORD_BYTES + space.words * 8)
    for _ in range(as_u64(record.ranges)):
        first = item[0] & 0xFFFF_FFFF
        words = item[0] >> 32
        low = offset(item, 1)
        high = offset(low, words)
        value = offset(key, first)
        if compare_words(value, low, words) == 0 or compare_words(value, high, words) == 2:
            return False
        item = offset(high, words)
    return True


@kernel(inline=True)
def outranks(record: MaskRecord, best: MaskRecord) -> bool:
    """Return whether a record is better than the best one so far, which may be null."""
    if address(best) == 0:
        return True
    if record.priority != best.priority:
        return record.priority > best.priority
    return record.sequence < best.sequence


@kernel(inline=True)
def is_empty_mask(table: MaskTable) -> bool:
    """Return whether a table has no entry, so that no key has to be made."""
    return array_at(u64, load_acquire(table.rows))[0] == 0


@kernel
def lookup_mask(table: MaskTable, key: Array[u64]) -> Entry:
    """Return the highest-priority entry, the oldest among equals, that covers a key; null if there is none."""
    rows = array_at(u64, load_acquire(table.rows))
    best = view(MaskRecord, 0)
    for row in range(rows[0]):
        if address(best) != 0 and as_u64(best.priority) > load_relaxed(rows[2 * row + 1]):
            break
        space = view(Space, rows[2 * row + 2])
        record = best_of(space, key)
        while record != 0:
            candidate = view(MaskRecord, record)
            if not outranks(candidate, best):
                break
            if candidate.ranges == 0 or in_ranges(candidate, key, space):
                best = candidate
                break
            record = load_acquire(candidate.next)
    return view(Entry, address(best))


@kernel
def make_mask_record(memory: Memory, space: Space, request: Array[u64]) -> u64:
    """Return a record for a request, not linked, or 0 without memory."""
    words = space.words + request[RANGE_WORDS]
    block = allocate(memory, RECORD_BYTES // 8 + words + request[ARGUMENT_WORDS])
    if block != 0:
        record = view(MaskRecord, block)
        record.next = 0
        record.sequence = 0
        record.priority = as_u32(request[PRIORITY])
        record.ranges = as_u32(request[RANGES])
        key = array_at(u64, block + RECORD_BYTES)
        copy_words(key, offset(request, MASK_HEAD_WORDS), words)
        fill_entry(block, request, offset(request, MASK_HEAD_WORDS + words), address(offset(key, words)))
    return block


@kernel
def is_same(record: MaskRecord, space: Space, request: Array[u64]) -> bool:
    """Return whether a record has a request's priority and ranges; its masked values are known to be the same."""
    if record.priority != as_u32(request[PRIORITY]) or record.ranges != as_u32(request[RANGES]):
        return False
    present = array_at(u64, address(record) + RECORD_BYTES + space.words * 8)
    return same_words(present, offset(request, MASK_HEAD_WORDS + space.words), request[RANGE_WORDS])


@kernel(inline=True)
def link(space: Space, slot: u64, previous: u64, record: u64) -> None:
    """Publish a record after `previous`, or at the head of the list whose slot number is `slot`."""
    if previous == 0:
        slots = slots_of(space.slots[0])
        store_release(slots[slot], record | slots[slot] & TAG)
    else:
        store_release(view(MaskRecord, previous).next, record)


@kernel
def put_in_list(memory: Memory, space: Space, slot: u64, block: u64, request: Array[u64]) -> None:
    """Link a record into the list at a place: replacing an equal one, or after those that are as good."""
    record = view(MaskRecord, block)
    previous: u64 = 0
    current = slots_of(space.slots[0])[slot] & ADDRESS
    while current != 0:
        present = view(MaskRecord, current)
        if present.priority < record.priority:
            break
        if is_same(present, space, request):
            record.sequence = present.sequence
            record.next = present.next
            link(space, slot, previous, block)
            retire(memory, current)
            return
        previous = current
        current = present.next
    record.next = current
    link(space, slot, previous, block)


@kernel
def put_mask(memory: Memory, table: MaskTable, space: Space, request: Array[u64]) -> u32:
    """Insert an entry into its space, or replace the one with its match and priority."""
    if not begin_write(memory):
        return NO_MEMORY
    block = make_mask_record(memory, space, request)
    if block == 0:
        return NO_MEMORY
    table.sequence += 1
    view(MaskRecord, block).sequence = table.sequence
    slot = find_slot(space.slots[0], offset(request, MASK_HEAD_WORDS), space.words, RECORD_BYTES)
    if slot != NOWHERE:
        put_in_list(memory, space, slot, block, request)
        return DONE
    if add_record(memory, space.slots[0], block, space.words, RECORD_BYTES):
        return DONE
    release(memory, block)
    return NO_MEMORY


@kernel
def remove_mask(memory: Memory, space: Space, request: Array[u64]) -> u32:
    """Remove the entry with a request's match and priority from its space."""
    if not begin_write(memory):
        return NO_MEMORY
    slot = find_slot(space.slots[0], offset(request, MASK_HEAD_WORDS), space.words, RECORD_BYTES)
    if slot == NOWHERE:
        return MISSING
    previous: u64 = 0
    current = slots_of(space.slots[0])[slot] & ADDRESS
    while current != 0:
        record = view(MaskRecord, current)
        if is_same(record, space, request):
            if previous == 0 and record.next == 0:
                remove_slot(memory, space.slots[0], slot, space.words, RECORD_BYTES)
            else:
                link(space, slot, previous, record.next)
            retire(memory, current)
            return DONE
        previous = current
        current = record.next
    return MISSING


@kernel
def make_space(memory: Memory, masks: Array[u64], words: u64) -> u64:
    """Return an empty space, or 0 without memory; no row points to it yet. The positions follow the masks."""
    block = allocate(memory, SPACE_BYTES // 8 + 2 * words)
    if block == 0:
        return block
    space = view(Space, block)
    space.words = words
    if not make_slots(memory, space.slots[0]):
        release(memory, block)
        return 0
    copy_words(masks_of(space), masks, 2 * words)
    return block


@kernel
def make_rows(memory: Memory, table: MaskTable) -> bool:
    """Initialize a table without spaces; return whether there was memory."""
    rows = allocate(memory, 1)
    if rows == 0:
        return False
    array_at(u64, rows)[0] = 0
    table.rows = rows
    return True


@kernel
def copy_rows(target: Array[u64], source: Array[u64], target_row: u64, source_row: u64, count: u64) -> None:
    """Copy rows from one array of them to another."""
    to = address(target) + 8 + target_row * 16
    copy(array_at(u8, to), array_at(u8, address(source) + 8 + source_row * 16), count * 16)


@kernel
def insert_row(memory: Memory, table: MaskTable, row: u64, priority: u64, space: u64) -> u32:
    """Insert a space before the one in `row`; every lookup sees all spaces."""
    if not begin_write(memory):
        return NO_MEMORY
    old = array_at(u64, table.rows)
    block = allocate(memory, 2 * old[0] + 3)
    if block == 0:
        return NO_MEMORY
    fresh = array_at(u64, block)
    fresh[0] = old[0] + 1
    copy_rows(fresh, old, 0, 0, row)
    fresh[2 * row + 1] = priority
    fresh[2 * row + 2] = space
    copy_rows(fresh, old, row + 1, row, old[0] - row)
    store_release(table.rows, block)
    retire(memory, address(old))
    return DONE


@kernel
def move_row(memory: Memory, table: MaskTable, source: u64, target: u64, priority: u64) -> u32:
    """Give the space in a row another priority, and another row, counted without it; lookups see every space."""
    old = array_at(u64, table.rows)
    if source == target:
        store_release(old[2 * source + 1], priority)
        return DONE
    if not begin_write(memory):
        return NO_MEMORY
    block = allocate(memory, 2 * old[0] + 1)
    if block == 0:
        return NO_MEMORY
    fresh = array_at(u64, block)
    fresh[0] = old[0]
    low = source if source < target else target
    high = source if source > target else target
    copy_rows(fresh, old, 0, 0, low)
    if source < target:
        copy_rows(fresh, old, low, low + 1, high - low)
    else:
        copy_rows(fresh, old, low + 1, low, high - low)
    copy_rows(fresh, old, high + 1, high + 1, old[0] - high - 1)
    fresh[2 * target + 1] = priority
    fresh[2 * target + 2] = old[2 * source + 2]
    store_release(table.rows, block)
    retire(memory, address(old))
    return DONE


@kernel
def remove_row(memory: Memory, table: MaskTable, row: u64) -> u32:
    """Take an empty space out of the table."""
    if not begin_write(memory):
        return NO_MEMORY
    old = array_at(u64, table.rows)
    block = allocate(memory, 2 * old[0] - 1)
    if block == 0:
        return NO_MEMORY
    fresh = array_at(u64, block)
    fresh[0] = old[0] - 1
    copy_rows(fresh, old, 0, 0, row)
    copy_rows(fresh, old, row, row + 1, old[0] - row - 1)
    space = view(Space, old[2 * row + 2])
    store_release(table.rows, block)
    retire(memory, address(slots_of(space.slots[0])))
    retire(memory, address(space))
    retire(memory, address(old))
    return DONE


@kernel
def drop_space(memory: Memory, space: Space, later: bool) -> bool:
    """Free, or retire, a space and all records in it; return whether there was room to retire them."""
    slots = slots_of(space.slots[0])
    for slot in range(slots[0] + 1):
        record = slots[slot + 1] & ADDRESS if is_record(slots[slot + 1]) else 0
        while record != 0:
            following = view(MaskRecord, record).next
            if not drop(memory, record, later):
                return False
            record = following
    return drop(memory, address(slots), later) and drop(memory, address(space), later)


@kernel
def drop(memory: Memory, block: u64, later: bool) -> bool:
    """Free a block now, or once no reader can hold it; return whether there was room to record that."""
    if not later:
        release(memory, block)
    elif reserve(memory, 1):
        retire(memory, block)
    else:
        return False
    return True


@kernel
def drop_mask(memory: Memory, table: MaskTable, later: bool) -> bool:
    """Free, or retire, everything that a table holds; return whether there was room to retire it."""
    rows = array_at(u64, table.rows)
    for row in range(rows[0]):
        if not drop_space(memory, view(Space, rows[2 * row + 2]), later):
            return False
    return drop(memory, address(rows), later)
