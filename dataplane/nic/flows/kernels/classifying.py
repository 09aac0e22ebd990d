"""Finds the rule that a frame matches: tuple space search over immutable tables.

(Srinivasan, Suri, Varghese, "Packet classification using tuple space search", SIGCOMM 1999.) A table has one hash table
for each combination of masks; they are searched in order of their best rules, until none can have a better one.
"""

from __future__ import annotations

from dataplane.native import (
    Array,
    address,
    array_at,
    as_u64,
    atomic_add,
    kernel,
    load_acquire,
    sizeof,
    stack_array,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.hashing import finish, part
from dataplane.native.open_addressing import next_tagged
from dataplane.nic.flows.fields import KEY_WORDS
from dataplane.nic.flows.kernels.flow_key import read_key
from dataplane.nic.flows.structures import (
    ADDRESS_MASK,
    STRIPE_BYTES,
    STRIPES,
    TAG_SHIFT,
    Classifier,
    FlowGroup,
    FlowLookup,
    FlowRange,
    FlowRecord,
    FlowRow,
    FlowTable,
    Hits,
)
from dataplane.nic.structures import Verdict

RECORD_BYTES = sizeof(FlowRecord)


@kernel(inline=True)
def values_of(record: u64) -> Array[u64]:
    """Return a record's values, one for each word that its group matches."""
    return array_at(u64, record + RECORD_BYTES)


@kernel(inline=True)
def hash_key(group: FlowGroup, key: Array[u64]) -> u64:
    """Return the hash of the part of a key that a group matches."""
    state: u64 = 0
    for word in range(group.words):
        state += part(key[group.key_words[word]] & group.masks[word], word)
    return finish(state)


@kernel(inline=True)
def has_values(group: FlowGroup, record: u64, key: Array[u64]) -> bool:
    """Return whether a key has a record's values."""
    values = values_of(record)
    for word in range(group.words):  # noqa: SIM110 - kernels have no generators
        if values[word] != key[group.key_words[word]] & group.masks[word]:
            return False
    return True


@kernel(inline=True)
def find_values(group: FlowGroup, key: Array[u64]) -> u64:
    """Return the address of a group's best record with a key's values, 0 if there is none."""
    slots = array_at(u64, group.slots)
    digest = hash_key(group, key)
    # Inlined by hand: with `next_tagged`, rules of eight masks classify at 0.94 of the rate, rules of one mask at 0.99.
    position = digest & group.slot_mask
    while True:
        slot = slots[position]
        if slot == 0:
            return slot
        if slot >> TAG_SHIFT == digest >> TAG_SHIFT and has_values(group, slot & ADDRESS_MASK, key):
            return slot & ADDRESS_MASK
        position = (position + 1) & group.slot_mask


@kernel(inline=True)
def is_below(high: u64, low: u64, other_high: u64, other_low: u64) -> bool:
    """Return whether one two-word number is less than another."""
    return high < other_high or (high == other_high and low < other_low)


@kernel
def is_in_ranges(group: FlowGroup, record: FlowRecord, key: Array[u64]) -> bool:
    """Return whether a key lies in all ranges of a record."""
    ranges = array_at(FlowRange, address(record) + RECORD_BYTES + group.words * 8)
    for index in range(record.ranges):
        bounds = ranges[index]
        low = key[bounds.word] >> as_u64(bounds.shift) & bounds.mask
        high: u64 = key[bounds.word + 1] if bounds.is_wide != 0 else 0
        if is_below(high, low, bounds.first_high, bounds.first):
            return False
        if is_below(bounds.last_high, bounds.last, high, low):
            return False
    return True


@kernel(inline=True)
def find_record(table: FlowTable, key: Array[u64]) -> u64:
    """Return the address of the best record that matches a key, 0 if there is none."""
    rows = array_at(FlowRow, table.rows)
    best: u64 = 0
    rank: u64 = 0
    for index in range(table.count):
        if rank > rows[index].rank:
            break
        group = view(FlowGroup, rows[index].group)
        candidate = find_values(group, key)
        while candidate != 0:
            record = view(FlowRecord, candidate)
            if record.rank < rank:
                break
            if record.ranges == 0 or is_in_ranges(group, record, key):
                best = candidate
                rank = record.rank
                break
            candidate = record.next
    return best


@kernel(inline=True)
def classify(classifier: Classifier, frame: Array[u8], length: u32, queue: u32, verdict: Verdict) -> None:
    """Decide what happens to a frame, and count it for its rule; the caller's epoch is odd."""
    key = stack_array(u64, KEY_WORDS)
    verdict.flow_hash = read_key(frame, length, queue, key)
    table = view(FlowTable, load_acquire(classifier.table))
    best = find_record(table, key)
    if best == 0:
        best = address(table.default)
    record = view(FlowRecord, best)
    verdict.action = record.action
    verdict.group = record.group
    verdict.mark = record.mark
    verdict.rule = record.rule
    verdict.function = record.function
    verdict.context = record.context
    if record.counter != 0:
        hits = view(Hits, record.counter + (as_u64(queue) & (STRIPES - 1)) * STRIPE_BYTES)
        atomic_add(hits.packets, 1)
        atomic_add(hits.bytes, as_u64(length))


@kernel
def classify_one(classifier: Classifier, frame: Array[u8], length: u32, queue: u32, lookup: FlowLookup) -> None:
    """Classify a frame from Python, and also return its key."""
    classify(classifier, frame, length, queue, lookup.verdict[0])
    read_key(frame, length, queue, lookup.key)


@kernel
def fill_group(group: FlowGroup, records: u64, count: u64, record_bytes: u64) -> None:
    """Put adjacent records, best first, into a group's empty slots, of which there are more."""
    slots = array_at(u64, group.slots)
    key = stack_array(u64, KEY_WORDS)
    for back in range(count):
        block = records + (count - 1 - back) * record_bytes
        values = values_of(block)
        for word in range(group.words):
            key[group.key_words[word]] = values[word]
        digest = hash_key(group, key)
        tag = digest >> TAG_SHIFT
        slot = next_tagged(slots, group.slot_mask, digest & group.slot_mask, tag, TAG_SHIFT)
        while slots[slot] != 0 and not has_values(group, slots[slot] & ADDRESS_MASK, key):
            slot = next_tagged(slots, group.slot_mask, (slot + 1) & group.slot_mask, tag, TAG_SHIFT)
        view(FlowRecord, block).next = slots[slot] & ADDRESS_MASK
        slots[slot] = block | tag << TAG_SHIFT
