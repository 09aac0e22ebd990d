"""Native tables against the linear reference, under random changes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dataplane.native import Kernel
from dataplane.program.objects import KeyField, MatchKind, TableSpec
from dataplane.switch.tables import TableEntry
from dataplane.switch.tables.match import FieldMatch, Match, all_ones, needs_priority, prefix_mask
from dataplane.switch.tables.native import lookup_kernel
from dataplane.switch.tables.native.exact import lookup_exact
from dataplane.switch.tables.native.mask import lookup_mask
from dataplane.switch.tables.native.trie import lookup_trie
from dataplane.switch.tables.rows import MAX_WIDTH, RowLayout, Rows, row_words, words_a_field
from tests.dataplane.switch.tables.native.harness import ACTIONS, NativeBench, one_table, send
from tests.reference.match_index import LinearIndex

Keys = tuple[KeyField, ...]
EXACT = KeyField("port", MatchKind.EXACT, 3)
LPM = KeyField("dst", MatchKind.LPM, 19)
LONG = KeyField("dst6", MatchKind.LPM, 128)
TERNARY = KeyField("proto", MatchKind.TERNARY, 5)
WIDE = KeyField("source6", MatchKind.TERNARY, 100)
RANGE = KeyField("l4", MatchKind.RANGE, 5)
WIDE_RANGE = KeyField("span", MatchKind.RANGE, 70)
OPTIONAL = KeyField("vrf", MatchKind.OPTIONAL, 3)
KEYS: list[Keys] = [
    (EXACT,),
    (EXACT, KeyField("mac", MatchKind.EXACT, 65)),
    (KeyField("few", MatchKind.LPM, 5),),
    (LPM,),
    (KeyField("v4", MatchKind.LPM, 32),),
    (LONG,),
    (EXACT, LPM),
    (LPM, EXACT),
    (TERNARY,),
    (RANGE,),
    (WIDE_RANGE, RANGE),
    (OPTIONAL,),
    (TERNARY, RANGE, OPTIONAL, LPM, EXACT),
    (WIDE, LONG),
]


@pytest.mark.parametrize(
    ("keys", "kernel"),
    [
        ((), lookup_exact),
        ((EXACT, EXACT), lookup_exact),
        ((LPM,), lookup_trie),
        ((LONG,), lookup_mask),
        ((LPM, EXACT), lookup_mask),
        ((LPM, TERNARY), lookup_mask),
    ],
)
def test_the_kernel_is_chosen_by_the_key(keys: Keys, kernel: Kernel[..., Any]) -> None:
    assert lookup_kernel(keys) is kernel


def value_of(key: KeyField) -> st.SearchStrategy[int]:
    """Draw values that few bits tell apart, high and low ones, so that prefixes and ranges overlap."""
    ones = all_ones(key.width)
    few = st.integers(0, min(7, ones))
    return few | few.map(lambda value: ones ^ value) | few.map(lambda value: value << max(0, key.width - 3))


def field_match(key: KeyField) -> st.SearchStrategy[FieldMatch]:
    values = value_of(key)
    match key.kind:
        case MatchKind.EXACT:
            return values
        case MatchKind.OPTIONAL:
            return st.none() | values
        case MatchKind.LPM:
            lengths = st.integers(0, key.width)
            return st.tuples(values, lengths).map(lambda pair: (pair[0] & prefix_mask(key.width, pair[1]), pair[1]))
        case MatchKind.TERNARY:
            return st.tuples(values, values).map(lambda pair: (pair[0] & pair[1], pair[1]))
        case MatchKind.RANGE:
            return st.tuples(values, values).map(lambda pair: (min(pair), max(pair)))


def borders_of(key: KeyField, part: FieldMatch) -> tuple[int, int]:
    """Return the smallest and the largest value that satisfy a field's match."""
    ones = all_ones(key.width)
    match key.kind, part:
        case _, None:
            return 0, ones
        case _, int():
            return part, part
        case MatchKind.RANGE, (low, high):
            return low, high
        case MatchKind.LPM, (value, length):
            return value, value | ones ^ prefix_mask(key.width, length)
        case _, (value, mask):
            return value, value | ones ^ mask


def rows_of(spec: TableSpec, names: Iterable[tuple[Match, int]], numbers: Iterable[int]) -> Rows:
    """Return rows of entries whose action is `send`, its wide argument in two words."""
    words: list[int] = []
    for (match, priority), number in zip(names, numbers, strict=True):
        words += (1, priority, 1, 0, 0, 0, 3)
        for key, part in zip(spec.keys, match, strict=True):
            ones = all_ones(key.width)
            pair = part if isinstance(part, tuple) else (0, 0) if part is None else (part, ones)
            words += pair[: words_a_field(spec.keys)]
        words += (number, number, number)
    layout = RowLayout(spec, list(ACTIONS), row_words(spec.keys, 3))
    return Rows(layout, memoryview(bytearray(struct.pack(f"={len(words)}Q", *words))))


class Tables(RuleBasedStateMachine):
    """One table with its native side, and the reference; entries are told apart by their port."""

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.keys = data.draw(st.sampled_from(KEYS), "keys")
        self.bench = NativeBench(one_table(self.keys))
        self.reference = LinearIndex(self.keys)
        self.number = 0

    @rule(data=st.data())
    def put(self, data: st.DataObject) -> None:
        match: Match = data.draw(st.tuples(*map(field_match, self.keys)), "match")
        priority = data.draw(st.integers(1, 4), "priority") if needs_priority(self.keys) else 0
        self.number += 1
        entry = TableEntry(match, priority, call=send(self.number))
        if self.reference.get(match, priority) is None:
            self.bench.table.insert(entry)
        else:
            self.bench.table.modify(entry)
        self.reference.put(entry)

    @rule(data=st.data())
    def put_rows(self, data: st.DataObject) -> None:
        if any(key.kind is MatchKind.RANGE or key.width > MAX_WIDTH for key in self.keys):
            return
        matches = st.tuples(*map(field_match, self.keys))
        priorities = st.integers(1, 4) if needs_priority(self.keys) else st.just(0)
        names = data.draw(st.lists(st.tuples(matches, priorities), max_size=6), "names")
        numbers = range(self.number + 1, self.number + 1 + len(names))
        self.number += len(names)
        count = self.bench.table.insert_rows(rows_of(self.bench.table.spec, names, numbers))
        assert count == (len(names) if self._are_new(names) else 0)
        for (match, priority), number in [*zip(names, numbers, strict=True)][:count]:
            self.reference.put(TableEntry(match, priority, call=send(number)))

    def _are_new(self, names: Sequence[tuple[Match, int]]) -> bool:
        return len(set(names)) == len(names) and all(self.reference.get(*name) is None for name in names)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        present = list(self.reference)
        if present:
            entry = data.draw(st.sampled_from(present), "gone")
            self.bench.table.delete(entry.match, entry.priority)
            self.reference.remove(entry.match, entry.priority)

    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        key = data.draw(st.tuples(*map(value_of, self.keys)), "key")
        entry = self.reference.lookup(key)
        assert self.bench.hit(*key) == (None if entry is None else entry.call)
        own = self.bench.table.lookup(key)
        assert own is self.bench.table.lookup(key)
        assert (own and (own.match, own.priority)) == (entry and (entry.match, entry.priority))

    @rule()
    def change_the_default(self) -> None:
        self.number += 1
        self.bench.table.set_default(send(self.number))
        assert self.bench.default() == send(self.number)

    @rule()
    def collect(self) -> None:
        assert self.bench.native.collect() == 0

    @invariant()
    def entries_hit_at_their_borders(self) -> None:
        """Look up the first and the last value of each entry."""
        for entry in getattr(self, "reference", ()):
            borders = [borders_of(key, part) for key, part in zip(self.keys, entry.match, strict=True)]
            for values in zip(*borders, strict=True):
                hit = self.reference.lookup(values)
                assert hit is not None
                assert self.bench.hit(*values) == hit.call

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.release()


Tables.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestTables = Tables.TestCase
