"""The native side of tables: each mirror follows one table, in the layout of its kind of key."""

from __future__ import annotations

import ctypes
from abc import abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from dataplane.errors import EntryError
from dataplane.program.objects import KeyField, MatchKind
from dataplane.switch.abi import TableHead
from dataplane.switch.tables.arrays import word_count
from dataplane.switch.tables.entry import TableEntry
from dataplane.switch.tables.match import Match, needs_priority
from dataplane.switch.tables.native import bulk, exact, mask, memory, publish, trie
from dataplane.switch.tables.native.exact import ExactTable
from dataplane.switch.tables.native.heap import Heap
from dataplane.switch.tables.native.kernel_calls import check, check_made, function
from dataplane.switch.tables.native.mask import MaskTable
from dataplane.switch.tables.native.profile import ProfileMirror
from dataplane.switch.tables.native.requests import (
    NO_ACTION,
    ActionTable,
    MatchSplitter,
    Request,
    SplitMatch,
    exact_words,
)
from dataplane.switch.tables.native.trie import LENGTHS, STRIDE, TrieTable
from dataplane.switch.tables.priorities import PriorityCount
from dataplane.switch.tables.rows import KEY, PRIORITY, Rows
from dataplane.switch.tables.table import Table

Head = tuple[int, int, int, int]
"""Action, choice, tally, meter."""


class TableMirror:
    """Base of all mirrors; `head` is the struct passed to compiled code."""

    head: TableHead

    def __init__(self, table: Table, profile: ProfileMirror | None, actions: ActionTable, heap: Heap) -> None:
        self._table, self._name = table, table.spec.name
        self._profile, self._actions, self._heap = profile, actions, heap
        self._request = Request(self._name)

    def follow(self) -> None:
        """Copy the table's contents, and follow every change from now on; the table's lock is held."""
        self.set_default(self._table.default_entry)
        for entry in self._table:
            self.put(entry, None)
        self._table.observers += (self,)

    def put(self, entry: TableEntry, present: TableEntry | None) -> None:
        """Follow the table."""
        arguments: tuple[int, ...] = ()
        action = choice = old_handle = 0
        if entry.call is not None:
            action, arguments = self._actions.words(entry.call)
        elif self._profile is not None:
            if present is not None:
                old_handle = self._profile.one_shot(self._name, entry.match, entry.priority)
            choice = self._profile.choice(self._name, entry)
        tally = 0 if entry.tally is None else entry.tally.address
        meter = 0 if entry.meter_cell is None else entry.meter_cell.address
        try:
            self._put(entry, present, (action, choice, tally, meter), arguments)
        except EntryError:
            if self._profile is not None:
                self._profile.retire(self._profile.one_shot(self._name, entry.match, entry.priority))
                self._profile.restore(self._name, present, old_handle)
            raise
        if old_handle and self._profile is not None:
            self._profile.retire(old_handle)

    def remove(self, entry: TableEntry) -> None:
        """Follow the table."""
        self._remove(entry)
        if self._profile is not None:
            self._profile.retire(self._profile.one_shot(self._name, entry.match, entry.priority))
        if entry.tally is not None or entry.meter_cell is not None:
            self._heap.keep((entry.tally, entry.meter_cell))

    def set_default(self, entry: TableEntry) -> None:
        """Follow the table; an unconfigured meter is left out, since packets that match nothing keep their colour."""
        action, arguments = (NO_ACTION, ()) if entry.call is None else self._actions.words(entry.call)
        tally = 0 if entry.tally is None else entry.tally.address
        meter = 0 if entry.meter_cell is None or entry.meter_config is None else entry.meter_cell.address
        request = self._request.write(action, 0, tally, meter, len(arguments), *arguments)
        check(function(publish.put_default)(self._heap.address, self.head.address, request), self._name)

    def free(self) -> None:
        """Free everything; no packet may look at it any more."""
        self._table.observers = tuple(item for item in self._table.observers if item is not self)
        default = self.head.default
        function(memory.release)(self._heap.address, 0 if default is None else default.address)
        self._free()

    @abstractmethod
    def _put(self, entry: TableEntry, present: TableEntry | None, head: Head, arguments: tuple[int, ...]) -> None:
        """Publish an entry."""

    @abstractmethod
    def put_rows(self, rows: Rows) -> int:
        """Follow the table; return how many rows there was memory for."""

    @abstractmethod
    def _remove(self, entry: TableEntry) -> None:
        """Unlink an entry."""

    @abstractmethod
    def _free(self) -> None:
        """Free all entries."""


class ExactMirror(TableMirror):
    """Follows a table whose fields are all exact."""

    def __init__(self, table: Table, profile: ProfileMirror | None, actions: ActionTable, heap: Heap) -> None:
        super().__init__(table, profile, actions, heap)
        keys = table.spec.keys
        self.head = ExactTable(key_words=sum(word_count(key.width) for key in keys))
        self._address = self.head.address
        self._words = exact_words(keys)
        self._put_exact, self._remove_exact = function(exact.put_exact), function(exact.remove_exact)
        check_made(function(exact.make_exact)(heap.address, self._address), self._name)

    def _put(self, entry: TableEntry, present: TableEntry | None, head: Head, arguments: tuple[int, ...]) -> None:  # noqa: ARG002
        request = self._request.write(*head, len(arguments), *self._words(entry.match), *arguments)
        check(self._put_exact(self._heap.address, self._address, request), self._name)

    def put_rows(self, rows: Rows) -> int:
        """Follow the table; return how many rows there was memory for."""
        put = function(bulk.put_exact_rows)
        return put(self._heap.address, self._address, _address(rows), rows.layout.words, len(rows))

    def _remove(self, entry: TableEntry) -> None:
        request = self._request.write(0, 0, 0, 0, 0, *self._words(entry.match))
        check(self._remove_exact(self._heap.address, self._address, request), self._name)

    def _free(self) -> None:
        function(exact.free_exact)(self._heap.address, self._address)


class TrieMirror(TableMirror):
    """Follows a table with one lpm field of at most 32 bits."""

    def __init__(self, table: Table, profile: ProfileMirror | None, actions: ActionTable, heap: Heap) -> None:
        super().__init__(table, profile, actions, heap)
        (key,) = table.spec.keys
        shift = STRIDE * max(0, -(-(key.width - 16) // STRIDE))
        assert key.width < LENGTHS
        self.head = TrieTable(key_words=trie.KEY_WORDS, width=key.width, root_shift=shift)
        self._address = self.head.address
        check_made(function(trie.make_trie)(heap.address, self._address), self._name)

    def _put(self, entry: TableEntry, present: TableEntry | None, head: Head, arguments: tuple[int, ...]) -> None:  # noqa: ARG002
        (prefix,) = entry.match
        assert isinstance(prefix, tuple)
        request = self._request.write(*head, len(arguments), *prefix, *arguments)
        check(function(trie.put_trie)(self._heap.address, self._address, request), self._name)

    def put_rows(self, rows: Rows) -> int:
        """Follow the table; return how many rows there was memory for."""
        put = function(bulk.put_trie_rows)
        return put(self._heap.address, self._address, _address(rows), rows.layout.words, len(rows))

    def _remove(self, entry: TableEntry) -> None:
        (prefix,) = entry.match
        assert isinstance(prefix, tuple)
        request = self._request.write(0, 0, 0, 0, 0, *prefix)
        check(function(trie.remove_trie)(self._heap.address, self._address, request), self._name)

    def _free(self) -> None:
        function(trie.free_trie)(self._heap.address, self._address)


@dataclass(slots=True)
class _Space:
    """A space: its address, its creation number, and the priorities of its entries."""

    address: int
    serial: int
    best: int
    priorities: PriorityCount = field(default_factory=PriorityCount)

    @property
    def order(self) -> tuple[int, int]:
        """Return the sort key of the rows."""
        return -self.best, self.serial


class MaskSpaces:
    """The spaces of one native mask table, and their order."""

    def __init__(self, keys: tuple[KeyField, ...], heap: Heap, where: str) -> None:
        self._splitter, self._heap, self._where = MatchSplitter(keys), heap, where
        self.table = MaskTable()
        self.address = self.table.address
        self._request = Request(where)
        self._spaces: dict[tuple[int, ...], _Space] = {}
        self._by_seconds: dict[tuple[int, ...], _Space] = {}  # the same, by the second words of rows
        self._rows: list[tuple[int, int]] = []
        self._serial = 0
        check_made(function(mask.make_rows)(heap.address, self.address), where)

    def put(self, match: Match, priority: int, head: Head, arguments: tuple[int, ...], *, is_new: bool) -> None:
        """Publish an entry."""
        parts = self._splitter.split(match)
        space = self._space(parts, priority)
        request = self._write(parts, priority, head, arguments)
        check(function(mask.put_mask)(self._heap.address, self.address, space.address, request), self._where)
        if is_new:
            space.priorities.add(priority)

    def put_rows(self, rows: Rows, rank: int, fields: int) -> int:
        """Publish new entries, whose priority is word `rank` of a row; return how many there was memory for."""
        priorities = rows.column(rank)
        spaces = self._row_spaces(rows, priorities)
        addresses = array("Q", [space.address for space in spaces])
        request = self._request.write(*bytes(mask.MASK_HEAD_WORDS + rows.layout.words))
        put, where = function(bulk.put_mask_rows), (addresses.buffer_info()[0], _address(rows))
        count = put(self._heap.address, self.address, *where, rows.layout.words, fields, rank, len(rows), request)
        for space, priority in zip(spaces[:count], priorities, strict=False):
            space.priorities.add(priority)
        return count

    def _row_spaces(self, rows: Rows, priorities: Sequence[int]) -> list[_Space]:
        """Return the space of each row, positioned so that each entry is found in time."""
        seconds = [*rows.layout.seconds(rows.data)]
        missing = {masks: number for number, masks in enumerate(seconds) if masks not in self._by_seconds}
        matches = [*rows.layout.matches(rows.data)] if missing else []
        for masks, number in missing.items():
            self._by_seconds[masks] = self._space(self._splitter.split(matches[number]), priorities[number])
        spaces = [*map(self._by_seconds.__getitem__, seconds)]
        for space, priority in zip(spaces, priorities, strict=True):
            if priority > space.best:
                self._move(space, priority)
        return spaces

    def remove(self, match: Match, priority: int) -> None:
        """Unlink an entry."""
        parts = self._splitter.split(match)
        masks = (*parts.masks, *parts.places)
        space = self._spaces[masks]
        request = self._write(parts, priority, (0, 0, 0, 0), ())
        check(function(mask.remove_mask)(self._heap.address, space.address, request), self._where)
        space.priorities.remove(priority)
        if not space.priorities:
            row = self._row(space)
            check(function(mask.remove_row)(self._heap.address, self.address, row), self._where)
            del self._rows[row], self._spaces[masks]
            self._by_seconds.clear()
        elif space.priorities.best < space.best:
            self._move(space, space.priorities.best)

    def drop(self, *, later: bool) -> None:
        """Free everything now, or once no packet looks at it."""
        check_made(function(mask.drop_mask)(self._heap.address, self.address, later), self._where)

    def _write(self, parts: SplitMatch, priority: int, head: Head, arguments: tuple[int, ...]) -> int:
        described = (priority, parts.range_count, len(parts.ranges))
        return self._request.write(*head, len(arguments), *described, *parts.values, *parts.ranges, *arguments)

    def _space(self, parts: SplitMatch, priority: int) -> _Space:
        """Return the space of a match, positioned so that an entry of this priority is found in time."""
        key = (*parts.masks, *parts.places)
        space = self._spaces.get(key)
        if space is not None:
            if priority > space.best:
                self._move(space, priority)
            return space
        made = function(mask.make_space)(self._heap.address, self._request.write(*key), len(parts.masks))
        self._serial += 1
        space = _Space(check_made(made, self._where), self._serial, priority)
        row = bisect_left(self._rows, space.order)
        check(function(mask.insert_row)(self._heap.address, self.address, row, priority, space.address), self._where)
        self._rows.insert(row, space.order)
        self._spaces[key] = space
        return space

    def _row(self, space: _Space) -> int:
        return bisect_left(self._rows, space.order)

    def _move(self, space: _Space, priority: int) -> None:
        source = self._row(space)
        present = self._rows.pop(source)
        target = bisect_left(self._rows, (-priority, space.serial))
        status = function(mask.move_row)(self._heap.address, self.address, source, target, priority)
        if status:
            self._rows.insert(source, present)
        check(status, self._where)
        space.best = priority
        self._rows.insert(target, space.order)


class MaskMirror(TableMirror):
    """Follows a table with priorities, or with lpm besides exact fields or of more than 32 bits."""

    def __init__(self, table: Table, profile: ProfileMirror | None, actions: ActionTable, heap: Heap) -> None:
        super().__init__(table, profile, actions, heap)
        keys = table.spec.keys
        self._spaces = MaskSpaces(keys, heap, self._name)
        self.head = self._spaces.table
        prefixes = [index for index, key in enumerate(keys) if key.kind is MatchKind.LPM]
        self._prefix = None if needs_priority(keys) else prefixes[0]

    def _put(self, entry: TableEntry, present: TableEntry | None, head: Head, arguments: tuple[int, ...]) -> None:
        self._spaces.put(entry.match, self._priority(entry), head, arguments, is_new=present is None)

    def put_rows(self, rows: Rows) -> int:
        """Follow the table; return how many rows there was memory for."""
        rank = PRIORITY if self._prefix is None else KEY + 2 * self._prefix + 1
        return self._spaces.put_rows(rows, rank, len(self._table.spec.keys))

    def _remove(self, entry: TableEntry) -> None:
        self._spaces.remove(entry.match, self._priority(entry))

    def _priority(self, entry: TableEntry) -> int:
        """Return the priority, or the length if the longest prefix wins."""
        if self._prefix is None:
            return entry.priority
        prefix = entry.match[self._prefix]
        assert isinstance(prefix, tuple)
        return prefix[1]

    def _free(self) -> None:
        self._spaces.drop(later=False)


def _address(rows: Rows) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(rows.data))


def mirror_kind(keys: tuple[KeyField, ...]) -> type[ExactMirror | TrieMirror | MaskMirror]:
    """Return the suitable and fastest kind of native table for a key."""
    if needs_priority(keys):
        return MaskMirror
    if not any(key.kind is MatchKind.LPM for key in keys):
        return ExactMirror
    return TrieMirror if len(keys) == 1 and keys[0].width <= trie.MAX_WIDTH else MaskMirror
