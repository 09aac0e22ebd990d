"""Choices of an entry with a member, a group or an action set, and the selection by hash.

`Entry.choice` is the address of a word that holds the address of the present choice: all entries of a group share that
word, so that one store changes them all. A choice is immutable: it is replaced and retired.
"""

from __future__ import annotations

from dataplane.native import (
    Array,
    Struct,
    address,
    array_at,
    as_u32,
    kernel,
    load_acquire,
    offset,
    sizeof,
    store_release,
    u32,
    u64,
    view,
)
from dataplane.switch.abi import Entry
from dataplane.switch.tables.native.memory import Memory, allocate, begin_write, release, retire
from dataplane.switch.tables.native.records import DONE, ENTRY_BYTES, NO_MEMORY, copy_words


class Choice(Struct):
    """Actions by weight; followed by the running sums of their weights, then their entries, then all arguments."""

    total: u64  # sum of weights
    count: u64


CHOICE_BYTES = sizeof(Choice)
ENTRY_WORDS = ENTRY_BYTES // 8


@kernel(inline=True)
def select_member(entry: Entry, digest: u64) -> Entry:
    """Return the action at place `digest` modulo the sum of weights; null if the group or action set is empty."""
    choice = view(Choice, load_acquire(array_at(u64, entry.choice)[0]))
    if choice.total == 0:
        return view(Entry, 0)
    ends = array_at(u64, address(choice) + CHOICE_BYTES)
    index: u64 = 0
    if choice.count > 1:
        index = first_above(ends, choice.count, digest % choice.total)
    return view(Entry, address(offset(ends, choice.count + index * ENTRY_WORDS)))


@kernel
def first_above(ends: Array[u64], count: u64, value: u64) -> u64:
    """Return the index of the first of ascending numbers above a value; the last one is."""
    low: u64 = 0
    high = count - 1
    while low < high:
        middle = (low + high) // 2
        if ends[middle] > value:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def make_choice(memory: Memory, request: Array[u64]) -> u64:
    """Return a choice, or 0 without memory.

    The request has total, count, words of the choice; for each action its end, number, argument words; all arguments.
    """
    count = request[1]
    block = allocate(memory, request[2])
    if block == 0:
        return block
    choice = view(Choice, block)
    choice.total = request[0]
    choice.count = count
    ends = array_at(u64, block + CHOICE_BYTES)
    entries = offset(ends, count)
    target = offset(entries, count * ENTRY_WORDS)
    source = offset(request, 3 + 3 * count)
    for index in range(count):
        ends[index] = request[3 + 3 * index]
        entry = view(Entry, address(offset(entries, index * ENTRY_WORDS)))
        entry.action = as_u32(request[4 + 3 * index])
        entry.flags = 0
        entry.choice = 0
        entry.tally = 0
        entry.meter = 0
        entry.arguments = target
        words = request[5 + 3 * index]
        copy_words(target, source, words)
        target = offset(target, words)
        source = offset(source, words)
    return block


@kernel
def put_choice(memory: Memory, handle: Array[u64], request: Array[u64]) -> u32:
    """Make a choice and let a handle hold it in place of the present one."""
    if not begin_write(memory):
        return NO_MEMORY
    block = make_choice(memory, request)
    if block == 0:
        return NO_MEMORY
    old = handle[0]
    store_release(handle[0], block)
    retire(memory, old)
    return DONE


@kernel
def make_handle(memory: Memory, request: Array[u64]) -> u64:
    """Return a word that holds a new choice, or 0 without memory."""
    handle = allocate(memory, 1)
    if handle != 0:
        block = make_choice(memory, request)
        if block == 0:
            release(memory, handle)
            return 0
        array_at(u64, handle)[0] = block
    return handle


@kernel
def retire_handle(memory: Memory, handle: Array[u64]) -> u32:
    """Retire a handle that no entry uses any more, and its choice."""
    if not begin_write(memory):
        return NO_MEMORY
    retire(memory, handle[0])
    retire(memory, address(handle))
    return DONE


@kernel
def free_handle(memory: Memory, handle: Array[u64]) -> None:
    """Free a handle and its choice; no reader may be left."""
    release(memory, handle[0])
    release(memory, address(handle))
