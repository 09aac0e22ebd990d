"""Lock-free readers alongside a writer: nothing is missed, torn, or freed too early."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest

from dataplane.native import (
    Array,
    Kernel,
    address,
    atomic_add,
    fence,
    kernel,
    kernel_library,
    load_acquire,
    offset,
    store_release,
    u64,
    view,
)
from dataplane.program.objects import KeyField, MatchKind
from dataplane.switch.abi import Entry, Machine, TableHead
from dataplane.switch.tables import TableEntry
from dataplane.switch.tables.match import Match
from dataplane.switch.tables.native.exact import ExactTable, lookup_exact
from dataplane.switch.tables.native.mask import MaskTable, lookup_mask
from dataplane.switch.tables.native.memory import BATCH
from dataplane.switch.tables.native.trie import TrieTable, lookup_trie
from tests.dataplane.switch.tables.native.harness import MakeBench, NativeBench, one_table, send

BURST = 32
WORDS = 4
"""Words per row of the reader: two key words, the port that must be found (0: it may come and go), one unused."""


@kernel
def is_torn(entry: Entry) -> bool:
    """Return whether an entry's arguments do not belong together."""
    port = entry.arguments[0]
    return entry.arguments[1] != port or entry.arguments[2] != port


def reader_of(lookup: Kernel[..., Any], kind: type[Any]) -> Kernel[..., Any]:
    """Return a kernel that looks rows up, in bursts, until told[0]; then told: missed, wrong or torn, bursts."""

    @kernel(name=f"read_{kind.__name__}")
    def read(machine: Machine, head: TableHead, rows: Array[u64], count: u64, told: Array[u64]) -> None:
        table = view(kind, address(head))
        row: u64 = 0
        while load_acquire(told[0]) == 0:
            store_release(machine.epoch, machine.epoch + 1)
            fence()
            for _ in range(BURST):
                key = offset(rows, row * WORDS)
                entry = lookup(table, key)
                if address(entry) == 0:
                    if key[2] != 0:
                        atomic_add(told[1], 1)
                elif is_torn(entry) or (key[2] != 0 and entry.arguments[0] != key[2]):
                    atomic_add(told[2], 1)
                row = (row + 1) % count
            store_release(machine.epoch, machine.epoch + 1)
            atomic_add(told[3], 1)

    return read


EXACT = KeyField("e", MatchKind.EXACT, 32)
LPM = KeyField("l", MatchKind.LPM, 32)
TERNARY = KeyField("t", MatchKind.TERNARY, 32)
RANGE = KeyField("r", MatchKind.RANGE, 16)


def exact_entry(number: int, port: int, stable: bool) -> TableEntry:
    return TableEntry((2 * number + stable,), call=send(port))


def prefix_entry(number: int, port: int, stable: bool) -> TableEntry:
    """Return host routes that stay, and shorter prefixes around them that come and go."""
    value = number * 0x0001_0081 & 0xFFFF_FFFF
    length = 32 if stable else 12 + number % 16
    return TableEntry(((value >> (32 - length) << (32 - length), length),), call=send(port))


def mask_entry(number: int, port: int, stable: bool) -> TableEntry:
    """Return entries that overlap, in spaces that come and go; what stays has the larger priority."""
    mask = 0xFFFF_FFFF if stable else 0xFFFF_FFFF << number % 20 & 0xFFFF_FFFF
    bounds = (number & 0xFF, 0xFFFF) if stable else (number % 7, 0xF000)
    priority = 2000 if stable else 1 + number % 1000
    return TableEntry(((number * 3 & mask, mask), bounds), priority, call=send(port))


MakeEntry = Callable[[int, int, bool], TableEntry]


def key_of(match: Match) -> list[int]:
    first = [part[0] if isinstance(part, tuple) else part or 0 for part in match]
    return [*first, 0][:2]


@contextmanager
def reading(bench: NativeBench, read: Kernel[..., Any], rows: list[list[int]]) -> Iterator[Any]:
    """Look the rows up in another thread while the block lasts; yield its counts, complete afterwards."""
    flat = [word for row in rows for word in row]
    told, data = (ctypes.c_uint64 * 4)(), (ctypes.c_uint64 * len(flat))(*flat)
    function = kernel_library(read).bind(read)
    thread = Thread(target=function, args=(bench.machine, bench.table_address(), data, len(rows), told))
    thread.start()
    try:
        yield told
    finally:
        told[0] = 1
        thread.join()


@pytest.mark.parametrize(
    ("keys", "lookup", "kind", "make_entry"),
    [
        ((EXACT,), lookup_exact, ExactTable, exact_entry),
        ((LPM,), lookup_trie, TrieTable, prefix_entry),
        ((TERNARY, RANGE), lookup_mask, MaskTable, mask_entry),
    ],
    ids=["exact", "trie", "mask"],
)
def test_what_is_not_changed_is_never_missed(
    make: MakeBench, keys: tuple[KeyField, ...], lookup: Kernel[..., Any], kind: type[Any], make_entry: MakeEntry
) -> None:
    bench = make(one_table(keys))
    stable = [make_entry(number, number + 1, True) for number in range(300)]
    volatile = {(entry.match, entry.priority): entry for entry in (make_entry(n, n + 1, False) for n in range(3000))}
    for entry in stable:
        bench.table.insert(entry)
    rows = [[*key_of(entry.match), send_port(entry), 0] for entry in stable]
    rows += [[*key_of(match), 0, 0] for match, _ in list(volatile)[::10]]
    rng = random.Random(1)
    with reading(bench, reader_of(lookup, kind), rows) as told:
        for _ in range(3):
            for entry in volatile.values():
                bench.table.insert(entry)
            for number, entry in enumerate(volatile.values()):
                bench.table.modify(TableEntry(entry.match, entry.priority, call=send(number + 7)))
            gone = list(volatile.values())
            rng.shuffle(gone)
            for entry in gone:
                bench.table.delete(entry.match, entry.priority)
    missed, wrong, rounds = told[1:]
    assert (missed, wrong) == (0, 0)
    assert rounds > 100


def send_port(entry: TableEntry) -> int:
    assert entry.call is not None
    return entry.call.arguments[0]


def test_nothing_is_freed_while_a_machine_is_in_a_burst(make: MakeBench) -> None:
    bench = make(one_table((EXACT,)))
    other = Machine()
    bench.native.fill(other)
    bench.native.register_machine(other)
    for number in range(2 * BATCH):
        bench.insert(number, port=number)
    bench.machine.epoch = 1
    held = [bench.find(number) for number in range(2 * BATCH)]
    for number in range(2 * BATCH):
        bench.table.delete((number,))
        bench.insert(number, port=number + 1)
    blocks = bench.native.blocks
    assert bench.native.collect() >= 2 * BATCH
    assert bench.native.blocks == blocks
    assert [bench.call(entry) for entry in held] == [send(number) for number in range(2 * BATCH)]
    other.epoch = 7  # another machine's later burst does not delay objects closed before
    bench.machine.epoch = 3
    bench.native.collect()
    assert bench.native.blocks < blocks
    other.epoch = 8
    bench.machine.epoch = 4
    assert bench.native.collect() == 0


def test_a_machine_that_is_gone_holds_nothing_up(make: MakeBench) -> None:
    bench = make(one_table((EXACT,)))
    bench.machine.epoch = 1
    bench.insert(1)
    bench.table.delete((1,))
    assert bench.native.collect() > 0
    bench.native.unregister_machine(bench.machine)
    assert bench.native.collect() == 0


def test_waiting_memory_is_bounded(make: MakeBench) -> None:
    bench = make(one_table((EXACT,)))
    bench.insert(1)
    blocks = bench.native.blocks
    for number in range(20 * BATCH):
        bench.table.modify(TableEntry((1,), call=send(number)))
        bench.machine.epoch += 2
    assert bench.native.blocks <= blocks + 3 * BATCH


def test_a_tally_outlives_its_entry_while_a_packet_may_count(make: MakeBench) -> None:
    bench = make(one_table((EXACT,), direct_counter="hits"))
    bench.insert(1)
    bench.machine.epoch = 1
    entry = bench.find(1)
    assert entry is not None
    bench.table.delete((1,))
    for number in range(2, 50):
        bench.insert(number)  # would take the memory of a tally that is gone
    ctypes.c_uint64.from_address(entry.tally).value += 1
    assert all(present.packets == 0 for present in bench.table)
